"""Reads questions in any known format into the question schema: one row a question and language.

Law: accepted + rejected = read. A work item is one wording of one record; a
record that cannot be read at all, and one of an alias file, is an item itself.
A question's id is a hash of what its record says, never of its line or its own id.

The simplest file is a CSV with the columns question, language (en where absent is refused),
label (evergreen or mutable, 1 or 0) or change_rate (never, slow, fast), and answer, split,
source if known. All that is read is told in `formats.py`: a column a language (EverGreenQA),
JSONL, JSON, Parquet, files of aliases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.data.readers import Record, data_files, header, records, relative
from pipelines.data.rows import digest
from pipelines.data.tables import read_parquet
from pipelines.errors import ConfigError, InputError
from pipelines.evergreen.formats import Fault, Layout, Said, aliases_of, cells, recognise, said, usual
from pipelines.evergreen.schema import QUESTION, language_code, questions
from pipelines.step import Step

SCHEMA = questions("evergreen.ingest", QUESTION)
ORIGIN = {"row_id": pl.String, "file": pl.String, "line": pl.Int64, "column": pl.String}


@dataclass(frozen=True)
class Params:
    """limit: records taken from the head of each file of questions; 0 takes all."""

    limit: int = 0


@dataclass(frozen=True)
class Book:
    """A file: what its columns mean, and its records."""

    layout: Layout
    records: Sequence[Record]

    @property
    def items(self) -> Iterator[str]:
        """The work items of the file, listed before any record is judged."""
        for record in self.records:
            languages = cells(self.layout, record)
            yield from (item(record, language) for language in languages)
            if not languages:
                yield item(record)


def item(record: Record, language: str = "") -> str:
    """Names a wording of a record, or the record itself."""
    return f"{record.key}:{language}" if language else record.key


def run(step: Step, params: Params) -> None:
    """Lists all items of all files, then settles them file by file."""
    if params.limit < 0:
        raise ConfigError("must not be negative", where="params.yaml: evergreen.ingest.limit")
    folder = step.source()
    books = [read_book(path, folder, params.limit) for path in data_files(folder)]
    for book in books:
        step.plan(book.items)
    step.rows_in = len(step.ledger.planned)
    aliases = _settle_aliases(step, books)
    origin: list[dict[str, Any]] = []
    seen: Counter[str] = Counter()
    for book in books:
        if book.layout.kind != "aliases":
            for record in book.records:
                _settle(step, book.layout, record, aliases, seen, origin)
    step.table("origin", pl.DataFrame(origin, schema=ORIGIN, orient="row").sort("row_id"))
    kinds = Counter(b.layout.kind for b in books for _ in b.records)
    step.metrics = {
        "records": dict(sorted(kinds.items())),
        "ignored_columns": sorted({c for b in books for c in b.layout.ignored}),
    }


def read_book(path: Path, folder: Path, limit: int = 0) -> Book:
    """A whole file. Raises InputError when it is not what its suffix says or has no known columns."""
    name = relative(path, folder)
    if path.suffix.lower() == ".parquet":
        try:
            frame = read_parquet(path)
        except InputError as e:
            raise InputError("is not a readable Parquet file", where=name, cure="is it one at all?") from e
        layout = recognise(frame.columns, name)
        listed = [Record(name, n, row, str(row)[:2000]) for n, row in enumerate(frame.to_dicts(), 1)]
    else:
        columns, listed = header(path, folder), list(records(path, folder))
        layout = recognise(usual(columns, listed), name)
    return Book(layout, listed[:limit] if limit and layout.kind != "aliases" else listed)


def question_id(told: Said, occurrence: int) -> str:
    """Hash of what a record says; `occurrence` tells records apart that say the same."""
    wordings = sorted((k, v) for k, v in told.wordings.items() if usable(v))
    label = (told.label.value, told.label.rate, told.label_origin)
    answers = (sorted(told.answers.items()), None if told.as_of is None else told.as_of.isoformat())
    said_so = (told.source, told.split, label, wordings, answers)
    return digest("question", *said_so, *([occurrence] if occurrence else []))


def usable(wording: object) -> bool:
    """True for a text that is not blank."""
    return isinstance(wording, str) and bool(wording.strip())


def _settle(
    step: Step,
    layout: Layout,
    record: Record,
    aliases: Mapping[tuple[str, str], dict[str, list[str]]],
    seen: Counter[str],
    origin: list[dict[str, Any]],
) -> None:
    """Ends each item of one record of questions."""
    languages = cells(layout, record) or [""]
    told = Fault("unreadable", None, record.fault) if record.fault else said(layout, record)
    if isinstance(told, Fault):
        for language in languages:
            place = record.place(told.column)
            step.reject(item(record, language), told.reason, detail=told.detail, place=place, raw=record.raw)
        return
    first = question_id(told, 0)
    told_id = question_id(told, seen[first])
    seen[first] += 1
    joined = aliases.get((layout.stem, _index(layout, record)), {})
    for language, wording in told.wordings.items():
        which = item(record, language if languages != [""] else "")
        column = layout.wordings.get(language, "question")
        if not usable(wording):
            blank = wording is None or (isinstance(wording, str) and not wording.strip())
            reason = "empty_question" if blank else "wrong_type"
            step.reject(which, reason, place=record.place(column), raw=record.raw)
            continue
        row = _row(told, told_id, language, wording, joined)
        step.accept(which, row)
        origin.append({"row_id": row["row_id"], "file": record.file, "line": record.line, "column": column})


def _row(
    told: Said, told_id: str, language: str, wording: str, joined: Mapping[str, list[str]]
) -> dict[str, Any]:
    code = language_code(language) or language
    return SCHEMA.row(
        question_id=told_id,
        language=code,
        question=wording,
        answer=told.answers.get(language),
        aliases=told.aliases.get(language, joined.get(code, [])),
        label=told.label.value,
        change_rate=told.label.rate,
        source=told.source,
        split=told.split,
        label_origin=told.label_origin,
        as_of=told.as_of,
    )


def _settle_aliases(step: Step, books: Sequence[Book]) -> dict[tuple[str, str], dict[str, list[str]]]:
    """Ends the records of alias files; returns the aliases by (stem of the question file, index value)."""
    indices = Counter(
        (b.layout.stem, _index(b.layout, r)) for b in books if b.layout.kind != "aliases" for r in b.records
    )
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for book in books:
        if book.layout.kind != "aliases":
            continue
        stem = book.layout.stem.replace("aliases", "").replace("alias", "").strip("_- ")
        for record in book.records:
            told = (
                Fault("unreadable", None, record.fault) if record.fault else aliases_of(book.layout, record)
            )
            if isinstance(told, Fault):
                place = record.place(told.column)
                step.reject(record.key, told.reason, detail=told.detail, place=place, raw=record.raw)
                continue
            key = (stem, _index(book.layout, record))
            if indices[key] > 1 or key in found:
                step.reject(record.key, "ambiguous_index", detail=f"index {key[1]!r}", place=record.place())
                continue
            found[key] = told
            step.accept(record.key, note="aliases" if indices[key] else "aliases of no question here")
    return found


def _index(layout: Layout, record: Record) -> str:
    return "" if layout.index is None else str(record.values.get(layout.index, "")).strip()
