"""Opens a file of questions or aliases: its reader, and its records.

Law: a file is what its suffix says or it is refused; a few lines that are no
text, in a file of lines, are records with a fault.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.data import delimited, torn_json
from pipelines.data.foreign_parquet import parquet_records
from pipelines.data.readers import (
    delimiter_of,
    json_lines,
    json_list,
    json_object,
    keys_of,
    relative,
    suffix_of,
)
from pipelines.data.record import Record, Torn, Twice, twice_fault
from pipelines.data.text_files import lines_of, rough_text_of
from pipelines.data.torn_json import Count
from pipelines.errors import InputError
from pipelines.evergreen.readers import freshqa, squad
from pipelines.evergreen.readers.formats import recognise
from pipelines.evergreen.readers.roles import Reading
from pipelines.evergreen.readers.seam import Aliases, Reader, Sheet

FEW = 5  # records of a document that may be damaged, even if they are most


@dataclass(frozen=True)
class Book:
    """A file: what it says of itself, and its records."""

    sheet: Sheet
    reader: Reader | Aliases
    records: Sequence[Record]

    @property
    def items(self) -> Iterator[str]:
        """The work items of the file, listed before any record is judged."""
        for record in self.records:
            languages = self.reader.languages(record)
            yield from (item(record, language) for language in languages)
            if not languages:
                yield item(record)


def item(record: Record, language: str = "") -> str:
    """Names a wording of a record, or the record itself."""
    return f"{record.key}:{language}" if language else record.key


def read_book(path: Path, folder: Path, reading: Reading | None = None, limit: int = 0) -> Book:
    """A whole file. Raises InputError when it is not what its suffix says or has no known columns."""
    sheet = open_sheet(path, folder)
    reader = recognise(sheet, reading)
    whole = not limit or isinstance(reader, Aliases)
    return Book(sheet, reader, sheet.records if whole else sheet.records[:limit])


def open_sheet(path: Path, folder: Path) -> Sheet:
    """The columns and records of a file, whatever they mean. Raises InputError."""
    suffix, name = suffix_of(path), relative(path, folder)
    if suffix == ".parquet":
        columns, rows = parquet_records(path, folder)
        return Sheet(name, tuple(columns), rows)
    if suffix in (".csv", ".tsv"):
        return _table(path, folder, name, suffix)
    if suffix == ".json":
        listed = _document(path, folder, name)
    else:
        listed = list(json_lines(lines_of(path, folder), name))
    return Sheet(name, tuple(keys_of(listed, name, suffix)), listed)


def document_records(value: Any, name: str) -> list[Record]:
    """The records of a JSON document: a list of objects, SQuAD's articles, or an object by key.

    A value under a key is a record with that `id`; what is no object is its `value`. Raises InputError.
    """
    if squad.is_document(value):
        return squad.records_of(value, name)
    if isinstance(value, Mapping) and isinstance(value.get("data"), list):
        value = value["data"]
    if isinstance(value, Mapping) and value:
        twice = value.keys_twice if isinstance(value, Twice) else frozenset()
        return [
            Record(name, n, fault=twice_fault(key)) if key in twice else _keyed(name, n, key, told)
            for n, (key, told) in enumerate(value.items(), 1)
        ]
    return list(json_list(value, name))


def _document(path: Path, folder: Path, name: str) -> list[Record]:
    """The records of a JSON document; damage in a few places costs the records that it stands in."""
    text = rough_text_of(path, folder)
    if _is_lines(text):
        raise InputError("holds one JSON object a line, no document", where=name, cure="name it .jsonl")

    def count(value: Any) -> Count:
        try:
            return _count(document_records(value, name))
        except InputError:
            return Count(0, 0, 0)

    try:
        found = document_records(torn_json.load(text, count), name)
    except ValueError as e:
        line = f":{e.lineno}" if isinstance(e, json.JSONDecodeError) else ""
        raise InputError(f"is not JSON: {e}", where=f"{name}{line}") from e
    except RecursionError as e:
        raise InputError("is nested too deeply", where=name) from e
    broken = [r for r in found if r.fault]
    if len(broken) == len(found) or len(broken) > max(FEW, len(found) / 2):
        what = f"{len(broken)} of {len(found)} records cannot be read, the first: {broken[0].fault}"
        raise InputError(what, where=f"{name}:{broken[0].line}", cure="is it JSON in UTF-8?")
    return found


def _is_lines(text: str) -> bool:
    """Whether each of the first two lines that are not blank is a whole object."""
    told = [line for line in text.split("\n", 50) if line.strip()][:2]
    try:
        return len(told) == 2 and all(isinstance(json.loads(line), dict) for line in told)
    except (ValueError, RecursionError):
        return False


def _count(found: Sequence[Record]) -> Count:
    readable = [r.values.keys() for r in found if not r.fault]
    times = Counter(key for keys in readable for key in keys)
    most = {key for key, n in times.items() if 2 * n > len(readable)}
    alike = sum(1 for keys in readable if keys >= most)
    return Count(alike, len(readable) - alike, len(found) - len(readable))


def _keyed(name: str, n: int, key: str, value: Any) -> Record:
    if isinstance(value, Torn):
        return Record(name, n, fault=value.why)
    told = value if isinstance(value, dict) else {"value": value}
    return json_object(name, n, told, also={"id": key})


def _table(path: Path, folder: Path, name: str, suffix: str) -> Sheet:
    lines, delimiter = lines_of(path, folder, heads=1), delimiter_of(suffix)
    at = freshqa.preamble(lines)
    columns = delimited.header_cells(lines[at], name, delimiter, at + 1)
    delimited.require_rows(lines, at + 1, name)
    return Sheet(name, tuple(columns), list(delimited.rows(lines, at + 1, name, delimiter, columns)))
