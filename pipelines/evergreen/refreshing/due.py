"""Which rows are due for a new answer on a day.

Law: the choice is a function of the rows, the day, the seed and the parameters.
A mutable row is due when its interval is over, by its change rate; evergreen
rows are asked only in a small drawn sample, once a period. A row that was asked
and had no answer waits some days before it is asked again. Order and number of
other rows change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta

from pipelines.data.rows import digest
from pipelines.evergreen.schema import MUTABLE, SLOW, TRUSTED_ORIGINS


@dataclass(frozen=True)
class Intervals:
    """Days after which an answer is asked for again, and the share of evergreen rows audited a period.

    A period of the audit is `fast` days long; `retry` is the wait of a row that had no answer. No value
    is the paper's.
    """

    fast: int
    slow: int
    audit_share: float
    retry: int = 7


@dataclass(frozen=True)
class State:
    """What is known of a row: whether it can change, how fast, when its answer was last seen to hold.

    `no_answer`: the last day on which it was asked and nothing was told.
    """

    key: str  # of the row
    mutable: bool
    change_rate: str
    last_seen: date | None
    no_answer: date | None = None


@dataclass(frozen=True)
class Due:
    """A row to ask for; `audit` if it is an evergreen one that was drawn.

    `waits`: it had no answer a short while ago; only a source that costs nothing is asked for it.
    """

    key: str
    audit: bool
    waits: bool = False


def can_change(label: str, label_origin: str, part: str) -> bool:
    """A label that people gave outranks the part that the model chose."""
    return (label if label_origin in TRUSTED_ORIGINS else part) == MUTABLE


def refresh_after(mutable: bool, change_rate: str, last_seen: date | None, every: Intervals) -> date | None:
    """The day on which an answer falls due; None for evergreen rows, and when no day is known.

    An unknown rate counts as fast.
    """
    if not mutable or last_seen is None:
        return None
    days = every.slow if change_rate == SLOW else every.fast
    return last_seen + timedelta(days=min(days, (date.max - last_seen).days))  # the calendar has an end


def due(rows: Iterable[State], as_of: date, every: Intervals, seed: int) -> list[Due]:
    """The rows due on `as_of`, sorted by key. A mutable row never seen to hold is due at once."""
    found = []
    for row in rows:
        if row.mutable:
            day = refresh_after(True, row.change_rate, row.last_seen, every)
            if day is None or day <= as_of:
                found.append(Due(row.key, audit=False, waits=waiting(row.no_answer, as_of, every)))
        elif _drawn(row, as_of, every, seed):
            asked = row.no_answer is not None and _period(row.no_answer, every) >= _period(as_of, every)
            found.append(Due(row.key, audit=True, waits=asked))
    return sorted(found, key=lambda d: d.key)


def waiting(no_answer: date | None, as_of: date, every: Intervals) -> bool:
    """Whether a row that had no answer on a day is not yet asked again."""
    return no_answer is not None and (as_of - no_answer).days < every.retry


def _period(day: date, every: Intervals) -> int:
    return day.toordinal() // every.fast


def _drawn(row: State, as_of: date, every: Intervals, seed: int) -> bool:
    period = _period(as_of, every)
    if row.last_seen is not None and _period(row.last_seen, every) >= period:
        return False
    return int(digest("audit", seed, row.key, period)[:12], 16) < every.audit_share * 16**12
