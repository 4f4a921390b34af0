"""Parquet in and out.

Law: equal rows give equal bytes (sorted by row id, zstd, fixed row groups), and
a file at its place is whole: it is written beside, synced, and renamed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.errors import EnvironmentFault, InputError, StageError

ROW_GROUP = 50_000


def write_parquet(frame: pl.DataFrame, path: Path) -> None:
    """Writes the frame in the order given. Raises EnvironmentFault (disk full, read-only)."""

    def put(beside: Path) -> None:
        frame.write_parquet(
            beside, compression="zstd", compression_level=3, statistics=True, row_group_size=ROW_GROUP
        )

    replace(path, put)


def write_json(value: Any, path: Path) -> None:
    """Writes canonical JSON: sorted keys, two blanks, one newline at the end."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    replace(path, lambda beside: beside.write_text(text, encoding="utf-8"))


def replace(path: Path, put: Callable[[Path], object]) -> None:
    """Runs `put` on a name beside `path`, syncs, renames: the file is whole or absent."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        put(beside)
        with open(beside, "rb") as f:
            os.fsync(f.fileno())
        os.replace(beside, path)
    except (OSError, pl.exceptions.ComputeError) as e:
        with suppress(OSError):  # the first error is the one to tell
            beside.unlink()
        raise EnvironmentFault(
            f"cannot write: {e.strerror if isinstance(e, OSError) else e}",
            where=str(path),
            cure="free some disk space or make the folder writable, then run again",
        ) from e


def read_parquet(path: Path, made_by: str = "") -> pl.DataFrame:
    """Reads a whole artifact. Raises StageError when it is not there, InputError when damaged."""
    if not path.is_file():
        raise StageError("the artifact is not there", where=str(path), cure=f"headrace run {made_by}".strip())
    try:
        return pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as e:
        raise InputError(f"not a readable Parquet file: {e}", where=str(path), cure="headrace run") from e


def file_md5(path: Path) -> str:
    """MD5 of a file's bytes: what DVC calls the version of a single-file out."""
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "md5").hexdigest()
