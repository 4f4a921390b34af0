"""A JSON document that is damaged in a few places: all whole records of it.

Law: damage costs the records that it stands in and no other; each of them is
there as an object that tells the fault. A document that is cut off, damaged in
many places or nothing but damage is refused with the place of the first fault.

At a fault the parser knows which containers are open and where the element of each began.
One of those elements, or of containers just closed, is taken out, up to one of the next
places where a neighbor could begin or its container end. Of the ways that leave a document the
one with the most records that are as most are is taken: an object that is in the place of a record
by the repair alone has other keys. Ways that leave none are followed to their next fault, those
first that come furthest.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from pipelines.data.record import Torn, unique

MOST_REPAIRS = 8  # places of damage; more is another file
BEAM = 4  # damaged texts that are followed further
MOST_WORK = 150_000_000  # characters parsed in the search
LAST = 32  # places before a fault where an object may begin; each is tried
CLOSED = 4  # containers looked at that were closed before a fault
BOUNDARIES = 5  # places of a kind looked at behind an element, in each open container
_MARK = "\x00torn"  # no key of a document: JSON allows no NUL unescaped, and none writes this
_DIGITS = 4_000  # of an integer; Python prints no more than 4,300
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},"]', re.DOTALL)
_BEGINS = re.compile(r"(?:\[|\},)\s*(?=\S)")
_END = re.compile(r"\]")
_IN_OBJECT = re.compile(r'\}|,(?=\s*"(?:[^"\\]|\\.)*"\s*:)', re.DOTALL)


@dataclass
class _Open:
    """An open container: its bracket, and where its first and its present element begin."""

    bracket: str
    first: int
    element: int


@dataclass(frozen=True)
class Count:
    """Records of a document: `alike` have the keys that most have, `odd` others, `bad` cannot be read."""

    alike: int
    odd: int
    bad: int

    @property
    def rank(self) -> tuple[int, int]:
        """Greater for the better repair."""
        return self.alike, -self.odd - self.bad


def load(text: str, count: Callable[[Any], Count]) -> Any:
    """The document; what is damaged stands in it as `Torn`.

    `count` tells which records a document has. Raises
    ValueError (JSONDecodeError where a place is known) as json.loads does, RecursionError.
    """
    try:
        return _loads(text)
    except json.JSONDecodeError as e:
        found = _repaired(text, e, count)
        if found is None:
            raise
        return _loads(found)


def _repaired(text: str, fault: json.JSONDecodeError, count: Callable[[Any], Count]) -> str | None:
    """The text without what is damaged, None where none is found that leaves a readable record."""
    frontier, work = [(text, fault)], 0
    best, enough = (Count(0, 0, 0), text), False
    for depth in range(1, MOST_REPAIRS + 1):
        left: dict[str, json.JSONDecodeError] = {}
        for damaged, where in frontier:
            ways = _ways(damaged, where, depth)
            for tried in chain(ways, _without_one(text, fault)) if depth == 1 else ways:
                work += len(tried)
                if work > MOST_WORK:
                    return best[1] if best[0].alike else None
                try:
                    found = count(_loads(tried))
                except json.JSONDecodeError as e:
                    left[tried] = e
                    continue
                if found.alike and found.rank > best[0].rank:
                    best = (found, tried)
                    enough = found.bad <= depth and _is_little(text, tried, found, depth)
        if enough:
            break
        frontier = sorted(left.items(), key=lambda way: len(way[0]) - way[1].pos)[:BEAM]
    return best[1] if best[0].alike else None


def _is_little(text: str, left: str, found: Count, taken: int) -> bool:
    """Whether no more objects were taken out than so many records have; else less may do."""
    records = found.alike + found.odd + found.bad
    return text.count("{") - left.count("{") <= taken * text.count("{") / records


def _loads(text: str) -> Any:
    return json.loads(text, parse_constant=float, parse_int=_integer, object_pairs_hook=_object)


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _DIGITS else float("inf")  # which no row can hold


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    told = [(key, Torn.of(value) if key.startswith(_MARK) else value) for key, value in pairs]
    alone = told[0][1] if len(told) == 1 else None
    return alone if isinstance(alone, Torn) else unique(told)


def _ways(text: str, fault: json.JSONDecodeError, number: int) -> Iterator[str]:
    """The text without one element that the fault may stand in, for each way to take one out."""
    mark = _mark(number, fault)
    for container in reversed(_stack(text, fault.pos)):
        listed = container.bracket == "["
        put = f"{{{mark}}}" if listed else mark
        kinds = (_END, _next_in_list(text, container)) if listed else (_IN_OBJECT,)
        ends: set[int] = set()
        for kind in kinds:
            ends |= {m.start() for m in islice(kind.finditer(text, container.element), BOUNDARIES)}
        for end in sorted(ends):
            yield f"{text[: container.element]}{put}{text[end:]}"


def _without_one(text: str, fault: json.JSONDecodeError) -> Iterator[str]:
    """The text without what stands between two places where an object of a list may begin.

    A record may close more containers than it opened, and leave the fault to the end of the
    document: then none of the open elements is the damaged one.
    """
    places = [m.end() for m in _BEGINS.finditer(text)]
    before = sum(1 for place in places if place <= fault.pos)
    for first in range(max(0, before - LAST), before):
        for end in places[first + 1 : first + 2 + BOUNDARIES]:
            yield f"{text[: places[first]]}{{{_mark(0, fault)}}}, {text[end:]}"


def _mark(number: int, fault: json.JSONDecodeError) -> str:
    return f"{json.dumps(f'{_MARK}{number}')}: {json.dumps(f'not JSON: {fault}')}"


def _next_in_list(text: str, container: _Open) -> re.Pattern[str]:
    """Where an element of a list may end, but for the list's end: before one that begins as another does."""
    starts = {text[at : at + 40].lstrip()[:1] for at in (container.first, container.element)}
    kinds = "".join(sorted((starts & {"[", '"'}) | {"{"}))
    return re.compile(rf",(?=\s*[{re.escape(kinds)}])")


def _stack(text: str, end: int) -> list[_Open]:
    """The containers that are open at `end`, the innermost last; before them those closed last.

    A fault may have closed too many.
    """
    found: list[_Open] = []
    closed: deque[_Open] = deque(maxlen=CLOSED)
    for token in _TOKEN.finditer(text, 0, end):
        sign = token[0]
        if sign in ("[", "{"):
            found.append(_Open(sign, token.end(), token.end()))
        elif sign in ("]", "}"):
            closed.extend([found.pop()] if found else [])
        elif sign == "," and found:
            found[-1].element = token.end()
        elif sign == '"':
            break  # a text that the fault stands in
    return [*closed, *found]
