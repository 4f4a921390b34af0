"""Problems with candidate solutions into one schema, a row a problem and a row a candidate.

Law: each problem and each candidate of the files is a work item and ends once; a
candidate without a solution is a reject. A problem is known by its question, so
that the same question in two files is one problem.

Our own format is JSONL: question, answer, and if known id, concepts, neighbors (ids) and candidates
([{"solution": ..., "label": "right" | "wrong"}]). GSM8K and CHAMP are read too: see `sources.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import polars as pl

from pipelines.cbu.sources import RawCandidate, RawProblem, problems
from pipelines.data.answers import Verdict, fast
from pipelines.data.readers import data_files, stem_of
from pipelines.data.rows import Schema, digest, occurrences
from pipelines.errors import Place
from pipelines.step import Step

SCHEMA = Schema(
    name="cbu.ingest",
    columns={
        "problem": pl.String,  # key of the question
        "name": pl.String,  # file and id, for people and for given neighbors
        "question": pl.String,
        "answer": pl.String,  # null: nobody knows it
        "concepts": pl.List(pl.String),
        "given": pl.List(pl.String),  # names of given neighbors
        "solution": pl.String,  # null in the row of the problem itself
        "label": pl.String,  # right, wrong, null: unknown
        "author": pl.String,
    },
    identity=("question", "solution"),
)
ORIGIN = {"row_id": pl.String, "file": pl.String, "line": pl.Int64}


@dataclass(frozen=True)
class Params:
    """limit: problems read of each file, 0 for all."""

    limit: int = 0


@dataclass
class _Seen:
    """Problems so far, by key, and where each row came from."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  # name -> key of its problem
    ids: set[str] = field(default_factory=set)  # of all rows
    origin: list[dict[str, Any]] = field(default_factory=list)


def question_key(question: str) -> str:
    """Key of a problem: its question, blanks and case aside."""
    return digest("cbu.problem", " ".join(question.casefold().split()))


def run(step: Step, params: Params) -> None:
    """Reads every file below data/raw/cbu; plans all problems and candidates before judging any."""
    folder = step.source()
    base = step.root / "data" / "raw"
    found: list[tuple[str, RawProblem]] = []
    for path in data_files(folder):
        for n, problem in enumerate(problems(path, base)):
            if params.limit and n >= params.limit:
                break
            found.append((stem_of(path), problem))
    step.rows_in = len(found)
    for _, problem in found:
        step.plan([problem.key, *(_item(problem, c) for c in problem.candidates)])
    seen = _Seen()
    for stem, problem in found:
        _take(step, seen, stem, problem)
    step.table(
        "origin", pl.DataFrame(seen.origin, schema=ORIGIN, orient="row").sort("row_id", "file", "line")
    )
    step.metrics = {"problems": len(seen.rows), "candidates": len(seen.origin) - len(seen.rows)}


def _item(problem: RawProblem, candidate: RawCandidate) -> str:
    return f"{problem.key}#{candidate.name}"


def _take(step: Step, seen: _Seen, stem: str, problem: RawProblem) -> None:
    """Settles a problem and its candidates."""
    fault = problem.fault
    if fault is not None:
        place = Place(problem.place.file, problem.place.line, fault.column)
        step.reject(problem.key, fault.reason, detail=fault.detail, place=place, raw=problem.raw)
        return _reject_candidates(step, problem, "problem_rejected")
    key = question_key(problem.question)
    known, name = seen.rows.get(key), f"{stem}/{problem.name or key}"
    if seen.names.setdefault(name, key) != key:
        step.reject(problem.key, "id_used_twice", detail=name, place=problem.place, raw=problem.raw)
        return _reject_candidates(step, problem, "problem_rejected")
    if known is not None and not _agree(known["answer"], problem.answer):
        detail = f"{problem.answer!r} here, {known['answer']!r} in {known['name']}"
        step.reject(problem.key, "conflicting_answers", detail=detail, place=problem.place, raw=problem.raw)
        return _reject_candidates(step, problem, "problem_rejected")
    if known is not None:
        step.reject(
            problem.key, "duplicate", detail=f"same as {known['name']}", place=problem.place, raw=problem.raw
        )
    else:
        known = _problem_row(stem, name, problem, key)
        seen.rows[key] = known
        _note_origin(seen, known, problem)
        step.accept(problem.key, known)
    return _take_candidates(step, seen, problem, known)


def _agree(one: str | None, other: str | None) -> bool:
    """Whether two answers to one question do not contradict each other."""
    if one is None or other is None or one == other:
        return True
    return fast(one, other) is not Verdict.WRONG


def _problem_row(stem: str, name: str, problem: RawProblem, key: str) -> dict[str, Any]:
    return SCHEMA.row(
        problem=key,
        name=name,
        question=problem.question,
        answer=problem.answer,
        concepts=sorted(set(problem.concepts)),
        given=[f"{stem}/{n}" for n in problem.neighbors],
        solution=None,
        label=None,
        author=None,
    )


def _take_candidates(step: Step, seen: _Seen, problem: RawProblem, known: dict[str, Any]) -> None:
    columns = {c: known[c] for c in ("problem", "name", "question", "answer", "concepts", "given")}
    good = [c for c in problem.candidates if c.fault is None]
    numbers = dict(zip([c.name for c in good], occurrences(c.solution for c in good), strict=True))
    for candidate in problem.candidates:
        item, fault = _item(problem, candidate), candidate.fault
        if fault is not None:
            place = Place(problem.place.file, problem.place.line, fault.column)
            step.reject(item, fault.reason, detail=fault.detail, place=place, raw=problem.raw)
            continue
        row = SCHEMA.row(
            parents=[known["row_id"]],
            occurrence=numbers[candidate.name],
            **columns,
            solution=candidate.solution,
            label=candidate.label,
            author=candidate.author,
        )
        if row["row_id"] in seen.ids:
            step.reject(item, "duplicate", place=problem.place, raw=candidate.solution)
            continue
        _note_origin(seen, row, problem)
        step.accept(item, row)


def _note_origin(seen: _Seen, row: dict[str, Any], problem: RawProblem) -> None:
    seen.ids.add(row["row_id"])
    seen.origin.append({"row_id": row["row_id"], "file": problem.place.file, "line": problem.place.line})


def _reject_candidates(step: Step, problem: RawProblem, reason: str) -> None:
    for candidate in problem.candidates:
        step.reject(_item(problem, candidate), reason, place=problem.place, raw=candidate.solution)
