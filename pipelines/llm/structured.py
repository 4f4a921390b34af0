"""JSON values out of model answers, by a ladder of four steps.

1. The request carries the schema: a backend that can, decodes under it. For one that refuses schemas
   (`constrained` false) it does not, and has another key; the steps below are the same.
2. The text is read to the letter, then leniently, and respelt to the schema (`lenient`, `coercion`).
3. A text that gives no value is asked to be put right, once.
4. Else the row is unparsable, and both texts are kept.

Law: reading is after the store. A request for repair is a function of the first request and its
answer alone, never of what the reader found wrong; so a changed reader asks nothing of which the
answer is stored, and a repaired row replays. Between several different values none is chosen.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from pipelines.errors import ConfigError
from pipelines.llm.answer import Answer, Failure
from pipelines.llm.coercion import Form, form_of
from pipelines.llm.lenient import Found, heard, same, strict
from pipelines.llm.request import Content, Request

REPAIR = "repair"  # the end of the purpose of a request for repair
INSTRUCTION = (
    "What you wrote is not the JSON that was asked for. Write it again: one JSON value that is valid "
    "under this JSON schema, and nothing before or after it.\n\n{schema}"
)
FINAL = frozenset({Failure.LENGTH, Failure.EMPTY, Failure.REFUSED, Failure.FILTERED, Failure.BAD_REQUEST})


class Ending(StrEnum):
    """How a structured question can end."""

    READ = "read"
    REPAIRED = "repaired"
    UNPARSABLE = "unparsable"  # answers came, and no value of the schema in them
    FAILED = "failed"  # the first answer, or one that may pass on the way to the second, is a failure


@dataclass(frozen=True, slots=True)
class Reading:
    """The value of a text, and what was overlooked to get it; with a `fault` there is none."""

    value: Any = None
    steps: tuple[str, ...] = ()
    fault: str = ""


@dataclass(frozen=True)
class Structured:
    """The end of `request`: its value, or None. `answers` are one, or two where a repair was asked.

    `steps` says what was overlooked, "" with nothing; `fault` why there is no value.
    """

    request: Request
    ending: Ending
    answers: tuple[Answer, ...]
    value: Any = None
    steps: tuple[str, ...] = ()
    fault: str = ""

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the answers in the store, in the order asked."""
        return tuple(a.id for a in self.answers if a.id)

    @property
    def ok(self) -> bool:
        return self.ending in (Ending.READ, Ending.REPAIRED)

    @property
    def raw(self) -> str:
        """What the model wrote, in the order asked."""
        return "\n---\n".join(a.text for a in self.answers)


@dataclass(frozen=True)
class Repair(Request):
    """A request to put the answer `first` to `asked` right."""

    asked: Request | None = field(default=None, compare=False)
    first: Answer | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Unconstrained(Request):
    """`asked` without its schema, which stays here to read the answer by."""

    asked: Request | None = field(default=None, compare=False)


Ask = Callable[[Iterable[Request]], Iterator[Answer]]
Reader = Callable[[str, Form], Reading]


def structured(
    ask: Ask, requests: Iterable[Request], *, read: Reader | None = None, constrained: bool = True
) -> Iterator[Structured]:
    """Each request's end, lazily and in any order. `ask` is `Client.answers`, or a step's own.

    Requests for repair ride in the same window. `constrained` False: none is asked with its schema.
    Raises ConfigError for a request without a schema, and what `ask` raises.
    """
    reader = reading if read is None else read
    ask = ask if constrained else _unconstrained(ask)
    repairs: deque[Repair] = deque()

    def source() -> Iterator[Request]:
        for request in requests:
            while repairs:
                yield repairs.popleft()
            _form(request)
            yield request

    pending: Iterable[Request] = source()
    while True:
        for answer in ask(pending):
            end = _end(answer, reader)
            if isinstance(end, Repair):
                repairs.append(end)
            else:
                yield end
        if not repairs:
            return
        pending = list(repairs)
        repairs.clear()


