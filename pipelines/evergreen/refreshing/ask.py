"""The act behind `headrace refresh`: asks for the answers that are due and notes what was said.

Law: one call adds at most one file of observations, whole or not at all; asked again for the same day
it adds none. What was answered is durable before it is noted, so that a call that was killed, also
between asking and writing, is made good by another, which asks for the rest alone. The day is given,
never read from a clock.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from pipelines.data.config import load, read_params
from pipelines.data.tables import read_parquet
from pipelines.data.text_files import relative
from pipelines.errors import ConfigError, InputError, StageError
from pipelines.evergreen.refresh import Params, asked_of, changes, decisions_on
from pipelines.evergreen.refreshing.due import Due, State, due, waiting
from pipelines.evergreen.refreshing.facts import read_facts
from pipelines.evergreen.refreshing.history import Held, fold, key_with
from pipelines.evergreen.refreshing.journal import FOLDER as JOURNALS
from pipelines.evergreen.refreshing.journal import Journal
from pipelines.evergreen.refreshing.observations import FOLDER, Observation, read, write
from pipelines.evergreen.refreshing.points import Key, usable_points
from pipelines.evergreen.refreshing.report import Report
from pipelines.evergreen.refreshing.source import AnswerSource, Asked, FactsSource, Told
from pipelines.evergreen.refreshing.source_function import Function, FunctionSource, load_function
from pipelines.evergreen.reviewing import review
from pipelines.evergreen.schema import FILTERED

Named = tuple[str, Observation]  # with a key that names it
Said = tuple[str, str, str | None]  # question_id, language, answer


class PartlyAsked(StageError):
    """Some questions failed; what the others answered is noted. `report` says all."""

    def __init__(self, report: Report) -> None:
        what = f"{len(report.failed)} of {report.due} questions failed, first: {report.failed[0]}"
        cure = "what was answered is noted; run again for the rest"
        super().__init__(what, where=f"headrace refresh, as of {report.as_of}", cure=cure)
        self.report = report


@dataclass(frozen=True)
class Plan:
    """What is to be asked on a day, and what is known of each row."""

    as_of: date
    rows: Mapping[Key, Mapping[str, Any]]
    held: Mapping[Key, Held | None]  # the answer that holds now
    no_answer: Mapping[Key, date]  # when nothing was told, last
    ask: Sequence[Due]
    waiting: int
    made: int = 0  # rows that nobody is ever asked for

    @property
    def ahead(self) -> int:
        """Rows that were asked for after the day."""
        last = ((_seen(h), self.no_answer.get(key)) for key, h in self.held.items())
        return sum(any(day is not None and day > self.as_of for day in days) for days in last)

    @property
    def asked(self) -> list[Asked]:
        """The questions, in the order of their rows' ids."""
        by_id = {r["row_id"]: r for r in self.rows.values()}
        rows = [by_id[d.key] for d in self.ask]
        return [Asked(r["row_id"], r["question_id"], r["language"], r["question"], self.as_of) for r in rows]

    @property
    def report(self) -> Report:
        """What is known before anything is asked."""
        audited = sum(d.audit for d in self.ask)
        return Report(
            self.as_of, len(self.rows), len(self.ask), audited, self.waiting, ahead=self.ahead, made=self.made
        )


def refresh(root: Path, as_of: date, source: AnswerSource | Function | None = None) -> Report:
    """Asks `source` (by default the one that params.yaml names) for what is due on `as_of`.

    Call it under the lock of the workspace. Raises HeadraceError; then nothing is added, but by
    `PartlyAsked`.
    """
    params, values = read_params(root / "params.yaml"), _values(root)
    seed = _seed(params)
    if source is None:
        asking, bad = open_source(root, params, values)
    else:
        asking, bad = (source if isinstance(source, AnswerSource) else FunctionSource(source, "given")), ()
    plan, known = _planned(root, as_of, values, seed, free=asking.free)
    told = list(asking.ask(plan.asked))
    found, report = settle(plan, told, asking.origin, values)
    for torn in (root / FOLDER).glob(".*.tmp"):  # of a call that was killed
        with suppress(OSError):  # what forbids this forbids the file that is to be written, too
            torn.unlink()
    path = write(root, as_of, [o for o in found if _said(o) not in known])
    asking.noted()
    file = None if path is None else path.relative_to(root).as_posix()
    report = replace(report, file=file, bad_facts=bad, requests=asking.requests)
    if len(report.failed) > values.allow_failed * report.due:
        raise PartlyAsked(report)
    return report


