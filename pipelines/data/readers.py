"""Foreign text formats, record by record, with file and line.

Law: a bad record in a good file is a `Record` with a fault and the next one is
read unharmed; a file that is not what it claims is an InputError before any
record. Nothing is dropped: records given = records in the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.data import delimited
from pipelines.data.record import LONGEST_RAW, Record, fault_of, unique, unwritable
from pipelines.data.source_files import SUFFIXES, data_files, require_named, stem_of, suffix_of
from pipelines.data.text_files import fault_of_line, raw_of, relative, split_lines, text_of
from pipelines.errors import InputError

__all__ = [  # beside what stands below
    "SUFFIXES",
    "Record",
    "data_files",
    "fault_of",
    "relative",
    "require_named",
    "stem_of",
    "suffix_of",
    "text_of",
    "unwritable",
]


def records(path: Path, base: Path, columns: Sequence[str] | None = None) -> Iterator[Record]:
    """Records of a CSV, TSV, JSONL or JSON file by its suffix.

    `columns` names the columns of a file without header (MGSM). A JSON file must
    be a list of objects; for other JSON use `load_json`. Raises InputError.
    """
    suffix, name = suffix_of(path), relative(path, base)
    if suffix == ".jsonl":
        return json_lines(split_lines(text_of(path, base), name), name)
    if suffix in (".csv", ".tsv"):
        lines = split_lines(text_of(path, base), name)
        return table(lines, name, delimiter_of(suffix), columns)
    if suffix == ".json":
        return json_list(load_json(path, base), name)
    raise InputError(f"unknown suffix {suffix!r}", where=name, cure=f"known: {', '.join(SUFFIXES)}")


def delimiter_of(suffix: str) -> str:
    """What stands between the cells of a .csv or a .tsv."""
    return "\t" if suffix == ".tsv" else ","


def table(
    lines: list[str], name: str, delimiter: str, columns: Sequence[str] | None = None, skip: int = 0
) -> Iterator[Record]:
    """Records of a table; its header stands below `skip` lines, unless `columns` names them.

    Raises InputError for a header that is none, and when no row follows it.
    """
    if columns is None:
        columns = delimited.header_cells(lines[skip], name, delimiter, skip + 1)
        skip += 1
        delimited.require_rows(lines, skip, name)
    return delimited.rows(lines, skip, name, delimiter, columns)


def header(path: Path, base: Path) -> list[str]:
    """Column names of a CSV or TSV file, or all keys of the JSONL or JSON records in order.

    Raises InputError, also when a file of objects has records and none can be read.
    """
    suffix, name = suffix_of(path), relative(path, base)
    if suffix in (".csv", ".tsv"):
        lines = split_lines(text_of(path, base), name)
        return delimited.header_cells(lines[0], name, delimiter_of(suffix))
    return keys_of(list(records(path, base)), name, suffix)


def keys_of(listed: Sequence[Record], name: str, suffix: str) -> list[str]:
    """All keys of records in order. Raises InputError when there are records and none can be read."""
    if listed and all(r.fault for r in listed):
        first = f"the first, on line {listed[0].line}, is {listed[0].fault}"
        raise InputError(f"no record is a JSON object; {first}", where=name, cure=f"is it {suffix} at all?")
    return list(dict.fromkeys(str(key) for r in listed for key in r.values))


def load_json(path: Path, base: Path) -> Any:
    """A whole JSON file; objects with a repeated key are `Twice`. Raises InputError with the line."""
    text = text_of(path, base)
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=unique)
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


def json_lines(lines: list[str], name: str) -> Iterator[Record]:
    """Records of a file with an object a line, blank lines aside. Raises InputError for one JSON array."""
    told = [line for line in lines if line.strip()]
    if told and told[0].lstrip()[:1] == "[" and told[-1].rstrip()[-1:] == "]" and not _a_bad_line(told):
        raise InputError("holds a JSON array, not one object a line", where=name, cure="name it .json")
    return (_json_line(name, n, line) for n, line in enumerate(lines, 1) if line.strip())


def _a_bad_line(told: list[str]) -> bool:
    """Whether a first line that begins as an array is whole, and others follow: no array of the file."""
    return len(told) > 1 and not _json_line("", 1, told[0]).fault.startswith("not JSON")


def _json_line(name: str, n: int, line: str) -> Record:
    if fault := fault_of_line(line):
        return Record(name, n, raw=raw_of([line]), fault=fault)
    try:
        value = json.loads(line, parse_constant=_no_constant, object_pairs_hook=unique)
    except (ValueError, RecursionError) as e:
        return Record(name, n, raw=raw_of([line]), fault=f"not JSON: {e}")
    return json_object(name, n, value, line)


def json_list(value: Any, name: str) -> Iterator[Record]:
    """Records of a list of objects; a record's line is its place in the list. Raises InputError."""
    if not isinstance(value, list):
        raise InputError("must be a list of objects", where=name)
    if not value:
        raise InputError("holds an empty list", where=name, cure="give it objects or take it away")
    return (json_object(name, n, v) for n, v in enumerate(value, 1))


def json_object(
    name: str, n: int, value: Any, raw: str | None = None, also: Mapping[str, Any] | None = None
) -> Record:
    """A JSON value as a record, with a fault when it is no object or cannot be kept.

    `also` holds what its place in the document tells beside; the value's own keys go before.
    """
    raw = _shown(value) if raw is None else raw
    if not isinstance(value, dict):
        return Record(name, n, raw=raw[:LONGEST_RAW], fault=f"not an object but {type(value).__name__}")
    fault = fault_of(value) or fault_of(dict(also or {}))
    values = {} if fault else {**(also or {}), **value}
    return Record(name, n, values=values, raw=raw[:LONGEST_RAW], fault=fault)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return json.dumps(value) if unwritable(text) else text
