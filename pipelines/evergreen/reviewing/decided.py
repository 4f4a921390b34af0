"""Lays the decisions of people over rows.

Law: a decision on one wording holds for the whole question, and outranks the label that came with it. Two
decisions of one day that say different things of one question hold neither: the question waits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.evergreen.reviewing.review import DROP, Decision, Decisions, Wording
from pipelines.evergreen.schema import MUTABLE, UNKNOWN

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Decided:
    """By question id: who dropped it, what holds for it, and what was said that differs."""

    dropped: Mapping[str, Decision]
    holding: Mapping[str, Decision]
    differing: Mapping[str, Sequence[Decision]]


def decided_rows(rows: Sequence[Row], people: Decisions) -> tuple[list[dict[str, Any]], Decided]:
    """The rows with the labels and answers that people gave them. `rows`: QUESTION and question_key."""
    wordings: dict[str, list[Wording]] = defaultdict(list)
    for row in rows:
        wordings[row["question_id"]].append((row["language"], row["question_key"]))
    said = {question: people.on(listed) for question, listed in wordings.items()}
    one = {question: told[0] for question, told in said.items() if len(told) == 1}
    decided = Decided(
        dropped={q: d for q, d in one.items() if d.verdict == DROP},
        holding={q: d for q, d in one.items() if d.verdict != DROP},
        differing={q: told for q, told in said.items() if len(told) > 1},
    )
    return [_laid(row, decided.holding.get(row["question_id"]), people) for row in rows], decided


def _laid(row: Row, decision: Decision | None, people: Decisions) -> dict[str, Any]:
    if decision is None:
        return dict(row)
    rate = decision.change_rate
    if decision.verdict == MUTABLE and rate == UNKNOWN and row["label"] == MUTABLE:
        rate = row["change_rate"]  # a person who says no more than mutable does not deny how fast
    told: dict[str, Any] = {"label": decision.verdict, "change_rate": rate, "label_origin": "human"}
    own = people.of(row["question"], row["language"])  # an answer is in one language
    if own is not None and own.answer is not None and own.answer != row["answer"]:
        told |= {"answer": own.answer, "aliases": [], "as_of": own.when}
    return {**row, **told}
