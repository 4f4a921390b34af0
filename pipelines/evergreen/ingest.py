"""Reads questions in any known format into the question schema: one row a question and language.

Law: accepted + rejected = read. A work item is one wording of one record; a
record that cannot be read at all, and one of an alias file, is an item itself.
A question's id is a hash of what its record says, never of its line or its own
id; only ids that translations of a set share (SQuAD's) stand for what they say.

The simplest file is a CSV with the columns question, language (en where absent is refused),
label (evergreen or mutable, 1 or 0) or change_rate (never, slow, fast), and answer, split,
source if known. A set without labels is read to be classified and filtered. All that is
read is told in `readers/`, a module a format: EverGreenQA, FreshQA, CRAG, SQuAD, NQ-open,
HotpotQA, Chinese SimpleQA, AdaRAGUE, and plain CSV, TSV, JSONL, JSON and Parquet files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from pipelines.data.record import Record
from pipelines.data.rows import digest
from pipelines.data.source_files import data_files, left_out
from pipelines.errors import ConfigError
from pipelines.evergreen.readers.books import Book, item, read_book
from pipelines.evergreen.readers.roles import Columns, Reading, require_mapped
from pipelines.evergreen.readers.seam import Aliases, Fault, Reader, Said
from pipelines.evergreen.readers.values import language as language_of
from pipelines.evergreen.readers.values import text as text_of_value
from pipelines.evergreen.schema import QUESTION, UNKNOWN, questions
from pipelines.step import Step

SCHEMA = questions("evergreen.ingest", QUESTION)
ORIGIN = {"row_id": pl.String, "file": pl.String, "line": pl.Int64, "column": pl.String}
DETAILS = {"question_id": pl.String, "name": pl.String, "value": pl.String}
Found = dict[tuple[str, str], dict[str, list[str]]]  # (what joins, index value) -> language -> aliases


@dataclass(frozen=True)
class Params:
    """limit: records taken from the head of each file of questions; 0 takes all.
    columns: the file's own name of a column, where it is another than the usual one.
    labels: the file's own label words, each with the known spelling that it stands for.
    """

    limit: int = 0
    columns: Columns = field(default_factory=Columns)
    labels: dict[str, str] = field(default_factory=dict)


@dataclass
class Told:
    """What the records have said so far: ids given out, where each row stands, details."""

    seen: Counter[str] = field(default_factory=Counter)
    origin: list[dict[str, Any]] = field(default_factory=list)
    details: dict[tuple[str, str], str] = field(default_factory=dict)  # (question id, name) -> value


def run(step: Step, params: Params) -> None:
    """Takes all records in, and tells where each row stands and what the schema has no column for."""
    told = take(step, params)
    origin = sorted(told.origin, key=lambda row: str(row["row_id"]))
    step.table("origin", pl.DataFrame(origin, schema=ORIGIN, orient="row"))
    listed = [(*key, value) for key, value in sorted(told.details.items())]
    step.table("details", pl.DataFrame(listed, schema=DETAILS, orient="row"))


def take(step: Step, params: Params) -> Told:
    """Lists all items of all files, then settles them file by file."""
    if params.limit < 0:
        raise ConfigError("must not be negative", where="params.yaml: evergreen.ingest.limit")
    folder, reading = step.source(), Reading(params.columns, params.labels)
    books = [read_book(path, folder, reading, params.limit) for path in data_files(folder)]
    require_mapped([book.sheet for book in books], params.columns)
    for book in books:
        step.plan(book.items)
    step.rows_in = len(step.ledger.planned)
    aliases, told = _settle_aliases(step, books), Told()
    for book in books:
        if isinstance(book.reader, Reader):
            for record in book.records:
                _settle(step, book.reader, record, aliases, told)
    kinds = Counter(b.reader.kind for b in books for _ in b.records)
    step.metrics = {
        "records": dict(sorted(kinds.items())),
        "ignored_columns": sorted({c for b in books for c in b.reader.ignored}),
        "ignored_files": left_out(folder),
    }
    return told


def question_id(told: Said, occurrence: int = 0) -> str:
    """Hash of what a record says; `occurrence` tells records apart that say the same."""
    wordings = sorted((k, v) for k, v in told.wordings.items() if usable(v))
    label = (told.label.value, told.label.rate, told.label_origin)
    answers = (sorted(told.answers.items()), None if told.as_of is None else told.as_of.isoformat())
    said_so: tuple[Any, ...] = (told.source, told.split, label, wordings, answers)
    if told.shared_id:
        said_so = (told.source, told.shared_id)
    return digest("question", *said_so, *([occurrence] if occurrence else []))


def usable(wording: object) -> bool:
    """True for a text that is not blank."""
    return isinstance(wording, str) and bool(wording.strip())


def _settle(step: Step, reader: Reader, record: Record, aliases: Found, told: Told) -> None:
    """Ends each item of one record of questions."""
    languages = reader.languages(record) or [""]
    said = Fault("unreadable", None, record.fault) if record.fault else reader.tell(record.values)
    if isinstance(said, Fault):
        for language in languages:
            place = record.place(said.column)
            step.reject(item(record, language), said.reason, detail=said.detail, place=place, raw=record.raw)
        return
    known_as = _id_of(said, told.seen)
    joined = aliases.get((reader.joins, _index(reader, record)), {})
    for language, wording in said.wordings.items():
        which = item(record, language if languages != [""] else "")
        column = reader.column(language)
        if not usable(wording):
            blank = wording is None or (isinstance(wording, str) and not wording.strip())
            reason = "empty_question" if blank else "wrong_type"
            step.reject(which, reason, place=record.place(column), raw=record.raw)
            continue
        row = _row(said, known_as, language, wording, joined)
        step.accept(which, row, note="no label" if said.label.value == UNKNOWN else "")
        told.details |= {(known_as, name): value for name, value in said.details.items()}
        where = {"file": record.file, "line": record.line, "column": column}
        told.origin.append({"row_id": row["row_id"], **where})


def _id_of(said: Said, seen: Counter[str]) -> str:
    """The question's id. A shared id repeats in other languages without being another question."""
    first = question_id(said)
    key = f"{first} {sorted(said.wordings)}" if said.shared_id else first
    seen[key] += 1
    return question_id(said, seen[key] - 1)


