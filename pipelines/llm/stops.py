"""What ends the run rather than a row, for every other row would meet the same.

Law: nothing more is sent; what is in flight is answered and kept; this is raised, once.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.errors import ConfigError, EnvironmentFault, HeadraceError, StageError
from pipelines.llm.error_body import FLAGGED, codes_of, words_of

KEY_VARIABLES = ("HEADRACE_LLM_API_KEY", "OPENAI_API_KEY")
EMPTY = {"insufficient_quota", "billing_hard_limit_reached", "budget_exceeded"}  # of an account without funds
WRONG_KEY = "API_KEY_INVALID"
FORBIDDEN = 403
DOUBTFUL = frozenset({FORBIDDEN, 404, 405})  # may be of one request: with an image, too long
LONGEST = 60  # characters of a text that is shown
KEPT = "all answers so far are stored"


class KeyRefused(EnvironmentFault):
    """401 or 403."""


class NoFunds(EnvironmentFault):
    """402, a 429 that waiting does not cure, or a 400 that says so."""


class EndpointGone(EnvironmentFault):
    """It answers nothing, for longer than an outage may last."""


class RefusesAll(EnvironmentFault):
    """It tells every request to wait, for longer than one has patience."""


class ClientClosed(StageError):
    """Another thread closed the client, or it was asked after its end."""

    def __init__(self) -> None:
        super().__init__("the model client was closed while answers were wanted")


class UnfitTexts(StageError):
    """One at least of the texts is none that the endpoint embeds."""


def unfit(model: str, texts: Sequence[str], why: str) -> UnfitTexts:
    """The end of a call for embeddings that is wrong itself."""
    shown = texts[0] if len(texts[0]) <= LONGEST else f"{texts[0][: LONGEST - 1]}…"
    what = f"{model} embeds no text of {len(texts[0])} characters that begins {shown!r}: {why}"
    return UnfitTexts(
        what, cure="shorten it, leave its row out, or choose another model; the others are stored"
    )


def out_of_funds(raw: bytes) -> bool:
    """Whether a 429 says that the account is empty: waiting cures nothing."""
    return any(word.encode() in raw for word in EMPTY)


def stop_of(
    status: int, raw: bytes, where: str, path: str, model: str, *, throttled: bool = False
) -> HeadraceError | None:
    """The end of the run that a response means, or None when it concerns its own request.

    Those of DOUBTFUL do so only when several questions meet them (`outage.py`); `throttled`: it told to wait.
    """
    codes = codes_of(raw) if status in (400, 403) else set()
    if codes & EMPTY or (status == 402 and not throttled) or (status == 429 and out_of_funds(raw)):
        cure = f"top it up and run again: {KEPT}"
        return NoFunds("the endpoint's account has no funds", where=where, cure=cure)
    if status == 401 or (status == 403 and FLAGGED not in codes) or WRONG_KEY in codes:
        cure = f"set {KEY_VARIABLES[0]} to a key of this endpoint"
        what = f"the endpoint refuses the key (HTTP {status}): {words_of(raw)}"
        return KeyRefused(what, where=where, cure=cure)
    if status in (404, 405):
        cure = "check llm.base_url and llm.model"
        what = f"the endpoint has no {path} or no model {model!r} (HTTP {status}): {words_of(raw)}"
        return ConfigError(what, where=where, cure=cure)
    if 300 <= status < 400:
        what = f"the endpoint sends its callers elsewhere (HTTP {status})"
        return ConfigError(what, where=where, cure="set llm.base_url to where it went")
    return None


def gone(where: str, seconds: float, last: str) -> EndpointGone:
    """The end after an outage."""
    what = f"the endpoint has answered nothing for {seconds:.0f} s; at last: {last}"
    return EndpointGone(what, where=where, cure=f"see that it runs, then run again: {KEPT}")


def refuses_all(where: str, seconds: float, last: str) -> RefusesAll:
    """The end after nothing but refusals."""
    what = f"the endpoint has refused every request for {seconds:.0f} s; at last: {last}"
    cure = f"wait until its quota allows more, or raise llm.patience_s, then run again: {KEPT}"
    return RefusesAll(what, where=where, cure=cure)
