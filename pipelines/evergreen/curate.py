"""Cleans the questions, drops those that stand twice, sets conflicting labels apart.

Law: two questions are equal when they are in any language, and what is decided
on a question holds for all its wordings. A question unrelated to the others
changes nothing for them.

Within train and within dev, one of several equal questions stays: the one with
most wordings, then the smallest id. Test questions all stay, since the whole
test split is scored. Questions equal across splits stay and are marked
(`leaks_into_test`, `leaks_into_dev`), so that a figure with and one without
decontamination can be given. Equal questions of opposite label are in conflict:
those outside test go, and two of test both go.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelines.data.duplicates import Groups, question_key
from pipelines.evergreen.schema import CURATED, DEV, TEST, TRAIN, UNKNOWN, questions
from pipelines.step import Step

SCHEMA = questions("evergreen.curate", CURATED)

_BLANKS = re.compile(r"\s+")
_INVISIBLE = re.compile("[\u200b\ufeff]")  # joiners and direction marks carry meaning and stay


@dataclass(frozen=True)
class Params:
    """No knobs."""


@dataclass(frozen=True)
class Question:
    """One question in all its wordings. `keys` holds a key for each wording that has words."""

    id: str
    split: str
    label: str
    keys: frozenset[str]


@dataclass
class Verdicts:
    """What was found of each question id; a question in none of them is kept unmarked."""

    conflicts: dict[str, str] = field(default_factory=dict)  # id -> smallest id of opposite label
    duplicates: dict[str, str] = field(default_factory=dict)  # id -> id of the question kept instead
    leaks_into_test: set[str] = field(default_factory=set)
    leaks_into_dev: set[str] = field(default_factory=set)


def run(step: Step, params: Params) -> None:
    """Reads evergreen/ingest, decides question by question, settles row by row."""
    rows = [clean(r) for r in step.read("evergreen/ingest").iter_rows(named=True)]
    step.plan(r["row_id"] for r in rows)
    verdicts = decide(gather(rows))
    by_id: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_id[row["question_id"]].append(row)
    for row in rows:
        _settle(step, row, verdicts, by_id)
    step.metrics["leaks_into_test"] = _leaks_by_language(rows, verdicts.leaks_into_test)


def tidy(text: str) -> str:
    """NFC, invisible characters out, runs of blanks to one, none at the ends."""
    return _BLANKS.sub(" ", _INVISIBLE.sub("", unicodedata.normalize("NFC", text))).strip()


def clean(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with tidy texts, its aliases each once, and its key."""
    answer = None if row["answer"] is None else tidy(row["answer"]) or None
    aliases = dict.fromkeys(t for t in map(tidy, row["aliases"]) if t)
    question = tidy(row["question"])
    return {
        **row,
        "question": question,
        "answer": answer,
        "aliases": list(aliases),
        "question_key": question_key(question),
    }


def gather(rows: Sequence[Mapping[str, Any]]) -> list[Question]:
    """One `Question` for each question id, sorted by id."""
    keys: dict[str, set[str]] = defaultdict(set)
    first: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        first.setdefault(row["question_id"], row)
        if row["question_key"]:
            keys[row["question_id"]].add(f"{row['language']} {row['question_key']}")
    return [Question(i, r["split"], r["label"], frozenset(keys[i])) for i, r in sorted(first.items())]


def decide(found: Sequence[Question]) -> Verdicts:
    """Conflicts, then duplicates among what is left, then marks. Linear in the number of wordings."""
    holders: dict[str, list[Question]] = defaultdict(list)
    for question in found:
        for key in question.keys:
            holders[key].append(question)
    verdicts = Verdicts()
    for question in found:
        equal = {o.id: o for k in question.keys for o in holders[k] if o.id != question.id}
        _conflict(question, list(equal.values()), verdicts)
        splits = {o.split for o in equal.values()}
        if question.split != TEST and TEST in splits:
            verdicts.leaks_into_test.add(question.id)
        if question.split == TRAIN and DEV in splits:
            verdicts.leaks_into_dev.add(question.id)
    _duplicates([q for q in found if q.id not in verdicts.conflicts], verdicts)
    return verdicts


def _conflict(question: Question, equal: Sequence[Question], verdicts: Verdicts) -> None:
    opposite = [o for o in equal if UNKNOWN not in (o.label, question.label) and o.label != question.label]
    if question.split == TEST:  # the scored side goes only when test contradicts itself
        opposite = [o for o in opposite if o.split == TEST]
    if opposite:
        verdicts.conflicts[question.id] = min(o.id for o in opposite)


def _duplicates(found: Sequence[Question], verdicts: Verdicts) -> None:
    by_id = {q.id: q for q in found if q.split != TEST}
    groups, seen = Groups(by_id), dict[tuple[str, str], str]()
    for question in by_id.values():
        for key in sorted(question.keys):
            groups.join(question.id, seen.setdefault((question.split, key), question.id))
    for group in groups.all():
        ids = sorted((str(i) for i in group), key=lambda i: (-len(by_id[i].keys), i))
        verdicts.duplicates |= dict.fromkeys(ids[1:], ids[0])


def _settle(
    step: Step, row: Mapping[str, Any], verdicts: Verdicts, by_id: Mapping[str, Sequence[Mapping[str, Any]]]
) -> None:
    item, question = row["row_id"], row["question_id"]
    other = verdicts.conflicts.get(question) or verdicts.duplicates.get(question)
    if not row["question_key"]:
        step.reject(item, "no_words", parents=[item], raw=row["question"])
    elif other is not None:
        twin = next((r for r in by_id[other] if r["language"] == row["language"]), by_id[other][0])
        conflict = question in verdicts.conflicts
        step.reject(
            item,
            "label_conflict" if conflict else "duplicate",
            detail=f"equals {twin['question']!r} ({twin['split']}, {twin['label']}) in some language",
            raw=row["question"],
            parents=[item, twin["row_id"]],
        )
    else:
        values = {c: row[c] for c in CURATED if not c.startswith("leaks_")}
        leak = question in verdicts.leaks_into_test
        step.accept(
            item,
            SCHEMA.row(
                **values,
                leaks_into_test=leak,
                leaks_into_dev=question in verdicts.leaks_into_dev,
                parents=[item],
            ),
            note="leaks into test" if leak else "",
        )


def _leaks_by_language(rows: Sequence[Mapping[str, Any]], leaking: set[str]) -> dict[str, int]:
    """How many wordings of train and dev equal a test question's in the same language."""
    test = {(r["language"], r["question_key"]) for r in rows if r["split"] == TEST}
    counts: dict[str, int] = defaultdict(int)
    for row in rows:
        if row["question_id"] in leaking and (row["language"], row["question_key"]) in test:
            counts[row["language"]] += 1
    return dict(sorted(counts.items()))