def reading(text: str, form: Form) -> Reading:
    """The one value of `form` that `text` says. Never raises for any text."""
    try:
        shaped = form.shaped(value := strict(text))
    except ValueError:
        return _lenient(text, form)
    if shaped is not None:
        return Reading(shaped[0], ("respelt",) if shaped[1] else ())
    if isinstance(value, str):  # JSON written as a JSON string
        inner = _lenient(value, form)
        return inner if inner.fault else replace(inner, steps=("quoted", *inner.steps))
    return Reading(fault=form.fault(value))


def repair(request: Request, first: Answer) -> Repair:
    """The request to put `first` right: the same model, schema and sampling, a seed of its own."""
    seed = None
    if request.seed is not None:
        seed = int.from_bytes(hashlib.sha256(f"repair\x1f{first.id}".encode()).digest()[:4], "big") >> 1
    told = INSTRUCTION.format(schema=json.dumps(request.schema, sort_keys=True, ensure_ascii=False))
    prompt, messages = request.prompt, request.messages
    if request.kind == "chat":
        more: tuple[tuple[str, Content], ...] = (("assistant", first.text), ("user", told))
        messages = (*messages, *more)
    else:
        prompt = f"{prompt}{first.text}\n\n{told}\n\n"
    own = {
        "seed": seed,
        "prompt": prompt,
        "messages": messages,
        "purpose": f"{request.purpose} {REPAIR}".strip(),
    }
    return Repair(**(_given(request) | own), asked=request, first=first)


def _given(request: Request) -> dict[str, Any]:
    return {f.name: getattr(request, f.name) for f in fields(Request)}


def _unconstrained(ask: Ask) -> Ask:
    """`ask` without the schemas; its answers are told as those of the requests that have them."""

    def asks(requests: Iterable[Request]) -> Iterator[Answer]:
        for answer in ask(Unconstrained(**(_given(r) | {"schema": None}), asked=r) for r in requests):
            asked = answer.request.asked if isinstance(answer.request, Unconstrained) else None
            yield answer if asked is None else replace(answer, request=asked)

    return asks


def _end(answer: Answer, read: Reader) -> Structured | Repair:
    request = answer.request
    if isinstance(request, Repair) and request.asked is not None and request.first is not None:
        return _mended(request.asked, request.first, answer, read)
    if not answer.ok:
        return Structured(request, Ending.FAILED, (answer,), fault=answer.detail)
    got = read(answer.text, _form(request))
    if got.fault:
        return repair(request, answer)
    return Structured(request, Ending.READ, (answer,), got.value, got.steps)


def _mended(asked: Request, first: Answer, second: Answer, read: Reader) -> Structured:
    both = (first, second)
    if not second.ok:
        ending = Ending.UNPARSABLE if second.failure in FINAL else Ending.FAILED
        return Structured(asked, ending, both, fault=f"repair: {second.failure} {second.detail}".strip())
    got = read(second.text, _form(asked))
    if got.fault:
        return Structured(asked, Ending.UNPARSABLE, both, fault=got.fault)
    return Structured(asked, Ending.REPAIRED, both, got.value, got.steps)


def _lenient(text: str, form: Form) -> Reading:
    """What fits of all that is heard. A fence marks the answer; else all that fit must be the same."""
    told = heard(text)
    for group in ([f for f in told.found if f.fenced], [] if told.broken else list(told.found)):
        fitting = [(f, shaped) for f in group if (shaped := form.shaped(f.value)) is not None]
        if not fitting:
            continue
        found, (value, respelt) = fitting[0]
        if any(not same(value, other[0]) for _, other in fitting[1:]):
            return Reading(fault=f"{len(fitting)} values fit the schema and differ")
        return Reading(value, (*found.steps, *(["respelt"] if respelt else [])))
    return Reading(fault=_why(told.found, told.broken, form))


def _why(found: tuple[Found, ...], broken: bool, form: Form) -> str:
    if broken:
        return "the JSON is broken or breaks off"
    return form.fault(found[0].value) if found else "no JSON in it"


def _form(request: Request) -> Form:
    schema: Mapping[str, Any] | None = request.schema
    if schema is None:
        what = "a structured question needs a schema"
        raise ConfigError(what, where=request.purpose or None, cure="give the request one")
    return form_of(schema)
