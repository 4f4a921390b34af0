"""Folds the dated observations into a history of answers, each with the interval in which it held.

Law: the rows are a function of the questions and of the set of observations:
neither their order nor a line seen twice changes a byte, and no clock is read.
`ask.refresh` adds observations; this stage never asks.

A question without any answer has one row with none, so that every question of
the filter is here. An evergreen question with more than one answer is marked
for review, all its rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.data.config import Share
from pipelines.data.outcomes import Outcome
from pipelines.data.rows import Schema
from pipelines.errors import ConfigError
from pipelines.evergreen.due import Intervals, can_change, refresh_after
from pipelines.evergreen.history import NEVER_ANSWERED, Held, Seen, answer_key, contradicting, fold
from pipelines.evergreen.observations import Noted, Observation, Unusable, read
from pipelines.evergreen.schema import FILTERED, HISTORY
from pipelines.gates.evergreen import SUITE
from pipelines.step import Step

SCHEMA = Schema("evergreen.refresh", HISTORY, ("question_id", "language", "valid_from"))
GATE = SUITE
LONGEST_DAYS = 36_525  # a century

Key = tuple[str, str]  # question_id, language


@dataclass(frozen=True)
class Params:
    """facts: the table that `headrace refresh` asks, from the workspace's root.
    fast_days, slow_days: after how long an answer is due; an unknown rate counts as fast.
    audit_share: of the evergreen rows, asked each `fast_days`.
    """

    facts: str = "data/raw/facts/facts.csv"
    fast_days: int = 30
    slow_days: int = 365
    audit_share: Share = 0.01

    @property
    def every(self) -> Intervals:
        """The intervals. Raises ConfigError for impossible ones."""
        days = (self.fast_days, self.slow_days)
        if not 1 <= min(days) <= max(days) <= LONGEST_DAYS:
            what = f"fast_days and slow_days must be in [1, {LONGEST_DAYS}]"
            raise ConfigError(what, where="params.yaml: evergreen.refresh")
        return Intervals(self.fast_days, self.slow_days, self.audit_share)


def run(step: Step, params: Params) -> None:
    """Settles the observations, then folds what can be used of them, question by question."""
    every = params.every
    rows = step.read("evergreen/filter").to_dicts()
    noted = read(step.root)
    step.rows_in += len(noted)
    step.plan(r["row_id"] for r in rows)
    step.plan(record.key for record, _ in noted)
    by_key = {(r["question_id"], r["language"]): r for r in rows}
    points = _settle_observations(step, noted, by_key)
    changes: Counter[str] = Counter()
    for key, row in by_key.items():
        held = fold([*own_answer(row), *points[key]]) or [NEVER_ANSWERED]
        history = history_rows(row, held, every)
        review = history[0]["review"]
        told = "changed, to review" if review else "changed" if len(held) > 1 else ""
        note = "no answer yet" if held == [NEVER_ANSWERED] else told
        changes[note or "one answer"] += 1
        step.accept(row["row_id"], *history, note=note)
    step.metrics = {
        "questions": dict(sorted(changes.items())),
        "observations": {"read": len(noted), "used": sum(map(len, points.values()))},
    }


def own_answer(row: Mapping[str, Any]) -> list[Seen]:
    """The answer that came with the question, as the first point of its history."""
    return [] if row["answer"] is None else [Seen(row["answer"], row["as_of"])]


def usable_points(
    rows: Mapping[Key, Mapping[str, Any]], found: Sequence[tuple[str, Observation]]
) -> tuple[dict[Key, list[Seen]], dict[str, str]]:
    """Points by question, and why the others are none.

    `found` are observations with a key that names each; returned are the points
    (each answer of a day once) and key -> reason: unknown_question |
    contradiction | again (it says what another said).
    """
    by_key: dict[Key, list[tuple[str, Seen]]] = defaultdict(list)
    why: dict[str, str] = {}
    for name, o in sorted(found, key=lambda f: f[0]):
        if (o.question_id, o.language) in rows:
            by_key[o.question_id, o.language].append((name, Seen(o.answer, o.as_of, name)))
        else:
            why[name] = "unknown_question"
    points: dict[Key, list[Seen]] = defaultdict(list)
    for key, told in by_key.items():
        odd = contradicting([*own_answer(rows[key]), *(p for _, p in told)])
        known: set[tuple[object, str]] = set()
        for name, point in told:
            which = (point.day, answer_key(point.answer))
            if point.day in odd:
                why[name] = "contradiction"
            elif which in known:
                why[name] = "again"
            else:
                known.add(which)
                points[key].append(point)
    return points, why


def history_rows(row: Mapping[str, Any], held: Sequence[Held], every: Intervals) -> list[dict[str, Any]]:
    """The rows of one question, a version an interval."""
    mutable = can_change(row["label"], row["label_origin"], row["part"])
    review = not mutable and len(held) > 1
    own = None if row["answer"] is None else answer_key(row["answer"])
    kept = {c: row[c] for c in FILTERED if c not in ("answer", "aliases", "as_of")}
    return [
        SCHEMA.row(
            **kept,
            can_change=mutable,
            answer=h.answer,
            aliases=row["aliases"] if h.answer is not None and answer_key(h.answer) == own else [],
            version=version,
            valid_from=h.valid_from,
            valid_to=h.valid_to,
            as_of=h.last_seen,
            refresh_after=(
                refresh_after(mutable, row["change_rate"], h.last_seen, every) if h.valid_to is None else None
            ),
            seen=h.days,
            review=review,
            evidence=h.evidence,
            parents=[row["row_id"]],
        )
        for version, h in enumerate(held)
    ]


def _settle_observations(
    step: Step, noted: Sequence[Noted], rows: Mapping[Key, Mapping[str, Any]]
) -> dict[Key, list[Seen]]:
    """Ends each line of the observation files; returns the points to fold, by question."""
    good = [(record.key, o) for record, o in noted if isinstance(o, Observation)]
    points, why = usable_points(rows, good)
    for record, told in noted:
        if isinstance(told, Unusable):
            place = record.place(told.column)
            step.reject(record.key, told.reason, detail=told.detail, place=place, raw=record.raw)
            continue
        reason = why.get(record.key)
        if reason in (None, "again"):
            step.accept(record.key, note="observed" if reason is None else "observed again")
            continue
        row = rows.get((told.question_id, told.language))
        step.settle(
            record.key,
            Outcome.REJECTED,
            reason,
            place=record.place("answer" if row else "question_id"),
            raw=record.raw,
            parents=[row["row_id"]] if row else [],
        )
    return points