def _row(
    said: Said, known_as: str, language: str, wording: str, joined: Mapping[str, list[str]]
) -> dict[str, Any]:
    code = language_of(language) or language
    return SCHEMA.row(
        question_id=known_as,
        language=code,
        question=wording,
        answer=said.answers.get(language),
        aliases=list(dict.fromkeys([*said.aliases.get(language, []), *joined.get(code, [])])),
        label=said.label.value,
        change_rate=said.label.rate,
        source=said.source,
        split=said.split,
        label_origin=said.label_origin,
        as_of=said.as_of,
    )


def _settle_aliases(step: Step, books: Sequence[Book]) -> Found:
    """Ends the records of alias files; returns the aliases by what joins and index value."""
    indices = _indices(books)
    found: Found = {}
    for book in books:
        reader = book.reader
        if not isinstance(reader, Aliases):
            continue
        for record in book.records:
            told = Fault("unreadable", None, record.fault) if record.fault else reader.tell(record.values)
            if isinstance(told, Fault):
                place = record.place(told.column)
                step.reject(record.key, told.reason, detail=told.detail, place=place, raw=record.raw)
                continue
            key = (reader.joins, _index(reader, record))
            if indices[key] > 1 or key in found:
                where = record.place(reader.index)
                step.reject(record.key, "ambiguous_index", detail=f"index {key[1]!r}", place=where)
                continue
            found[key] = told
            step.accept(record.key, note="aliases" if indices[key] else "aliases of no question here")
    return found


def _indices(books: Sequence[Book]) -> Counter[tuple[str, str]]:
    """How often each index stands among the questions that it may belong to."""
    counts: Counter[tuple[str, str]] = Counter()
    for book in books:
        reader = book.reader
        if isinstance(reader, Reader) and reader.joins:
            own = Counter((reader.joins, _index(reader, r)) for r in book.records if not r.fault)
            for key, times in own.items():
                counts[key] = max(counts[key], times) if reader.repeats else counts[key] + times
    return counts


def _index(reader: Reader | Aliases, record: Record) -> str:
    """The value of the index column as text: a column of numbers with a gap may hold 7.0 for 7."""
    return "" if reader.index is None else (text_of_value(record.values.get(reader.index)) or "").strip()
