"""One record of a foreign file, and which values a row can hold.

Law: a record is its values or a fault, never both.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from pipelines.errors import Place

LONGEST_RAW = 2000  # characters of a record that are kept beside a rejected row


@dataclass(frozen=True)
class Record:
    """One record. `fault` says why it cannot be read; then `values` is empty and `raw` is the text."""

    file: str  # relative to the folder that was given
    line: int  # of its first line, from 1; in a JSON document its place among the records
    values: dict[str, Any] = field(default_factory=dict)
    raw: str = ""
    fault: str = ""

    def place(self, column: str | None = None) -> Place:
        return Place(self.file, self.line, column)

    @property
    def key(self) -> str:
        """Names the record as a work item."""
        return f"{self.file}:{self.line}"


class Twice(dict[str, Any]):
    """A JSON object in which `keys_twice` are repeated: which of their values is meant, nothing tells."""

    keys_twice: frozenset[str] = frozenset()


class Torn(dict[str, Any]):
    """What stands in place of a damaged element of a JSON document; `why` tells the damage."""

    why = ""

    @classmethod
    def of(cls, why: object) -> Torn:
        """An empty object that tells a fault."""
        torn = cls()
        torn.why = str(why)
        return torn


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `object_pairs_hook` of json.loads: the object, a `Twice` where a key is repeated."""
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    twice = Twice(found)
    counts = Counter(key for key, _ in pairs)
    twice.keys_twice = frozenset(key for key, times in counts.items() if times > 1)
    return twice


def twice_fault(key: str) -> str:
    """What is said of a repeated key."""
    return f"the key {key!r} stands twice"


def fault_of(value: Any, *, finite: bool = True) -> str:
    """Why a JSON value cannot be kept, however deep it lies: "" when it can.

    `finite`: whether a number must be; NaN and infinity are no JSON.
    """
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, Torn):
            return one.why
        if isinstance(one, Twice):
            return twice_fault(min(one.keys_twice))
        if isinstance(one, dict):
            left += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            left += one
        elif finite and isinstance(one, float) and not math.isfinite(one):
            return "a number is out of range"
        elif isinstance(one, str) and "\0" in one:
            return "a text holds a NUL character"
        elif isinstance(one, str) and unwritable(one):
            return "half of a surrogate pair stands alone"
    return ""


def unwritable(text: str) -> bool:
    """True for a text that UTF-8 cannot hold: half of a surrogate pair, as in the JSON "\\ud800"."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
