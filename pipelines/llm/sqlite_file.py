"""Opening the SQLite files that several processes write: the store, and the ledgers beside it."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

BUSY_S = 30.0  # for the end of another process's transaction
TURN_S = 0.01


class Whereabouts:
    """Where a file is that was just opened. What is written to one that is gone nobody would find."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._seen = self._path.stat()

    def require(self) -> None:
        """Raises OSError when the file was removed, or another took its place."""
        try:
            there = os.path.samestat(self._path.stat(), self._seen)
        except FileNotFoundError:
            there = False
        if not there:
            raise FileNotFoundError(errno.ENOENT, "it was removed, or replaced, while it was used")


def open_shared(path: Path) -> sqlite3.Connection:
    """The file, made when absent, for all threads of a process; transactions are begun by hand."""
    return sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All that is written within, or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # the first fault is the one to tell
            if db.in_transaction:
                db.execute("ROLLBACK")
        raise


def mark(db: sqlite3.Connection) -> tuple[bool, int, int]:
    """Whether it has tables, whose file it is (its application's number), and its version."""
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    application = db.execute("PRAGMA application_id").fetchone()[0]
    return bool(tables), int(application), int(db.execute("PRAGMA user_version").fetchone()[0])


def write_ahead(db: sqlite3.Connection) -> None:
    """Readers do not wait for a writer any more. Raises sqlite3.OperationalError after BUSY_S.

    SQLite's own time-out does not hold for this change: of two processes that open a new file in the
    same moment, one would be refused at once.
    """
    end = time.monotonic() + BUSY_S
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > end:
                raise
        time.sleep(TURN_S)
