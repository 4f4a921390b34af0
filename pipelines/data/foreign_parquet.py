"""Parquet files that others wrote, record by record.

Law: a damaged file is refused, whatever its bytes: pyarrow checks what it reads, and the
whole table is validated before a value is taken (Polars ends damaged files in a panic). A
value that Python cannot hold (a day in the year 300,000) costs its record.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.data.record import LONGEST_RAW, Record, fault_of, unwritable
from pipelines.data.source_files import bytes_of
from pipelines.data.text_files import relative
from pipelines.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa


def parquet_records(path: Path, base: Path) -> tuple[list[str], list[Record]]:
    """The columns of a file and its rows; a record's line is its row, from 1. Raises InputError."""
    name = relative(path, base)
    table = _table(bytes_of(path, name), name)
    columns: list[str] = table.column_names
    if not table.num_rows:
        raise InputError("has columns and no rows", where=name, cure="give it rows or take it away")
    faults: dict[int, str] = {}
    values = [_values(column, table.column(n), faults) for n, column in enumerate(columns)]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]
    found = []
    for n, row in enumerate(rows):
        fault = faults.get(n) or fault_of(row, finite=False)
        found.append(Record(name, n + 1, {} if fault else row, _raw(row), fault))
    return columns, found


def _table(data: bytes, name: str) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        columns = file.schema_arrow.names
        twice = sorted({c for c in columns if columns.count(c) > 1})
        if twice:
            raise InputError(f"two columns are named {twice[0]!r}", where=name, cure="rename one of them")
        table = file.read(use_threads=False)
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as e:
        why = (str(e).splitlines() or [type(e).__name__])[0][:200]
        what = f"is not a readable Parquet file: {why}"
        raise InputError(what, where=name, cure="is it one at all?") from e
    return table


def _values(column: str, told: pa.ChunkedArray, faults: dict[int, str]) -> list[Any]:
    """The values of a column; of those that Python cannot hold `faults` notes the row, from 0."""
    try:
        return [_plain(value) for value in told.to_pylist()]
    except (ValueError, OverflowError):
        pass
    found: list[Any] = []
    for n, scalar in enumerate(told):
        try:
            found.append(_plain(scalar.as_py()))
        except (ValueError, OverflowError) as e:
            faults.setdefault(n, f"column {column!r} holds a {told.type} that is out of range: {e}")
            found.append(None)
    return found


def _plain(value: Any) -> Any:
    """A decimal as an int, or where it is none as its digits; anything else as it is."""
    if not isinstance(value, Decimal):
        return value
    return int(value) if value == value.to_integral_value() else str(value)


def _raw(row: dict[str, Any]) -> str:
    """What a reject keeps of a row."""
    text = str({c: v if not isinstance(v, str | bytes) else v[:LONGEST_RAW] for c, v in row.items()})
    return ascii(text[:LONGEST_RAW])[:LONGEST_RAW] if unwritable(text) else text[:LONGEST_RAW]
