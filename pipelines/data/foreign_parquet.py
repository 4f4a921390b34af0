"""Parquet files that others wrote, record by record.

Law: a damaged file is refused, whatever its bytes: pyarrow checks what it reads, and the
whole table is validated before a value is taken (Polars ends damaged files in a panic).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.data.record import LONGEST_RAW, Record, unwritable
from pipelines.data.source_files import bytes_of
from pipelines.data.text_files import relative
from pipelines.errors import InputError


def parquet_records(path: Path, base: Path) -> tuple[list[str], list[Record]]:
    """The columns of a file and its rows; a record's line is its row, from 1. Raises InputError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    name = relative(path, base)
    data = bytes_of(path, name)
    try:
        table = pq.read_table(pa.BufferReader(data), use_threads=False)
        table.validate(full=True)
        columns, listed = table.column_names, table.to_pylist()
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as e:
        raise InputError("is not a readable Parquet file", where=name, cure="is it one at all?") from e
    twice = sorted({c for c in columns if columns.count(c) > 1})
    if twice:
        raise InputError(f"two columns are named {twice[0]!r}", where=name, cure="rename one of them")
    if not listed:
        raise InputError("has columns and no rows", where=name, cure="give it rows or take it away")
    return columns, [Record(name, n, row, _raw(row)) for n, row in enumerate(listed, 1)]


def _raw(row: dict[str, Any]) -> str:
    """What a reject keeps of a row."""
    text = str({c: v if not isinstance(v, str | bytes) else v[:LONGEST_RAW] for c, v in row.items()})
    return ascii(text[:LONGEST_RAW])[:LONGEST_RAW] if unwritable(text) else text[:LONGEST_RAW]
