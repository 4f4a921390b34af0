"""What can be wrong with the response store's file, each with its own name and cure."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from pipelines.errors import EnvironmentFault, HeadraceError, StageError


class NotAStore(EnvironmentFault):
    """The file is absent, is no database, or is another program's."""


class NewerStore(EnvironmentFault):
    """The store was written by a later version of this project."""


class ReadOnlyStore(EnvironmentFault):
    """The store, its folder or its disk cannot be written."""


class LockedStore(EnvironmentFault):
    """Another process holds the store for longer than the busy time-out."""


class GoneStore(EnvironmentFault):
    """Its file is no longer where it was: what is written there nobody would find."""


class FullDisk(EnvironmentFault):
    """No room to commit: nothing of the transaction was kept, all earlier answers were."""


class BrokenStore(EnvironmentFault):
    """SQLite reports damage or an input/output error."""


_BY_NAME: tuple[tuple[str, type[HeadraceError], str, str], ...] = (
    ("SQLITE_NOTADB", NotAStore, "is not a response store", "name another file or move this one away"),
    (
        "SQLITE_READONLY",
        ReadOnlyStore,
        "the response store cannot be written",
        "make it and its folder writable",
    ),
    ("SQLITE_CANTOPEN", ReadOnlyStore, "the response store cannot be opened", "make its folder writable"),
    ("SQLITE_FULL", FullDisk, "no disk space for the response store", "free some space and run again"),
    ("SQLITE_BUSY", LockedStore, "the response store is locked", "wait for the process that holds it"),
    ("SQLITE_LOCKED", LockedStore, "the response store is locked", "wait for the process that holds it"),
    ("SQLITE_IOERR", FullDisk, "the response store cannot be written", "check the disk and its free space"),
)


def as_fault(error: sqlite3.Error, path: Path) -> HeadraceError:
    """The named fault behind an SQLite error; the earlier answers are safe in every case."""
    name = getattr(error, "sqlite_errorname", "")
    for prefix, kind, what, cure in _BY_NAME:
        if name.startswith(prefix):
            return kind(what, where=str(path), cure=cure)
    if "closed database" in str(error):
        return StageError("the response store was closed while it was used", where=str(path))
    cure = "move it away, then `headrace store import` it: what can be read comes back"
    return BrokenStore(f"the response store fails: {error}", where=str(path), cure=cure)