def foretell(root: Path, as_of: date) -> tuple[Report, list[Asked]]:
    """What `refresh` would ask for, without asking. Raises HeadraceError."""
    values = _values(root)
    seed = _seed(read_params(root / "params.yaml"))
    plan, _ = _planned(root, as_of, values, seed, free=values.source == "facts")
    return plan.report, plan.asked


def open_source(
    root: Path, params: Mapping[str, Any], values: Params
) -> tuple[AnswerSource, tuple[str, ...]]:
    """The source that params.yaml names, and what of it cannot be used. Raises ConfigError, InputError."""
    section = "evergreen.refresh"
    if values.source == "facts":
        facts, bad = read_facts(root / values.facts, root)
        return FactsSource(facts, values.facts), bad
    if values.source == "callable":
        function = load_function(values.callable, root, f"{section}.callable", 3, values.limit_s)
        journal = Journal(root / JOURNALS / "answers.jsonl")
        return FunctionSource(function, values.callable, journal, values.limit_s), ()
    from pipelines.evergreen.refreshing.source_model import ModelSource

    llm = params.get("llm") or {}
    if not isinstance(llm, Mapping):
        raise ConfigError(f"must be a mapping, is {llm!r}", where="params.yaml: llm")
    if not (values.model.model or llm.get("model") or os.environ.get("HEADRACE_LLM_MODEL")):
        raise ConfigError("no model is named", where=f"params.yaml: {section}.model.model")
    search = values.model.search
    found = load_function(search, root, f"{section}.model.search", 2, values.limit_s) if search else None
    return ModelSource(root, values.model, llm, _seed(params), found, values.limit_s), ()


def plan_of(
    rows: Sequence[Mapping[str, Any]],
    known: Sequence[Named],
    as_of: date,
    params: Params,
    seed: int,
    *,
    free: bool = False,
    decided: Mapping[Key, review.Decision] | None = None,
) -> Plan:
    """What is to be asked, without IO: rows of the filter, what was observed, what people decided.

    `free`: the source costs nothing, so rows that had no answer are asked at every call.
    """
    decided = decided or {}
    by_key = {(r["question_id"], r["language"]): r for r in rows if asked_of(r, params)}
    points, _ = usable_points(by_key, known, decided)
    held: dict[Key, Held | None] = {}
    for key, row in by_key.items():
        history = fold(points[key], key_with(row["answer"], row["aliases"]))
        held[key] = history[-1] if history else None
    nothing: dict[Key, date] = {}
    for _, o in known:
        if o.answer is None:
            key = (o.question_id, o.language)
            nothing[key] = max(o.as_of, nothing.get(key, o.as_of))
    states = [
        State(r["row_id"], changes(r, decided.get(k)), r["change_rate"], _seen(held[k]), nothing.get(k))
        for k, r in by_key.items()
    ]
    found = due(states, as_of, params.every, seed)
    ask = [d for d in found if free or not d.waits]
    return Plan(as_of, by_key, held, nothing, ask, len(found) - len(ask), len(rows) - len(by_key))


