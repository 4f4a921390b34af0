"""Folds the dated observations into a history of answers, each with the interval in which it held.

Law: the rows are a function of the questions, of the set of observations and of what people decided:
neither their order nor a line seen twice changes a byte, and no clock is read. `ask.refresh` adds
observations; this stage never asks.

A question without any answer has one row with none, so that every question of the filter is here. An
evergreen question with more than one answer goes to review, all its rows marked, unless a person has
called it evergreen since. The answer that a person gives outranks what was observed on that day.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Literal

from pipelines.data.config import Share
from pipelines.data.outcomes import Outcome
from pipelines.data.rows import Schema
from pipelines.errors import ConfigError
from pipelines.evergreen.making.made import MODEL, TEMPLATE
from pipelines.evergreen.refreshing.due import Intervals, can_change, refresh_after
from pipelines.evergreen.refreshing.history import NEVER_ANSWERED, Held, Seen, fold, key_with
from pipelines.evergreen.refreshing.observations import Noted, Observation, Unusable, is_of_an_act, read
from pipelines.evergreen.refreshing.points import Key, usable_points
from pipelines.evergreen.reviewing import review
from pipelines.evergreen.schema import EVERGREEN, FILTERED, HISTORY, MUTABLE
from pipelines.gates.evergreen import SUITE
from pipelines.step import Step

SCHEMA = Schema("evergreen.refresh", HISTORY, ("question_id", "language", "valid_from"))
GATE = SUITE
LONGEST_DAYS = 36_525  # a century


@dataclass(frozen=True)
class AskedModel:
    """An OpenAI-compatible model as a source of answers.

    tools, extra: of each request, as the server has them: its own search among them.
    search: "module:function", a search tool that runs here, called at most `searches` times a question.
    constrained: decode under a JSON schema; false for a server that refuses one (or `llm.constrained`).
    """

    backend: str = "openai"
    model: str = ""
    max_tokens: int = 200
    temperature: float = 0.0
    constrained: bool = True
    tools: tuple[dict[str, Any], ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)
    search: str = ""
    searches: int = 2


@dataclass(frozen=True)
class Params:
    """source: what `headrace refresh` asks. facts: a table, from the workspace's root; callable:
    "module:function", called with question, language and day; model: see `AskedModel`.
    fast_days, slow_days: after how long an answer is due; an unknown rate counts as fast.
    audit_share: of the evergreen rows, asked each `fast_days`.
    retry_days: after how long a question without an answer is asked again.
    made: ask for questions that templates and models made, too, which are there to train on.
    limit_s: seconds that one call of a callable or of a search tool may take; 0 for any.
    allow_failed: share of the questions asked that may fail without the act being called a failure.
    """

    source: Literal["facts", "callable", "model"] = "facts"
    facts: str = "data/raw/facts/facts.csv"
    callable: str = ""
    model: AskedModel = field(default_factory=AskedModel)
    fast_days: int = 30
    slow_days: int = 365
    audit_share: Share = 0.01
    retry_days: int = 7
    made: bool = False
    limit_s: float = 60.0
    allow_failed: Share = 0.0

    def __post_init__(self) -> None:
        _ = self.every  # refused before anything is asked

    @property
    def every(self) -> Intervals:
        """The intervals. Raises ConfigError for impossible ones."""
        days = (self.fast_days, self.slow_days)
        if not 1 <= min(days) <= max(days) <= LONGEST_DAYS:
            what = f"fast_days and slow_days must be in [1, {LONGEST_DAYS}]"
            raise ConfigError(what, where="params.yaml: evergreen.refresh")
        return Intervals(self.fast_days, self.slow_days, self.audit_share, self.retry_days)


def run(step: Step, params: Params) -> None:
    """Settles the observations, then folds what can be used of them, question by question."""
    every = params.every
    rows = step.read("evergreen/filter").to_dicts()
    noted = read(step.root)
    decided = decisions_on(rows, review.decisions(step.root))
    step.rows_in += len(noted)
    step.plan(r["row_id"] for r in rows)
    step.plan(record.key for record, _ in noted)
    by_key = {(r["question_id"], r["language"]): r for r in rows}
    points, used = _settle_observations(step, noted, by_key, decided)
    notes: Counter[str] = Counter()
    cases = []
    for key, row in by_key.items():
        held = fold(points[key], key_with(row["answer"], row["aliases"])) or [NEVER_ANSWERED]
        history = history_rows(row, held, every, decided.get(key))
        note = _note(history)
        notes[note or "one answer"] += 1
        step.accept(row["row_id"], *history, note=note)
        if history[0]["review"]:
            cases.append(case_of(row, held))
    review.write_cases(step.out(review.OUT), cases)
    acts = [o for r, o in noted if isinstance(o, Observation) and is_of_an_act(r, o)]
    step.metrics = {
        "questions": dict(sorted(notes.items())),
        "observations": {"read": len(noted), "used": used},
        "requests": requests({k: r for k, r in by_key.items() if asked_of(r, params)}, acts, decided),
    }


def asked_of(row: Mapping[str, Any], params: Params) -> bool:
    """Whether anybody is ever asked for the row's answer."""
    return params.made or row["source"] not in (TEMPLATE, MODEL)


