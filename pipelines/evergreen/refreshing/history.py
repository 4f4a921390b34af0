"""Dated answers folded into the intervals in which each held (a type-2 history).

Law: the intervals of a question follow one another without overlap and without
gap, the last one is open, and neighbors differ in their answer. The fold takes
points in any order, and a point seen twice changes nothing.

Whether two answers are the same is told by a key: `answer_key`, or `key_with` the
known aliases of a row's own answer ("Charles III" is no change from "King Charles").
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date

from pipelines.errors import StageError

AnswerKey = Callable[[str], str]  # equal for answers that say the same


@dataclass(frozen=True)
class Seen:
    """An answer found on a day; `day` is None for an answer whose day nobody noted (it comes first)."""

    answer: str
    day: date | None
    evidence: str | None = None  # file and line of the observation, None for the source's own answer
    response: str = ""  # id of the model answer that it was read from


@dataclass(frozen=True)
class Held:
    """An answer and the time it held: from `valid_from` up to, not including, `valid_to`."""

    answer: str | None
    valid_from: date | None  # None: since before the first day known
    valid_to: date | None  # None: still
    last_seen: date | None  # the last day on which it was found; None if never on a known day
    days: int  # different days (or the unknown one) on which it was found
    evidence: str | None  # of the point that opened the interval
    responses: tuple[str, ...] = ()  # of all points in it


NEVER_ANSWERED = Held(None, None, None, None, 0, None)


def answer_key(answer: str) -> str:
    """Two answers are the same when NFKC, case, runs of blanks and a final full stop aside they are equal.

    Other punctuation and symbols tell answers apart: "C" and "C++", "5" and "-5".
    """
    text = unicodedata.normalize("NFKC", answer).casefold()
    return " ".join(text.split()).rstrip(".") or answer


def key_with(own: str | None, aliases: Iterable[str]) -> AnswerKey:
    """`answer_key`, by which the aliases of a row's own answer say what it says."""
    if own is None:
        return answer_key
    same = {answer_key(a): answer_key(own) for a in aliases}
    return lambda answer: same.get(told := answer_key(answer), told)


def fold(points: Iterable[Seen], key: AnswerKey = answer_key) -> list[Held]:
    """The history of one question, oldest first; empty without points.

    Raises StageError for two answers on one day: `contradicting` finds these first.
    """
    by_day: dict[date | None, Seen] = {}
    for point in points:
        other = by_day.setdefault(point.day, point)
        if key(other.answer) != key(point.answer):
            raise StageError(f"two answers on {point.day}: {other.answer!r} and {point.answer!r}")
        by_day[point.day] = min(other, point, key=lambda p: (p.evidence or "", p.answer))
    ordered = sorted(by_day.values(), key=lambda p: (p.day is not None, p.day or date.min))
    runs: list[list[Seen]] = []
    for point in ordered:
        if runs and key(runs[-1][0].answer) == key(point.answer):
            runs[-1].append(point)
        else:
            runs.append([point])
    ends = [*(run[0].day for run in runs[1:]), None][: len(runs)]
    return [
        Held(run[0].answer, run[0].day, end, run[-1].day, len(run), run[0].evidence, _responses(run))
        for run, end in zip(runs, ends, strict=True)
    ]


def _responses(run: Iterable[Seen]) -> tuple[str, ...]:
    return tuple(sorted({p.response for p in run if p.response}))


def contradicting(points: Iterable[Seen], key: AnswerKey = answer_key) -> set[date | None]:
    """Days on which different answers were found: what was found on them cannot be used."""
    answers: dict[date | None, set[str]] = {}
    for point in points:
        answers.setdefault(point.day, set()).add(key(point.answer))
    return {day for day, found in answers.items() if len(found) > 1}