def settle(plan: Plan, told: Sequence[Told], origin: str, params: Params) -> tuple[list[Observation], Report]:
    """The observations of what was told, and the report, without IO.

    That nothing was told is noted once in a wait of `retry_days`. Raises StageError unless each question
    that was asked has one end.
    """
    if sorted(t.asked.row_id for t in told) != [d.key for d in plan.ask]:
        raise StageError(f"{len(plan.ask)} questions were asked, and {len(told)} ends told", where=origin)
    audited = {d.key for d in plan.ask if d.audit}
    found: list[Observation] = []
    counts: Counter[str] = Counter()
    failed = []
    for t in sorted(told, key=lambda t: t.asked.row_id):
        a, key = t.asked, (t.asked.question_id, t.asked.language)
        if t.failed:
            failed.append(f"{t.reason} {t.detail}".strip() + f" ({a.language}: {a.question})")
            continue
        noted = Observation(*key, t.answer, a.day, origin, a.question, t.response, t.reason)
        if t.answer is None:
            if not waiting(plan.no_answer.get(key), a.day, params.every):
                found.append(noted)
            continue
        found.append(noted)
        what = _compared(plan.rows[key], plan.held[key], t.answer)
        counts[what] += 1
        counts["review"] += what == "changed" and a.row_id in audited
    report = replace(
        plan.report,
        failed=tuple(failed),
        origin=origin,
        first=counts["first"],
        confirmed=counts["confirmed"],
        changed=counts["changed"],
        review=counts["review"],
    )
    return found, report


def look(
    rows: Sequence[Mapping[str, Any]],
    known: Sequence[Named],
    as_of: date,
    params: Params,
    seed: int,
    source: Function,
) -> tuple[list[Observation], Report]:
    """One day without IO: the observations that a callable adds to what is known, and the report."""
    plan = plan_of(rows, known, as_of, params, seed)
    asked = FunctionSource(source, "given")
    return settle(plan, list(asked.ask(plan.asked)), "given", params)


def _planned(root: Path, as_of: date, values: Params, seed: int, *, free: bool) -> tuple[Plan, set[Said]]:
    """The plan of a workspace, and the observations of the day that are noted already."""
    rows = _filtered(root)
    known = [(record.key, o) for record, o in read(root) if isinstance(o, Observation)]
    decided = decisions_on(rows, review.decisions(root))
    plan = plan_of(rows, known, as_of, values, seed, free=free, decided=decided)
    return plan, {_said(o) for _, o in known if o.as_of == as_of}


def _filtered(root: Path) -> list[dict[str, Any]]:
    """The rows of the filter. Raises StageError, InputError; also where an older version made them."""
    path = root / "data/evergreen/filter/rows.parquet"
    rows = read_parquet(path, "evergreen.filter")
    missing = [c for c in ("row_id", *FILTERED) if c not in rows.columns]
    if missing:
        what, where = f"has no column {missing[0]!r}: another version made it", relative(path, root)
        raise InputError(what, where=where, cure="headrace run evergreen.filter")
    return rows.to_dicts()


def _said(o: Observation) -> Said:
    """What an observation of a day says, whoever said it."""
    return o.question_id, o.language, o.answer


def _values(root: Path) -> Params:
    engine = read_params(root / "params.yaml").get("evergreen") or {}
    if not isinstance(engine, Mapping):
        raise ConfigError(f"must be a mapping, is {engine!r}", where="params.yaml: evergreen")
    return load(Params, engine.get("refresh"), "evergreen.refresh")


def _seed(params: Mapping[str, Any]) -> int:
    """The run's seed. Raises ConfigError for what is none: it would draw another audit, silently."""
    seed = params.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ConfigError(f"must be int, is {seed!r}", where="params.yaml: seed")
    return seed


def _compared(row: Mapping[str, Any], held: Held | None, answer: str) -> str:
    """first | confirmed | changed."""
    if held is None or held.answer is None:
        return "first"
    key = key_with(row["answer"], row["aliases"])
    return "confirmed" if key(held.answer) == key(answer) else "changed"


def _seen(held: Held | None) -> date | None:
    return None if held is None else held.last_seen
