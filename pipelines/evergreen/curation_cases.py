"""The cases of curation that a person must decide.

Law: a case names a wording whose decision settles it: of two questions in conflict one that both have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipelines.evergreen.curation import Kin, Question, Verdicts
from pipelines.evergreen.decided import Decided
from pipelines.evergreen.review import case
from pipelines.evergreen.schema import TEST

Row = Mapping[str, Any]
ById = Mapping[str, Sequence[Row]]


def cases_of(
    verdicts: Verdicts, decided: Decided, questions: Mapping[str, Question], by_id: ById
) -> Iterator[dict[str, Any]]:
    """label_conflict, near_conflict and decisions_differ; `by_id` holds each question's rows."""
    for one, other in sorted(verdicts.conflicts.items()):
        shared = questions[one].keys & questions[other].keys
        row = _in(by_id[one], shared)
        yield _case("label_conflict", row, f"equals {_told(_in(by_id[other], shared))}")
    for kin in verdicts.doubtful:
        a, b = sorted((kin.a, kin.b), key=lambda i: (questions[i].split == TEST, i))
        row, twin = (_spoken(by_id[i], kin) for i in (a, b))
        yield _case("near_conflict", row, f"nearly equals {_told(twin)}, similarity {kin.similarity:.2f}")
    for question, told in sorted(decided.differing.items()):
        said = "; ".join(f"{d.verdict} ({d.change_rate}) by {d.who} on {d.when}" for d in told)
        row = min(by_id[question], key=_english_first)
        yield _case("decisions_differ", row, f"its wordings were decided differently: {said}")


def _case(kind: str, row: Row, why: str) -> dict[str, Any]:
    columns = ("question_id", "question", "language", "label", "change_rate")
    return case(kind, **{c: row[c] for c in columns}, why=why, split=row["split"], source=row["source"])


def _told(row: Row) -> str:
    return f"{row['question']!r} ({row['split']} {row['source']}, {row['label']})"


def _in(rows: Sequence[Row], keys: frozenset[str]) -> Row:
    """The wording of a question that has one of the keys; in English if there is one."""
    return min((r for r in rows if f"{r['language']} {r['question_key']}" in keys), key=_english_first)


def _spoken(rows: Sequence[Row], kin: Kin) -> Row:
    """The wording of a question in a language in which it was seen to be kin."""
    return min((r for r in rows if r["language"] in kin.languages.split("~")), key=_english_first)


def _english_first(row: Row) -> tuple[bool, str, str]:
    return row["language"] != "en", row["language"], row["question"]
