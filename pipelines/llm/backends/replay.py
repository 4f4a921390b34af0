"""The store alone: nothing is asked, a miss stops the run and says what is missing.

Law: a replay gives the stored bytes or an error; it never falls back on a model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from pipelines.errors import HeadraceError
from pipelines.llm.models import REGISTRY
from pipelines.llm.request import Named, named_request
from pipelines.llm.store import Store

UNSAID: Mapping[str, Any] = {}
CURE = "run once with the backend that has the model, or replay the store of that run"
ROWS = 5  # named of those whose answers are stale
LONGEST = 80  # characters of a text that is shown
BEFORE, AFTER = 20, 30  # characters shown around the place where two prompts part


class ReplayMiss(HeadraceError):
    """A request whose answer is not in the store."""


class Replay:
    """Identities as the recording backend gave them: weights' hash where the name is registered."""

    llama = False
    ours = True
    unsaid = UNSAID

    def __init__(self, vllm: Callable[[str], str]) -> None:
        self._vllm = vllm  # the identity that vLLM's answers have, as it is set up

    def identity(self, model: str) -> str:
        return REGISTRY[model].identity if model in REGISTRY else f"name:{model}"

    def others(self, named: Named) -> tuple[Named, ...]:
        """The same request under the identities that an endpoint's and vLLM's answers have."""
        name = f"name:{named.model}"
        try:
            served = self._vllm(named.model)
        except HeadraceError:  # no model of vLLM's, so nothing that it can have said
            served = name
        return tuple(named_request(named.request, named.model, i) for i in (name, served))

    async def url(self, model: str, prompt: str = "") -> str:
        raise HeadraceError("a replay has no server")

    def left(self, url: str, alive: bool) -> None:
        return None

    async def close(self) -> None:
        return None


def miss(
    store: Store, missing: Sequence[Named], found: Collection[str] = (), others: Sequence[Named] = ()
) -> ReplayMiss:
    """The error that names asker, model, what differs from the nearest stored request, and what is stale.

    `missing` are the requests at hand that nothing is stored for, `found` the keys of the others. The first
    is told of (`others`: it under other identities), the rest counted. Stale are answers that are stored for
    the row and sample of a missing one, and that none at hand asks for.
    """
    first = missing[0].request
    who = f"{first.purpose or 'a request'} of row {first.row or '(unnamed)'}, sample {first.sample}"
    what = f"replay: no stored answer of {missing[0].model} to {who}: {_why(store, [missing[0], *others])}"
    if len(missing) > 1:
        what += f"; {len(missing) - 1} more of the requests at hand are not stored"
    if first.purpose and (stale := _stale(store, missing, found)):
        named = ", ".join(stale[:ROWS]) + (", ..." if len(stale) > ROWS else "")
        what += f"; {len(stale)} answers stored for {first.purpose} are stale by them (rows {named})"
    return ReplayMiss(what, where=str(store.path), cure=CURE)


def _stale(store: Store, missing: Sequence[Named], found: Collection[str]) -> list[str]:
    """Rows of the stored answers in whose place something else is asked; one for each answer."""
    purpose = missing[0].request.purpose
    asked = {(m.request.row, m.request.sample) for m in missing if m.request.purpose == purpose}
    stored = [r for r in store.asked_for(purpose=purpose) if r.row and r.key not in found]
    return sorted(r.row for r in stored if (r.row, json.loads(r.request)["sample"]) in asked)


def no_vector(store: Store, model: str, text: str, count: int) -> ReplayMiss:
    """The error for embeddings that an endpoint would have to make."""
    shown = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    what = f"replay: no stored embedding by {model} of {count} texts, the first is {shown!r}"
    return ReplayMiss(what, where=str(store.path), cure=CURE)


def _why(store: Store, missing: Sequence[Named]) -> str:
    """What differs from the nearest stored request: of the same row, else of the same purpose."""
    request = missing[0].request
    forms = [json.loads(m.canonical) for m in missing]
    for row, whose in ((request.row, "the stored one"), ("", "the nearest stored one, of row {},")):
        stored = [(json.loads(r.request), r.row) for r in store.asked_for(purpose=request.purpose, row=row)]
        if stored:
            pairs = [(asked, was, of) for asked in forms for was, of in stored]
            asked, nearest, of = min(pairs, key=lambda p: _distance(p[0], p[1]))
            fields = _differing(asked, nearest)
            return f"differs from {whose.format(of)} in {', '.join(fields)}{_where(asked, nearest, fields)}"
        if not request.purpose:
            break
    return "nothing is stored for it"


def _distance(asked: dict[str, Any], stored: dict[str, Any]) -> tuple[int, int]:
    """Fields that differ, then how little of the question's beginning is the same."""
    ours, theirs = _question(asked), _question(stored)
    return len(_differing(asked, stored)), -_shared(ours, theirs)


def _where(asked: dict[str, Any], stored: dict[str, Any], fields: list[str]) -> str:
    """The first place where two questions part, as both have it; else the values of the first field."""
    if not {"prompt", "messages"}.intersection(fields):
        if not fields:
            return ""
        said, was = (_shown(_field(request, fields[0])) for request in (asked, stored))
        return f": {said} where {was} is stored" + (f" ({fields[0]})" if len(fields) > 1 else "")
    ours, theirs = _question(asked), _question(stored)
    at = _shared(ours, theirs)
    begin = max(0, at - BEFORE)
    said, was = (repr(text[begin : at + AFTER]) for text in (ours, theirs))
    return f": {said} where {was} is stored"


def _field(request: dict[str, Any], name: str) -> Any:
    of, _, field = name.partition(".")
    return (request.get(of) or {}).get(field) if field else request.get(of)


def _shown(value: Any) -> str:
    said = json.dumps(value, ensure_ascii=False)
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 1]}…"


def _shared(ours: str, theirs: str) -> int:
    """How many characters from the start are the same."""
    pairs = enumerate(zip(ours, theirs, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(ours), len(theirs)))


def _question(asked: dict[str, Any]) -> str:
    if asked.get("prompt") is not None:
        return str(asked["prompt"])
    return "\n".join(
        said if isinstance(said, str) else json.dumps(said) for _, said in asked.get("messages") or []
    )


def _differing(asked: dict[str, Any], stored: dict[str, Any]) -> list[str]:
    """Names of the fields that differ; those of the sampling one by one."""
    names = []
    for name in sorted(asked.keys() | stored.keys()):
        ours, theirs = asked.get(name), stored.get(name)
        if ours == theirs:
            continue
        if name == "sampling" and isinstance(ours, dict) and isinstance(theirs, dict):
            names += [
                f"sampling.{k}" for k in sorted(ours.keys() | theirs.keys()) if ours.get(k) != theirs.get(k)
            ]
        else:
            names.append(name)
    return names
