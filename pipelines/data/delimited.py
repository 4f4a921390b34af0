"""Tables with a delimiter: CSV and TSV, record by record.

Law: a record that does not fit costs its first line only, and each line belongs
to exactly one record.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import Literal

from pipelines.data.record import Record
from pipelines.data.text_files import fault_of_line, raw_of
from pipelines.errors import InputError

LONGEST_RECORD = 500  # lines; more means that a quote was opened and never closed
Quoting = Literal[0, 1, 2, 3]
csv.field_size_limit(2**27)


def header_cells(line: str, name: str, delimiter: str, number: int = 1) -> list[str]:
    """Column names in the header, line `number` of the file. Raises InputError when it cannot be one."""
    try:
        found = next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error as e:
        raise InputError(f"the header cannot be read: {e}", where=f"{name}:{number}") from e
    if text_looks_like_json(line):
        raise InputError("holds JSON, not a table", where=name, cure="name it .jsonl or .json")
    other = next((d for d in ";\t|," if d != delimiter and d in line), "")
    if len(found) == 1 and other:
        what = f"its columns are separated by {other!r}, not by {delimiter!r}"
        kind = {"\t": "name it .tsv", ",": "name it .csv"}
        cure = kind.get(other, f"save it with {delimiter!r} between")
        raise InputError(what, where=f"{name}:{number}", cure=cure)
    twice = sorted({c for c in found if found.count(c) > 1})
    if twice:
        where = f"{name}:{number}"
        raise InputError(f"two columns are named {twice[0]!r}", where=where, cure="rename one of them")
    return found


def text_looks_like_json(line: str) -> bool:
    """True when a line starts as a JSON object or array would."""
    return line.lstrip()[:1] in ("{", "[")


def require_rows(lines: Sequence[str], start: int, name: str) -> None:
    """Raises InputError when no row stands below the header."""
    if not any(line.strip() for line in lines[start:]):
        raise InputError("has a header and no rows", where=name, cure="give it rows or take it away")


def rows(lines: list[str], start: int, name: str, delimiter: str, columns: Sequence[str]) -> Iterator[Record]:
    """The records from line `start` (from 0) on, blank lines aside. Quotes mean something in CSV only."""
    quoting: Quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    at = start
    while at < len(lines):
        if not lines[at].strip():
            at += 1
            continue
        cells, used, fault = _one(lines, at, delimiter, quoting)
        if not fault and len(cells) != len(columns):
            fault = f"{len(cells)} fields, expected {len(columns)}"
        chunk = lines[at : at + (1 if fault else used)]
        fault = next(filter(None, map(fault_of_line, chunk)), fault)
        values = {} if fault else dict(zip(columns, cells, strict=True))
        yield Record(name, at + 1, values, raw_of(chunk), fault)
        at += len(chunk)


def _one(lines: list[str], at: int, delimiter: str, quoting: Quoting) -> tuple[list[str], int, str]:
    """Cells of the record that starts at line `at`, how many lines it took, and why it cannot be read."""
    text = (lines[i] + "\n" for i in range(at, min(at + LONGEST_RECORD, len(lines))))
    reader = csv.reader(text, delimiter=delimiter, quoting=quoting, strict=True)
    try:
        return next(reader), reader.line_num, ""
    except (csv.Error, StopIteration) as e:
        lone = "new-line character" in str(e)
        return [], 1, "a carriage return stands outside quotes" if lone else "a quote is not closed"
