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
OTHER = {  # how files of other kinds begin
    b"PK\x03\x04": "a ZIP archive or a spreadsheet",
    b"\x1f\x8b": "gzip",
    b"PAR1": "Parquet",
    b"SQLite format 3": "an SQLite database",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
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
    for path in files:
        require_named(path)
    return files


def require_named(path: Path) -> None:
    """Raises InputError for a file whose name is no text: rows could not say where they come from."""
    if unwritable(str(path)):
        name = str(path).encode("utf-8", "backslashreplace").decode()
        raise InputError("the file's name is not UTF-8", where=name, cure="rename it")


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
    """Column names of a CSV or TSV file, or all keys of the JSONL or JSON records in order.

    Raises InputError, also when a file of objects has records and none can be read.
    """
    suffix, name = path.suffix.lower(), relative(path, base)
    if suffix in (".csv", ".tsv"):
        lines = _lines(text_of(path, base), name)
        return _header_line(lines, name, "\t" if suffix == ".tsv" else ",")[0]
    listed = list(records(path, base))
    if listed and all(r.fault for r in listed):
        first = f"the first, on line {listed[0].line}, is {listed[0].fault}"
        raise InputError(f"no record is a JSON object; {first}", where=name, cure=f"is it {suffix} at all?")
    return list(dict.fromkeys(str(key) for r in listed for key in r.values))


def text_of(path: Path, base: Path) -> str:
    """Text of a UTF-8 file, byte order mark aside, line ends as they are. Raises InputError."""
    name = relative(path, base)
    try:
        data = path.read_bytes()
    except OSError as e:
        raise InputError(f"cannot be read: {e.strerror}", where=name) from e
    if not data.removeprefix(b"\xef\xbb\xbf").strip():
        raise InputError("the file is empty", where=name, cure="give a file with rows or take it away")
    if data.startswith(b"version https://git-lfs"):
        raise InputError("is a Git LFS pointer, not the data", where=name, cure="git lfs pull")
    kind = next((kind for magic, kind in OTHER.items() if data.startswith(magic)), None)
    if kind is not None:
        raise InputError(f"is not text but {kind}", where=f"{name}:1", cure="give UTF-8 text")
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
    lines = _lines(text, name)
    if text.lstrip()[:1] == "[" and not _a_bad_line(lines):
        raise InputError("holds a JSON array, not one object a line", where=name, cure="name it .json")
    return (_json_line(name, n, line) for n, line in enumerate(lines, 1) if line.strip())


def _a_bad_line(lines: list[str]) -> bool:
    """Whether a first line that begins as an array is whole, and others follow: no array of the file."""
    told = [line for line in lines if line.strip()]
    return len(told) > 1 and not _json_line("", 1, told[0]).fault.startswith("not JSON")


def _json_line(name: str, n: int, line: str) -> Record:
    try:
        value = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as e:
        return Record(name, n, raw=line[:2000], fault=f"not JSON: {e}")
    return _object(name, n, value, line)


def _json_list(value: Any, name: str) -> Iterator[Record]:
    if not isinstance(value, list):
        raise InputError("must be a list of objects", where=name)
    if not value:
        raise InputError("holds an empty list", where=name, cure="give it objects or take it away")
    return (_object(name, n, v, _shown(v)) for n, v in enumerate(value, 1))


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return json.dumps(value) if unwritable(text) else text


def _object(name: str, n: int, value: Any, raw: str) -> Record:
    if not isinstance(value, dict):
        return Record(name, n, raw=raw[:2000], fault=f"not an object but {type(value).__name__}")
    fault = fault_of(value)
    return Record(name, n, values={} if fault else value, raw=raw[:2000], fault=fault)


def fault_of(value: Any) -> str:
    """Why a JSON value cannot be kept, however deep it lies: "" when it can."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            left += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            left += one
        elif isinstance(one, float) and not math.isfinite(one):
            return "a number is out of range"
        elif isinstance(one, str) and unwritable(one):
            return "half of a surrogate pair stands alone"
    return ""


def unwritable(text: str) -> bool:
    """True for a text that UTF-8 cannot hold: half of a surrogate pair, as in the JSON "\\ud800"."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _delimited(text: str, name: str, delimiter: str, columns: Sequence[str] | None) -> Iterator[Record]:
    lines, start = _lines(text, name), 0
    if columns is None:
        columns, start = _header_line(lines, name, delimiter)
        if not any(line.strip() for line in lines[start:]):
            raise InputError("has a header and no rows", where=name, cure="give it rows or take it away")
    quoting: Quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    return _rows(lines, start, name, delimiter, list(columns), quoting)


def _lines(text: str, name: str) -> list[str]:
    """Lines of a text, without their ends. Raises InputError where CR alone would end them."""
    if "\r" in text.strip() and "\n" not in text:
        raise InputError("its lines end with CR alone", where=name, cure="end them with LF: tr '\\r' '\\n'")
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def _header_line(lines: list[str], name: str, delimiter: str) -> tuple[list[str], int]:
    try:
        found = next(csv.reader([lines[0]], delimiter=delimiter), [])
    except csv.Error as e:
        raise InputError(f"the header cannot be read: {e}", where=f"{name}:1") from e
    if text_looks_like_json(lines[0]):
        raise InputError("holds JSON, not a table", where=name, cure="name it .jsonl or .json")
    other = next((d for d in ";\t|," if d != delimiter and d in lines[0]), "")
    if len(found) == 1 and other:
        what = f"its columns are separated by {other!r}, not by {delimiter!r}"
        kind = {"\t": "name it .tsv", ",": "name it .csv"}
        raise InputError(what, where=f"{name}:1", cure=kind.get(other, f"save it with {delimiter!r} between"))
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
