"""The response store: every answer once, in one SQLite file that several processes share.

Law: an answer is committed, and synced to the disk, before anyone is handed it; the first
answer committed under a key is the answer for all. So a kill at any instant loses nothing that
was used, and two processes that ask the same question at once go on with the same text.

WAL, `synchronous=FULL`, one transaction for all answers that came while the one before it was
being written: no timer, an answer waits at most for the commit before its own (median 12-15 ms for
groups of 20 on a busy disk, 95 % under 55 ms).
Each row carries a checksum; a damaged row counts as absent and is replaced when it is asked again.
"""

from __future__ import annotations

import sqlite3
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pipelines.llm.answer import Failure, Usage
from pipelines.llm.store_errors import as_fault
from pipelines.llm.store_file import connect, prepare

if TYPE_CHECKING:
    import numpy as np

READ_BATCH = 500  # SQLite allows 32,766 parameters; larger batches gain nothing

# What may be kept: an answer, and the failures that belong to the question itself.
KEPT_FAILURES = frozenset({Failure.LENGTH, Failure.FILTERED, Failure.REFUSED, Failure.EMPTY})

_COLUMNS = (
    "key, kind, model, identity, request, text, finish, failure, detail, prompt_tokens, "
    "completion_tokens, cost_usd, latency_ms, attempts, row, purpose, made_at, body, checksum"
)
_KEPT_COLUMNS = "key, text, finish, failure, detail, prompt_tokens, completion_tokens, cost_usd, checksum"


NOTHING = Usage()


@dataclass(frozen=True, slots=True)
class Kept:
    """What the store says an answer is. `text` is whole also for LENGTH."""

    text: str
    finish: str = ""
    usage: Usage = NOTHING
    failure: Failure | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """One row of the store, as `headrace trace` shows it. `key` is the answer's id."""

    key: str
    kind: str
    model: str
    identity: str
    request: str  # canonical JSON, the text that was hashed into `key`
    kept: Kept
    body: bytes  # the raw response
    latency_ms: int = 0
    attempts: int = 1
    row: str = ""
    purpose: str = ""


