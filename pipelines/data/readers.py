"""Foreign text formats, record by record, with file and line.

Law: a bad record in a good file is a `Record` with a fault and the next one is
read unharmed; a file that is not what it claims is an InputError before any
record. Nothing is dropped: records given = records in the file.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pipelines.errors import InputError, Place

SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
LONGEST_RECORD = 500  # lines; more means that a quote was opened and never closed
Quoting = Literal[0, 1, 2, 3]
csv.field_size_limit(2**27)


@dataclass(frozen=True)
class Record:
    """One record. `fault` says why it cannot be read; then `values` is empty and `raw` is the text."""

    file: str  # relative to the folder that was given
    line: int  # of its first line, from 1
    values: dict[str, Any] = field(default_factory=dict)
    raw: str = ""
    fault: str = ""

    def place(self, column: str | None = None) -> Place:
        return Place(self.file, self.line, column)

    @property
    def key(self) -> str:
        """Names the record as a work item."""
        return f"{self.file}:{self.line}"


def data_files(folder: Path) -> list[Path]:
    """All files below `folder` with a known suffix, sorted. Raises InputError when there are none."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix.lower() in SUFFIXES)
    if not files:
        raise InputError(
            "holds no data files", where=str(folder), cure=f"known suffixes: {', '.join(SUFFIXES)}"
        )
    return files


def records(path: Path, base: Path, columns: Sequence[str] | None = None) -> Iterator[Record]:
    """Records of a CSV, TSV, JSONL or JSON file by its suffix.

    `columns` names the columns of a file without header (MGSM). A JSON file must
    be a list of objects; for other JSON use `load_json`. Raises InputError.
    """
    suffix, name = path.suffix.lower(), relative(path, base)
    if suffix == ".jsonl":
        return _jsonl(text_of(path, base), name)
    if suffix in (".csv", ".tsv"):
        return _delimited(text_of(path, base), name, "\t" if suffix == ".tsv" else ",", columns)
    if suffix == ".json":
        return _json_list(load_json(path, base), name)
    raise InputError(f"unknown suffix {suffix!r}", where=name, cure=f"known: {', '.join(SUFFIXES)}")


def relative(path: Path, base: Path) -> str:
    """The file's name below `base`: no machine's path enters a row."""
    return path.relative_to(base).as_posix() if path.is_relative_to(base) else path.name


def header(path: Path, base: Path) -> list[str]:
    """Column names of a CSV or TSV file, or the keys of the first good JSONL or JSON record."""
    if path.suffix.lower() in (".csv", ".tsv"):
        delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
        return next(csv.reader(io.StringIO(text_of(path, base)), delimiter=delimiter), [])
    first = next((r for r in records(path, base) if not r.fault), None)
    return [] if first is None else list(first.values)


def text_of(path: Path, base: Path) -> str:
    """Text of a UTF-8 file, byte order mark aside, line ends as they are. Raises InputError."""
    name = relative(path, base)
    try:
        data = path.read_bytes()
    except OSError as e:
        raise InputError(f"cannot be read: {e.strerror}", where=name) from e
    if not data.strip():
        raise InputError("the file is empty", where=name, cure="give a file with rows or take it away")
    if data.startswith(b"version https://git-lfs"):
        raise InputError("is a Git LFS pointer, not the data", where=name, cure="git lfs pull")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise InputError("is not UTF-8", where=f"{name}:{line}", cure="iconv -t UTF-8") from e
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError("is not text (it holds NUL bytes)", where=f"{name}:{line}", cure="give a text file")
    return text


def load_json(path: Path, base: Path) -> Any:
    """A whole JSON file. Raises InputError with the line."""
    text = text_of(path, base)
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError as e:
        line = f":{e.lineno}" if isinstance(e, json.JSONDecodeError) else ""
        raise InputError(f"is not JSON: {e}", where=f"{relative(path, base)}{line}") from e
    except RecursionError as e:
        raise InputError("is nested too deeply", where=relative(path, base)) from e


