"""The act behind `headrace refresh`: asks for the answers that are due and notes what was said.

Law: one call adds at most one file of observations, whole or not at all; asked
again for the same day it adds none. Nothing else is written, and the day is
given, never read from a clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from pipelines.data.config import load, read_params
from pipelines.data.tables import read_parquet
from pipelines.evergreen.due import State, can_change, due
from pipelines.evergreen.facts import read_facts
from pipelines.evergreen.history import Held, Seen, answer_key, fold
from pipelines.evergreen.observations import FOLDER, Observation, read, write
from pipelines.evergreen.refresh import Params, own_answer, usable_points

Source = Callable[[str, str, date], str | None]  # question, language, day -> answer, None if it has none


@dataclass(frozen=True)
class Report:
    """What one refresh did. rows = due + saved; due = answered + unanswered."""

    as_of: date
    rows: int
    due: int
    audited: int  # evergreen rows among those due
    first: int  # answers to rows that had none
    confirmed: int
    changed: int
    review: int  # evergreen rows among those changed
    file: str | None  # of the observations added, from the workspace's root
    bad_facts: tuple[str, ...] = ()  # place and reason of each line of the facts that was passed over

    @property
    def answered(self) -> int:
        return self.first + self.confirmed + self.changed

    @property
    def saved(self) -> int:
        """Requests that the labels saved against asking for every row."""
        return self.rows - self.due

    def __str__(self) -> str:
        bad = "".join(f"\n  passed over: {b}" for b in self.bad_facts[:10])
        more = f"\n  and {len(self.bad_facts) - 10} more" if len(self.bad_facts) > 10 else ""
        nothing = "no observations to add" + (
            "" if self.answered else ": the facts file answers none of them"
        )
        added = f"added {self.file}; `headrace run` folds it in" if self.file else nothing
        return (
            f"as of {self.as_of}: {self.due} of {self.rows} rows are due ({self.audited} in the audit of"
            f" evergreen ones), {self.saved} requests saved\n"
            f"  {self.answered} answered: {self.first} for the first time, {self.confirmed} confirmed,"
            f" {self.changed} changed ({self.review} of them evergreen, to review);"
            f" {self.due - self.answered} without an answer\n"
            f"  {added}{bad}{more}"
        )


def refresh(root: Path, as_of: date, source: Source | None = None) -> Report:
    """Asks `source` (by default the facts table of params.yaml) for what is due on `as_of`.

    Call it under the lock of the workspace. Raises HeadraceError; then nothing is added.
    """
    params = read_params(root / "params.yaml")
    values = load(Params, params.get("evergreen", {}).get("refresh"), "evergreen.refresh")
    rows = read_parquet(root / "data/evergreen/filter/rows.parquet", "evergreen.filter").to_dicts()
    known = [(record.key, o) for record, o in read(root) if isinstance(o, Observation)]
    bad: tuple[str, ...] = ()
    origin = "given"
    if source is None:
        origin = values.facts
        facts, bad = read_facts(root / values.facts, root)
        source = facts.answer
    found, report = look(rows, known, as_of, values, params.get("seed", 0), source, origin)
    for torn in (root / FOLDER).glob(".*.tmp"):  # of a call that was killed
        torn.unlink(missing_ok=True)
    path = write(root, as_of, found)
    file = None if path is None else path.relative_to(root).as_posix()
    return Report(**{**vars(report), "file": file, "bad_facts": bad})


def look(
    rows: Sequence[Mapping[str, Any]],
    known: Sequence[tuple[str, Observation]],
    as_of: date,
    params: Params,
    seed: int,
    source: Source,
    origin: str = "facts",
) -> tuple[list[Observation], Report]:
    """The observations of one day, without IO: rows of the filter, what is known, and who answers.

    `known` holds each earlier observation with a key that names it.
    """
    by_key = {(r["question_id"], r["language"]): r for r in rows}
    points, _ = usable_points(by_key, known)
    now = {key: _held(row, points[key]) for key, row in by_key.items()}
    keys = {row["row_id"]: key for key, row in by_key.items()}
    asked = due((_state(row, now[key]) for key, row in by_key.items()), as_of, params.every, seed)
    found: list[Observation] = []
    counts: Counter[str] = Counter()
    for one in asked:
        key = keys[one.key]
        question, language, held = by_key[key]["question"], key[1], now[key]
        answer = source(question, language, as_of)
        if answer is None:
            continue
        found.append(Observation(*key, answer, as_of, origin, question))
        if held is None or held.answer is None:
            counts["first"] += 1
        elif answer_key(held.answer) == answer_key(answer):
            counts["confirmed"] += 1
        else:
            counts["changed"] += 1
            counts["review"] += one.audit
    report = Report(
        as_of,
        rows=len(rows),
        due=len(asked),
        audited=sum(one.audit for one in asked),
        first=counts["first"],
        confirmed=counts["confirmed"],
        changed=counts["changed"],
        review=counts["review"],
        file=None,
    )
    return found, report


def _held(row: Mapping[str, Any], points: Sequence[Seen]) -> Held | None:
    """The answer that holds now, None when the row has none."""
    history = fold([*own_answer(row), *points])
    return history[-1] if history else None


def _state(row: Mapping[str, Any], held: Held | None) -> State:
    mutable = can_change(row["label"], row["label_origin"], row["part"])
    return State(row["row_id"], mutable, row["change_rate"], None if held is None else held.last_seen)