class Store:
    """The store at `path`, made when absent. Safe to use from several threads and processes.

    Raises NewerStore, NotAStore, ReadOnlyStore, LockedStore, FullDisk (all EnvironmentFault).
    """

    def __init__(self, path: Path, *, readonly: bool = False) -> None:
        self.path, self.readonly = path, readonly
        self._lock = threading.RLock()
        self._damaged: set[bytes] = set()
        with self._guard():
            self._db = connect(path, readonly)
            try:
                prepare(self._db, path, readonly)
            except BaseException:
                self._db.close()
                raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def answers(self, keys: Iterable[str]) -> dict[str, Kept]:
        """What is stored of `keys`, read in batches; a damaged row counts as absent."""
        found: dict[str, Kept] = {}
        for row in self._select(_KEPT_COLUMNS, "answers", keys):
            if row[-1] == _checksum(row[:-1]):
                found[row[0].hex()] = _kept(row[1:-1])
            else:
                self._damaged.add(row[0])
        return found

    def full(self, keys: Iterable[str]) -> dict[str, Record]:
        """The whole rows of `keys`: question, parameters, raw body; for `headrace trace`."""
        return {row[0].hex(): _record(row) for row in self._select(_COLUMNS, "answers", keys)}

    def record(self, key: str) -> Record | None:
        """The whole row of the answer `key`, or None."""
        return self.full([key]).get(key)

    def asked_for(self, *, purpose: str, row: str) -> list[Record]:
        """The rows asked for one row and purpose: what a replay that misses is compared with."""
        with self._guard():
            rows = self._db.execute(
                f"SELECT {_COLUMNS} FROM answers WHERE purpose = ? AND row = ? ORDER BY key", (purpose, row)
            ).fetchall()
        return [_record(r) for r in rows]

    def count(self) -> int:
        with self._guard():
            return int(self._db.execute("SELECT count(*) FROM answers").fetchone()[0])

    def put(self, records: Sequence[Record]) -> dict[str, Kept]:
        """Commit `records` in one transaction; returns what now stands under their keys.

        An answer that another process committed first is kept and returned instead.
        """
        rows = [_row(r) for r in records]
        with self._guard(), self._write():
            self._drop_damaged("answers", [r[0] for r in rows])
            self._db.executemany(f"INSERT OR IGNORE INTO answers VALUES ({_marks(len(rows[0]))})", rows)
        return self.answers([r.key for r in records])

    def embeddings(self, keys: Iterable[str]) -> dict[str, np.ndarray]:
        """Stored vectors, float32 [dim] each."""
        import numpy as np

        found = {}
        for key, vector, checksum in self._select("key, vector, checksum", "embeddings", keys):
            if zlib.crc32(vector, zlib.crc32(key)) == checksum:
                found[key.hex()] = np.frombuffer(vector, dtype=np.float32)
            else:
                self._damaged.add(key)
        return found

    def put_embeddings(self, identity: str, rows: Sequence[tuple[str, str, np.ndarray]]) -> None:
        """Commit (key, prompt, float32 vector) rows of one embedding model in one transaction."""
        packed = []
        for key, prompt, vector in rows:
            raw, blob = bytes.fromhex(key), vector.astype("<f4").tobytes()
            packed.append((raw, identity, prompt, blob, zlib.crc32(blob, zlib.crc32(raw))))
        with self._guard(), self._write():
            self._drop_damaged("embeddings", [p[0] for p in packed])
            self._db.executemany("INSERT OR IGNORE INTO embeddings VALUES (?, ?, ?, ?, ?)", packed)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise as_fault(error, self.path) from error

    @contextmanager
    def _write(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _select(self, columns: str, table: str, keys: Iterable[str]) -> Iterator[tuple[Any, ...]]:
        wanted = iter(keys)
        while chunk := [bytes.fromhex(k) for k in islice(wanted, READ_BATCH)]:
            query = f"SELECT {columns} FROM {table} WHERE key IN ({_marks(len(chunk))})"
            with self._guard():
                rows = self._db.execute(query, chunk).fetchall()
            yield from rows

    def _drop_damaged(self, table: str, keys: Sequence[bytes]) -> None:
        for key in self._damaged.intersection(keys):
            self._db.execute(f"DELETE FROM {table} WHERE key = ?", (key,))
            self._damaged.discard(key)


def _marks(count: int) -> str:
    return ",".join("?" * count)


def _kept(values: Sequence[Any]) -> Kept:
    text, finish, failure, detail, asked, drawn, usd = values
    usage = Usage(asked, drawn, usd)
    return Kept(text, finish, usage, Failure(failure) if failure else None, detail)


def _checksum(values: Sequence[Any]) -> int:
    key, *rest = values
    return zlib.crc32("\x1f".join(map(str, rest)).encode("utf-8", "surrogatepass"), zlib.crc32(key))


def _row(record: Record) -> tuple[Any, ...]:
    kept, usage = record.kept, record.kept.usage
    if kept.failure is not None and kept.failure not in KEPT_FAILURES:
        raise ValueError(f"a passing failure is not kept: {kept.failure}")
    key, failure = bytes.fromhex(record.key), kept.failure.value if kept.failure else ""
    answer = (kept.text, kept.finish, failure, kept.detail)
    spent = (usage.prompt_tokens, usage.completion_tokens, float(usage.cost_usd))
    question = (key, record.kind, record.model, record.identity, record.request)
    asker = (record.latency_ms, record.attempts, record.row, record.purpose, int(time.time()))
    body = zlib.compress(record.body, 1)
    return (*question, *answer, *spent, *asker, body, _checksum((key, *answer, *spent)))


def _record(row: Sequence[Any]) -> Record:
    key, kind, model, identity, request, *rest = row
    kept, (latency, attempts, asker, purpose, _, body, _) = _kept(rest[:7]), rest[7:]
    return Record(
        key.hex(),
        kind,
        model,
        identity,
        request,
        kept,
        zlib.decompress(body),
        latency,
        attempts,
        asker,
        purpose,
    )