def decisions_on(rows: Sequence[Mapping[str, Any]], told: review.Decisions) -> dict[Key, review.Decision]:
    """What people decided of each row: on its own wording, else on another of the question's."""
    wordings: dict[str, list[review.Wording]] = {}
    for r in rows:
        wordings.setdefault(r["question_id"], []).append((r["language"], r["question_key"]))
    found = {}
    for r in rows:
        own = told.holding.get((r["language"], r["question_key"]))
        others = told.on(wordings[r["question_id"]]) if own is None else []
        if own is not None:
            found[r["question_id"], r["language"]] = own
        elif len(others) == 1:  # its answer is in another language
            found[r["question_id"], r["language"]] = replace(others[0], answer=None)
    return found


def history_rows(
    row: Mapping[str, Any],
    held: Sequence[Held],
    every: Intervals,
    decision: review.Decision | None = None,
) -> list[dict[str, Any]]:
    """The rows of one question, a version an interval."""
    mutable = changes(row, decision)
    cleared = cleared_on(held, decision)
    key = key_with(row["answer"], row["aliases"])
    own = None if row["answer"] is None else key(row["answer"])
    kept = {c: row[c] for c in FILTERED if c not in ("answer", "aliases", "as_of")}
    return [
        SCHEMA.row(
            **kept,
            can_change=mutable,
            answer=h.answer,
            aliases=row["aliases"] if h.answer is not None and key(h.answer) == own else [],
            version=version,
            valid_from=h.valid_from,
            valid_to=h.valid_to,
            as_of=h.last_seen,
            refresh_after=(
                refresh_after(mutable, row["change_rate"], h.last_seen, every) if h.valid_to is None else None
            ),
            seen=h.days,
            review=not mutable and len(held) > 1 and cleared is None,
            cleared=None if mutable else cleared,
            evidence=h.evidence,
            parents=[row["row_id"]],
            responses=h.responses,
        )
        for version, h in enumerate(held)
    ]


def changes(row: Mapping[str, Any], decision: review.Decision | None) -> bool:
    """Whether a row can change: a person's word outranks its label, and that the model's part."""
    if decision is not None and decision.verdict in (EVERGREEN, MUTABLE):
        return decision.verdict == MUTABLE
    return can_change(row["label"], row["label_origin"], row["part"])


def cleared_on(held: Sequence[Held], decision: review.Decision | None) -> date | None:
    """The day on which a person called a question evergreen though its answer had been seen to change."""
    if decision is None or decision.verdict != EVERGREEN or len(held) < 2:
        return None
    last = held[-1].valid_from
    return decision.when if last is not None and last <= decision.when else None


def case_of(row: Mapping[str, Any], held: Sequence[Held]) -> dict[str, Any]:
    """An evergreen question that was seen to change, for a person to decide."""
    told = [{"answer": h.answer, "valid_from": h.valid_from, "evidence": h.evidence} for h in held]
    before, now = held[-2:]
    why = f"called evergreen, and answered {before.answer!r}, then {now.answer!r} on {now.valid_from}"
    return review.case(
        "evergreen_changed",
        question_id=row["question_id"],
        question=row["question"],
        language=row["language"],
        label=row["label"],
        change_rate=row["change_rate"],
        why=why,
        answers=told,
    )


def requests(
    rows: Mapping[Key, Mapping[str, Any]],
    told: Sequence[Observation],
    decided: Mapping[Key, review.Decision],
) -> dict[str, Any]:
    """What was asked on the days of the observations, against asking for every row on each of them.

    `told`: of acts of `headrace refresh`; the days that a person notes are no days on which anybody asks.
    """
    asked = {(o.as_of, o.question_id, o.language) for o in told if (o.question_id, o.language) in rows}
    days = {day for day, *_ in asked}
    audited = sum(not changes(rows[q, c], decided.get((q, c))) for _, q, c in asked)
    everything = len(days) * len(rows)
    saved = everything - len(asked)
    return {
        "days": len(days),
        "asked": len(asked),
        "of_evergreen": audited,
        "everything": everything,
        "saved": saved,
        "saved_share": round(saved / everything, 4) if everything else None,
    }


def _note(history: Sequence[Mapping[str, Any]]) -> str:
    first = history[0]
    if first["answer"] is None:
        return "no answer yet"
    if len(history) == 1:
        return ""
    return "changed, to review" if first["review"] else "changed"


def _settle_observations(
    step: Step,
    noted: Sequence[Noted],
    rows: Mapping[Key, Mapping[str, Any]],
    decided: Mapping[Key, review.Decision],
) -> tuple[Mapping[Key, list[Seen]], int]:
    """Ends each line of the observation files; the points to fold, by question, and how many were seen."""
    good = [(record.key, o) for record, o in noted if isinstance(o, Observation)]
    points, why = usable_points(rows, good, decided)
    for record, told in noted:
        if isinstance(told, Unusable):
            place = record.place(told.column)
            step.reject(record.key, told.reason, detail=told.detail, place=place, raw=record.raw)
            continue
        reason = why.get(record.key)
        if reason in NOTES:
            step.accept(record.key, note=NOTES[reason])
            continue
        row = rows.get((told.question_id, told.language))
        step.settle(
            record.key,
            Outcome.REJECTED,
            str(reason),
            place=record.place("answer" if row else "question_id"),
            raw=record.raw,
            parents=[row["row_id"]] if row else [],
        )
    return points, sum(name not in why for name, _ in good)


NOTES: Mapping[str | None, str] = {
    None: "observed",
    "again": "observed again",
    "no_answer": "asked, no answer",
    "overruled": "overruled by a person",
}
