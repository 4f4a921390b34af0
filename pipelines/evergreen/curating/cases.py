"""The cases of curation that a person must decide.

Law: a case names a wording whose decision settles it: of two questions in conflict one that both have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipelines.evergreen.curating.curation import Question, Verdicts
from pipelines.evergreen.reviewing.decided import Decided
from pipelines.evergreen.reviewing.review import case
from pipelines.evergreen.schema import TEST

Row = Mapping[str, Any]
ById = Mapping[str, Sequence[Row]]


def cases_of(
    verdicts: Verdicts, decided: Decided, questions: Mapping[str, Question], by_id: ById
) -> Iterator[dict[str, Any]]:
    """label_conflict, near_conflict and decisions_differ; `by_id` holds each question's rows."""
    for one, other in sorted(verdicts.conflicts.items()):
        shared = questions[one].keys & questions[other].keys
        spoken = ", ".join(sorted(key.split(" ", 1)[0] for key in shared))
        yield _case("label_conflict", by_id[one], shared, f"equals {_told(by_id[other])} in {spoken}")
    for kin in verdicts.doubtful:
        a, b = sorted((kin.a, kin.b), key=lambda i: (questions[i].split == TEST, i))
        seen_in = kin.languages.split("~")
        keys = frozenset(k for k in questions[a].keys if k.split(" ", 1)[0] in seen_in)
        how = f"similarity {kin.similarity:.2f} in {kin.languages}"
        yield _case("near_conflict", by_id[a], keys, f"nearly equals {_told(by_id[b])}, {how}")
    for question, told in sorted(decided.differing.items()):
        said = "; ".join(f"{d.verdict} ({d.change_rate}) by {d.who} on {d.when}" for d in told)
        keys = frozenset(f"{r['language']} {r['question_key']}" for r in by_id[question])
        why = f"its wordings were decided differently: {said}"
        yield _case("decisions_differ", by_id[question], keys, why)


def _case(kind: str, rows: Sequence[Row], keys: frozenset[str], why: str) -> dict[str, Any]:
    """A case on the wording, of those with one of `keys`, that is read first, and what is."""
    row = _most_read([r for r in rows if f"{r['language']} {r['question_key']}" in keys])
    columns = ("question_id", "question", "language", "label", "change_rate")
    beside = _most_read(rows)["question"]
    more = {"split": row["split"], "source": row["source"], "known_as": beside}
    return case(kind, **{c: row[c] for c in columns}, why=why, **more)


def _told(rows: Sequence[Row]) -> str:
    row = _most_read(rows)
    return f"{row['question']!r} ({row['split']} {row['source']}, {row['label']})"


def _most_read(rows: Sequence[Row]) -> Row:
    order = ("en", "fr", "de")
    return min(rows, key=lambda r: ((*order, r["language"]).index(r["language"]), r["language"]))