def require(found: Sequence[str], needed: Sequence[str], where: str) -> None:
    """Raises InputError naming the columns that are missing and those that are there."""
    missing = [c for c in needed if c not in found]
    if missing:
        raise InputError(
            f"column {', '.join(map(repr, missing))} is missing",
            where=where,
            cure=f"the file has: {', '.join(map(repr, found)) or 'no columns'}",
        )


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


def _jsonl(text: str, name: str) -> Iterator[Record]:
    # Split at \n alone: U+2028 and its like are not line ends in JSONL.
    lines = text.split("\n")
    if text.lstrip()[:1] == "[":
        raise InputError("holds a JSON array, not one object a line", where=name, cure="name it .json")
    return (_json_line(name, n, line) for n, line in enumerate(lines, 1) if line.strip())


def _json_line(name: str, n: int, line: str) -> Record:
    try:
        value = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as e:
        return Record(name, n, raw=line[:2000], fault=f"not JSON: {e}")
    return _object(name, n, value, line)


def _json_list(value: Any, name: str) -> Iterator[Record]:
    if not isinstance(value, list):
        raise InputError("must be a list of objects", where=name)
    return (_object(name, n, v, json.dumps(v, ensure_ascii=False)) for n, v in enumerate(value, 1))


def _object(name: str, n: int, value: Any, raw: str) -> Record:
    if not isinstance(value, dict):
        return Record(name, n, raw=raw[:2000], fault=f"not an object but {type(value).__name__}")
    if any(isinstance(v, float) and not math.isfinite(v) for v in value.values()):
        return Record(name, n, raw=raw[:2000], fault="a number is out of range")
    return Record(name, n, values=value, raw=raw[:2000])


def _delimited(text: str, name: str, delimiter: str, columns: Sequence[str] | None) -> Iterator[Record]:
    lines = text.replace("\r\n", "\n").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    start = 0
    if columns is None:
        columns, start = _header_line(lines, name, delimiter)
    quoting: Quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    return _rows(lines, start, name, delimiter, list(columns), quoting)


def _header_line(lines: list[str], name: str, delimiter: str) -> tuple[list[str], int]:
    found = next(csv.reader([lines[0]], delimiter=delimiter), [])
    if text_looks_like_json(lines[0]):
        raise InputError("holds JSON, not a table", where=name, cure="name it .jsonl or .json")
    twice = sorted({c for c in found if found.count(c) > 1})
    if twice:
        raise InputError(f"two columns are named {twice[0]!r}", where=f"{name}:1", cure="rename one of them")
    return found, 1


def text_looks_like_json(line: str) -> bool:
    """True when a line starts as a JSON object or array would."""
    return line.lstrip()[:1] in ("{", "[")


def _rows(
    lines: list[str], at: int, name: str, delimiter: str, columns: list[str], quoting: Quoting
) -> Iterator[Record]:
    """Reads record by record; one that does not fit costs its first line only."""
    while at < len(lines):
        if not lines[at].strip():
            at += 1
            continue
        cells, used = _one(lines, at, delimiter, quoting)
        if cells is not None and len(cells) == len(columns):
            raw = "\n".join(lines[at : at + used])[:2000]
            yield Record(name, at + 1, dict(zip(columns, cells, strict=True)), raw)
            at += used
            continue
        fault = "a quote is not closed" if cells is None else f"{len(cells)} fields, expected {len(columns)}"
        yield Record(name, at + 1, raw=lines[at][:2000], fault=fault)
        at += 1


def _one(lines: list[str], at: int, delimiter: str, quoting: Quoting) -> tuple[list[str] | None, int]:
    """Cells of the record that starts at line `at`, and how many lines it took."""
    taken = 1
    if quoting != csv.QUOTE_NONE:
        quotes = lines[at].count('"')
        while quotes % 2 and taken < LONGEST_RECORD and at + taken < len(lines):
            quotes += lines[at + taken].count('"')
            taken += 1
        if quotes % 2:
            return None, 1
    chunk = "\n".join(lines[at : at + taken])
    try:
        cells = next(
            csv.reader(io.StringIO(chunk, newline=""), delimiter=delimiter, quoting=quoting, strict=True)
        )
    except (csv.Error, StopIteration):
        return None, 1
    return cells, taken
