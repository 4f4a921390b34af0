"""Reads English problems with checkable answers, and references in other languages.

Law: accepted + rejected = records read. English wordings are the loop's only
input (role "source"); all others are references for a reader's eye and for
evaluation, and no later step sends them to a model.

Read are GSM8K (JSONL: question, answer ending in `#### 18`), MGSM (mgsm_XX.tsv, no header: question,
answer; the files of one folder are joined by line), and our own JSONL: id, language, question, answer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import polars as pl

from pipelines.data.readers import Record, data_files
from pipelines.data.rows import Schema
from pipelines.errors import ConfigError, InputError
from pipelines.step import Step
from pipelines.trit.formats import ENGLISH, Fault, Problem, problem, read_book, rows_by_number

SCHEMA = Schema(
    "trit.ingest",
    {
        "problem_key": pl.String,  # joins the wordings of one problem
        "language": pl.String,
        "question": pl.String,
        "answer": pl.String,  # canonical
        "role": pl.String,  # source | reference
    },
    identity=("problem_key", "language"),
)
ORIGIN = {"row_id": pl.String, "file": pl.String, "line": pl.Int64, "column": pl.String}


@dataclass(frozen=True)
class Params:
    """limit: records taken from the head of each file; 0 takes all."""

    limit: int = 0


def run(step: Step, params: Params) -> None:
    """Lists all records of all files, then settles them, English first: references are held to it."""
    if params.limit < 0:
        raise ConfigError("must not be negative", where="params.yaml: trit.ingest.limit")
    folder = step.source()
    books = [read_book(path, folder, params.limit) for path in data_files(folder)]
    step.plan(record.key for book in books for record in book.records)
    step.rows_in = len(step.ledger.planned)
    by_number = rows_by_number(books)
    told = [(record, problem(book, record, by_number)) for book in books for record in book.records]
    told.sort(key=lambda pair: isinstance(pair[1], Problem) and pair[1].language != ENGLISH)  # stable
    origin: list[dict[str, Any]] = []
    taken: dict[tuple[str, str], tuple[str, Problem]] = {}
    for record, found in told:
        fault = found if isinstance(found, Fault) else _clash(found, taken)
        if isinstance(found, Fault) or fault is not None:
            _reject(step, record, fault)
            continue
        taken[found.key, found.language] = (record.key, found)
        role = "source" if found.language == ENGLISH else "reference"
        row = SCHEMA.row(
            problem_key=found.key,
            language=found.language,
            question=found.question,
            answer=found.answer,
            role=role,
        )
        step.accept(record.key, row)
        origin.append(
            {"row_id": row["row_id"], "file": record.file, "line": record.line, "column": "question"}
        )
    languages = Counter(language for _, language in taken)
    if not languages[ENGLISH]:
        raise InputError(
            "no usable English problem: the loop has no input",
            where=f"data/raw/{step.engine}",
            cure="give GSM8K, mgsm_en.tsv or JSONL rows of language en",
        )
    step.table("origin", pl.DataFrame(origin, schema=ORIGIN, orient="row").sort("row_id"))
    step.metrics = {"by_language": dict(sorted(languages.items()))}


def _clash(found: Problem, taken: dict[tuple[str, str], tuple[str, Problem]]) -> Fault | None:
    """A second wording under one key and language, or a reference whose answer is not the source's."""
    twin = taken.get((found.key, found.language))
    if twin is not None:
        reason = "duplicate" if twin[1].answer == found.answer else "answer_conflict"
        return Fault(reason, None, f"first at {twin[0]}")
    source = taken.get((found.key, ENGLISH))
    if source is not None and source[1].answer != found.answer:
        return Fault("answer_conflict", "answer", f"{found.answer} here, {source[1].answer} at {source[0]}")
    return None


def _reject(step: Step, record: Record, fault: Fault | None) -> None:
    assert fault is not None
    step.reject(
        record.key, fault.reason, detail=fault.detail, place=record.place(fault.column), raw=record.raw
    )
