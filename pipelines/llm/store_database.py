"""The tables of a response store: reading, transactions, damaged rows set aside.

Law: whatever SQLite reports is a named fault, and what was committed before it stays. A damaged row
fails alone; it is taken out of use and kept for a look in the table `damaged`.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from pipelines.llm.request import key_of
from pipelines.llm.sqlite_file import Whereabouts, transaction
from pipelines.llm.store_errors import BrokenStore, GoneStore, as_fault
from pipelines.llm.store_rows import COLUMNS, VECTOR_COLUMNS, as_text, is_sound, is_sound_vector
from pipelines.llm.uninterrupted import UNINTERRUPTED

READ_BATCH = 500  # SQLite allows 32,766 parameters; larger batches gain nothing
SOUND: dict[str, tuple[str, Callable[[Sequence[Any]], bool]]] = {
    "answers": (COLUMNS, is_sound),
    "embeddings": (VECTOR_COLUMNS, is_sound_vector),
}


class Database:
    """One connection, shared by the threads of a process. `columns` are those of the answers there."""

    path: Path
    columns: str
    _db: sqlite3.Connection
    _lock: threading.RLock
    _file: Whereabouts | None = None  # of a store that can be written

    def scan(self, table: str, where: str = "1", values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Every row of "answers" or "embeddings" by key, damaged ones too, in the order of their columns.

        No lock is held between two batches. `where` is a condition in SQL on `values`.
        """
        columns = self.columns if table == "answers" else SOUND[table][0]
        query = f"SELECT {columns} FROM {table} WHERE key > ? AND ({where}) ORDER BY key LIMIT {READ_BATCH}"
        last = b""
        while rows := self._fetch(query, (last, *values)):
            yield from rows
            last = rows[-1][0]

    def salvage(self, table: str) -> Iterator[tuple[Any, ...]]:
        """Every row that can be read of a file of which parts cannot, in no order of keys."""
        columns = self.columns if table == "answers" else SOUND[table][0]
        query = f"SELECT {columns} FROM {table} WHERE rowid BETWEEN ? AND ?"
        last = self._fetch(f"SELECT max(rowid) FROM {table}", ())[0][0] or 0
        for start in range(1, last + 1, READ_BATCH):
            end = min(start + READ_BATCH - 1, last)
            try:
                yield from self._fetch(query, (start, end))
            except BrokenStore:
                for one in range(start, end + 1):
                    with suppress(BrokenStore):
                        yield from self._fetch(query, (one, one))

    def set_aside(self, table: str, keys: Iterable[bytes]) -> int:
        """Take damaged rows out of use, kept for a look in the table `damaged`; how many were damaged.

        A row that another process has mended meanwhile stays.
        """
        columns, sound = SOUND[table]
        count = 0
        with self._guard(), self._write():
            for key in keys:
                for row in self._fetch(f"SELECT {columns} FROM {table} WHERE key = ?", (key,)):
                    if not (sound(row) and is_named_by_its_request(table, row)):
                        self._set_aside(table, row)
                        count += 1
        return count

    def remove(self, table: str, keys: Sequence[bytes]) -> None:
        """Take rows away for good, in one transaction."""
        with self._guard(), self._write():
            self._db.executemany(f"DELETE FROM {table} WHERE key = ?", [(k,) for k in keys])

    def compact(self) -> None:
        """Give the room of removed rows back to the disk. Raises LockedStore, FullDisk: nothing is lost."""
        with self._guard():
            self._db.execute("VACUUM")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a statement that reads; for `headrace store stats`."""
        return self._fetch(statement, values)

    def count(self) -> int:
        return int(self._fetch("SELECT count(*) FROM answers", ())[0][0])

    @contextmanager
    def _guard(self) -> Iterator[None]:
        with UNINTERRUPTED, self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise as_fault(error, self.path) from error

    @contextmanager
    def _write(self) -> Iterator[None]:
        if self._file is not None:
            try:
                self._file.require()
            except OSError as error:
                what, cure = f"the response store: {error.strerror}", "put it back, or begin a new one"
                raise GoneStore(what, where=str(self.path), cure=cure) from error
        with transaction(self._db):
            yield

    def _in_batches(self, columns: str, table: str, keys: Iterable[str]) -> Iterator[tuple[Any, ...]]:
        wanted = iter(keys)
        while chunk := [bytes.fromhex(k) for k in islice(wanted, READ_BATCH)]:
            yield from self._select(columns, table, chunk)

    def _select(self, columns: str, table: str, keys: Sequence[bytes]) -> list[tuple[Any, ...]]:
        return self._fetch(f"SELECT {columns} FROM {table} WHERE key IN ({marks(len(keys))})", keys)

    def _fetch(self, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._guard():
            try:
                return self._db.execute(query, values).fetchall()
            except sqlite3.OperationalError as error:
                if "decode to UTF-8" not in str(error):
                    raise
            self._db.text_factory = _text_or_bytes  # a damaged row is to fail alone
            try:
                return self._db.execute(query, values).fetchall()
            finally:
                self._db.text_factory = str

    def _set_aside(self, table: str, row: Sequence[Any]) -> None:
        content = json.dumps([as_text(v) for v in row], ensure_ascii=False)
        self._db.execute(
            "INSERT INTO damaged VALUES (?, ?, ?, ?)", (table, row[0], int(time.time()), content)
        )
        self._db.execute(f"DELETE FROM {table} WHERE key = ?", (row[0],))


def is_named_by_its_request(table: str, row: Sequence[Any]) -> bool:
    """Whether an answer's key is the hash of its request, as it was when it was written."""
    if not (isinstance(row[0], bytes) and isinstance(row[4], str | int)):
        return False
    return table != "answers" or key_of(str(row[4])) == row[0].hex()


def _text_or_bytes(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def marks(count: int) -> str:
    return ",".join("?" * count)
