"""A question with what is known of a model's answer to it: gold answers, the answer, scores, flags.

Law: what a file says is read in any known spelling or refused with its place and the reason; nothing is
guessed: an absent answer, label or flag is None.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelines.errors import Place
from pipelines.evergreen.schema import parse_label

YES = ("1", "1.0", "true", "yes", "y")
NO = ("0", "0.0", "false", "no", "n")
SPLITS = {"train": "train", "training": "train", "test": "test", "dev": "test", "validation": "test"}
_ARRAY = re.compile(r"array\(|,\s*dtype=object\)")


@dataclass(frozen=True)
class Known:
    """One question of a set. `key` names it in its set; scores are turned: higher = less sure."""

    dataset: str
    key: str
    place: Place
    question: str | None = None
    language: str = "en"
    split: str | None = None  # train | test
    golds: tuple[str, ...] = ()
    answer: str | None = None  # of the model whose scores these are
    correct: bool | None = None  # as the file says
    label: str | None = None  # evergreen | mutable
    searched: bool | None = None  # whether an assistant looked the answer up
    p_evergreen: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)

    @property
    def item(self) -> str:
        """Names it as a work item."""
        return f"{self.dataset}/{self.key}"

    @property
    def answered(self) -> bool:
        """Whether the file tells of a model's answer: then no other model is asked."""
        return self.answer is not None or self.correct is not None or bool(self.scores)


@dataclass(frozen=True)
class Unread:
    """A record that cannot be used, and why."""

    item: str
    reason: str
    detail: str
    place: Place
    raw: str = ""


def flag(value: Any) -> bool | None:
    """yes/no, 1/0, true/false; None for an empty cell. Raises ValueError for another word."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    word = str(value).strip().casefold()
    if word in YES:
        return True
    if word in NO:
        return False
    raise ValueError(f"{value!r} is neither yes nor no")


def label_of(value: Any) -> str | None:
    """evergreen | mutable in any known spelling; None for an empty cell. Raises ValueError."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    found = parse_label(value)
    if found is None:
        raise ValueError(f"{value!r} is no known label")
    return found.value


def split_of(value: Any) -> str | None:
    """train | test; None for an empty cell. Raises ValueError."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    found = SPLITS.get(str(value).strip().casefold())
    if found is None:
        raise ValueError(f"{value!r} is no split: train or test")
    return found


def probability(value: Any) -> float | None:
    """A number in [0, 1]; None for an empty cell. Raises ValueError."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    number = float(value) if not isinstance(value, bool) else -1.0
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"{value!r} is no probability")
    return number


def text_of(value: Any) -> str | None:
    """A text with its printed escapes undone; None for an empty one. Raises ValueError for a list."""
    if value is None:
        return None
    if isinstance(value, list | dict | bool):
        raise ValueError(f"is no text but {type(value).__name__}")
    return unescaped(str(value)).strip() or None


def unescaped(text: str) -> str:
    """`Halc\\u00f3n` and `\\"Troy\\"` as they were before they were printed twice."""
    if "\\" not in text:
        return text
    text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), text)
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # joins pairs of halves
    return re.sub(r"\\([\"'/])", r"\1", text)


def texts_of(value: Any) -> tuple[str, ...]:
    """Gold answers: a list, a printed list, a JSON list, or one text. Raises ValueError."""
    if value is None:
        return ()
    if isinstance(value, str) and value.strip()[:1] == "[":
        value = _printed(value)
    if isinstance(value, list | tuple):
        if not all(isinstance(v, str | int | float) and not isinstance(v, bool) for v in value):
            raise ValueError("a gold answer is no text")
        return tuple(dict.fromkeys(t for v in value if (t := text_of(v))))
    one = text_of(value)
    return () if one is None else (one,)


def spans_of(cell: str) -> tuple[str, ...]:
    """The spans of a printed `[{'spans': array(['x'], dtype=object)}]`. Raises ValueError."""
    value = _printed(cell)
    if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
        raise ValueError("no list of answers")
    return texts_of([span for v in value for span in v.get("spans", ())])


def _printed(cell: str) -> Sequence[Any]:
    """A Python list or a JSON list out of its printed form; numpy's `array(...)` is a tuple."""
    try:
        value = json.loads(cell)
    except ValueError:
        try:
            value = ast.literal_eval(_ARRAY.sub(lambda m: "(" if m[0] == "array(" else ")", cell))
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError) as e:
            raise ValueError("is no printed list") from e
    if not isinstance(value, list):
        raise ValueError("is no list")
    return value
