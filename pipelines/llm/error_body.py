"""What an endpoint says of an error: its codes, its words, and what they mean for the question.

Law: an error is known by its status and its codes, never by its message, which may quote the question.
Where a seller has one status for several things, a code tells them apart:

| status and code                                                | meaning for the question             |
|----------------------------------------------------------------|--------------------------------------|
| 400 content_filter, content_policy_violation; 403 with reasons | a filter refused it                  |
| 400 json_validate_failed                                       | the model wrote no JSON: a broken body |
| 402 with a Retry-After                                         | wait, as with a 429                  |
| 498, 503, 529                                                  | overloaded                           |
| 408, 504                                                       | a time-out                           |
| 409, 499, another 5xx                                          | a passing error of the server        |
| another                                                        | the request itself is wrong          |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from pipelines.llm.answer import Failure

DETAIL_CHARS = 300
FILTERS = {"content_filter", "content_policy_violation"}
FLAGGED = "flagged"  # our code for a moderation that names its reasons
UNWRITTEN = "json_validate_failed"
_FAILURES = {
    408: Failure.TIMEOUT,
    409: Failure.SERVER,
    429: Failure.OVERLOADED,
    498: Failure.OVERLOADED,
    499: Failure.SERVER,
    503: Failure.OVERLOADED,
    504: Failure.TIMEOUT,
    529: Failure.OVERLOADED,
}


def failure_of(status: int, raw: bytes, *, throttled: bool) -> Failure:
    """What a response that is no success means; `throttled`: it told to wait."""
    if throttled:
        return Failure.OVERLOADED
    codes = codes_of(raw) if status in (400, 403) else set()
    if FLAGGED in codes or (status == 400 and codes & FILTERS):
        return Failure.FILTERED
    if status == 400 and UNWRITTEN in codes:
        return Failure.BROKEN_BODY
    return _FAILURES.get(status, Failure.SERVER if status >= 500 else Failure.BAD_REQUEST)


def status_within(error: Any) -> int:
    """The status that an error within a 200 tells as its code; 0 for none."""
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 0


def codes_of(raw: bytes) -> set[str]:
    """How an error body names its error, whether by code, type, or the reasons in its details."""
    error = _error(raw)
    return set(_codes(error)) if isinstance(error, dict) else set()


def words_of(raw: bytes) -> str:
    """The server's own words, shortened; the start of a body that is no error of the protocol."""
    error = _error(raw)
    return start_of(raw) if error is None else words(error)


def words(error: Any) -> str:
    """The words of an error."""
    message = error["message"] if isinstance(error, dict) and "message" in error else error
    return "nothing said" if message is None else str(message)[:DETAIL_CHARS]


def start_of(raw: bytes) -> str:
    """The first characters of a body, in one line."""
    return " ".join(raw[:DETAIL_CHARS].decode("utf-8", "replace").split()) or "(empty body)"


def _error(raw: bytes) -> Any:
    """The error in a body, which some put into a list of one; None where there is none."""
    try:
        body = orjson.loads(raw)
        return (body[0] if isinstance(body, list) else body)["error"]
    except (orjson.JSONDecodeError, KeyError, TypeError, IndexError):
        return None


def _codes(error: dict[str, Any]) -> Iterator[str]:
    details = error.get("details")
    parts = [error, *(details if isinstance(details, list) else [])]
    said = (part.get(name) for part in parts if isinstance(part, dict) for name in ("code", "type", "reason"))
    yield from (code for code in said if isinstance(code, str))
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and (metadata.get("reasons") or metadata.get("flagged_input")):
        yield FLAGGED
