"""Which questions are out in which batch: a file of SQLite beside the store, shared by processes.

Law: a question is recorded as out before it can be sent, in one transaction with its batch, and no
question is out in two batches. Its record holds all that its answer's row needs, so that whoever
finds the batch later, for whatever run, can keep what was paid for. Who sends holds `alone`: a
batch that was meant to be sent and has no id, seen from there, was left so by a process now dead.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TextIO

from pipelines.errors import ConfigError, EnvironmentFault
from pipelines.llm.claimants import Claimant
from pipelines.llm.sqlite_file import Whereabouts, mark, open_shared, transaction, write_ahead
from pipelines.llm.store_errors import NewerStore, NotAStore, as_fault
from pipelines.llm.uninterrupted import UNINTERRUPTED

VERSION = 1
APPLICATION_ID = 0x48445242  # "HDRB"
READ_BATCH = 500
TURN_S = 0.05
NOTICE_S = 3.0  # before it is said for whom we wait

_SCHEMA = f"""
CREATE TABLE batches (
  uid TEXT PRIMARY KEY, address TEXT NOT NULL, kind TEXT NOT NULL, model TEXT NOT NULL,
  requests INTEGER NOT NULL, made_at REAL NOT NULL, file TEXT NOT NULL DEFAULT '',
  id TEXT NOT NULL DEFAULT '', status TEXT NOT NULL DEFAULT 'planned', done INTEGER NOT NULL DEFAULT 0,
  failed INTEGER NOT NULL DEFAULT 0, unknown INTEGER NOT NULL DEFAULT 0, said TEXT NOT NULL DEFAULT '',
  open INTEGER NOT NULL DEFAULT 1);
CREATE TABLE lines (
  key BLOB PRIMARY KEY, uid TEXT NOT NULL, identity TEXT NOT NULL, request TEXT NOT NULL,
  row TEXT NOT NULL, purpose TEXT NOT NULL, media TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX lines_of_batch ON lines (uid);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
"""
_COLUMNS = "uid, address, kind, model, requests, made_at, file, id, status, done, failed, unknown, said, open"


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as recorded. `id` is empty until its maker gave it one, `file` until it was uploaded.

    `made_at` is UNIX time; `unknown` counts lines that came back for keys which it never asked.
    """

    uid: str
    address: str
    kind: str
    model: str
    requests: int
    made_at: float
    file: str = ""
    id: str = ""
    status: str = "planned"
    done: int = 0
    failed: int = 0
    unknown: int = 0
    said: str = ""
    open: bool = True


@dataclass(frozen=True, slots=True)
class Line:
    """One question that is out: what its answer's row will say."""

    key: str
    identity: str
    request: str  # canonical JSON
    row: str
    purpose: str
    media: str  # where its parts lie that are no text, as JSON


def ledger_path(store: Path) -> Path:
    """The ledger that belongs to the response store at `store`."""
    return store.with_name(f"{store.stem}.batches.sqlite")


@contextmanager
def ledger_of(store: Path) -> Iterator[Ledger | None]:
    """The ledger of a response store, to look at it; None where no batch was ever made."""
    path = ledger_path(store)
    if not path.is_file():
        yield None
        return
    ledger = Ledger(path)
    try:
        yield ledger
    finally:
        ledger.close()


def out_of(store: Path, keys: Iterable[str]) -> dict[str, str]:
    """{key: uid of its batch} of those that are out, by the ledger of a response store, if there is one."""
    with ledger_of(store) as ledger:
        return {} if ledger is None else ledger.out(keys)


def refuse_out(store: Path, keys: Iterable[str]) -> None:
    """Raises ConfigError when a question is out in a batch: to ask it singly would pay for it twice."""
    with ledger_of(store) as ledger:
        if ledger is None:
            return
        out = ledger.out(keys)
        first = next((b for b in ledger.batches() if b.uid in out.values()), None)
    if first is not None:
        raise ConfigError(
            f"{len(out)} of these questions are out in a batch, such as {first.id or first.uid}",
            where=first.address,
            cure="headrace batches --wait, or --cancel ID and then --wait",
        )


class Ledger:
    """The ledger at `path`, made when absent. Safe to use from several threads and processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        with self._guard():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = open_shared(path)
            try:
                self._where = Whereabouts(path)
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @contextmanager
    def alone(self, given_up: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Send batches as the only process that does; who waits for long says for whom.

        It is not taken from one that lives and gets nowhere: it may be about to make a batch, which would be
        paid for twice in whole. Raises EnvironmentFault when `given_up`.
        """
        with self.path.with_suffix(".lock").open("a+") as turn:  # freed by the system on any death
            began, told = time.monotonic(), False
            while not _taken(turn.fileno()):
                if given_up():
                    raise EnvironmentFault("stopped while another process sends its batches")
                if not told and time.monotonic() - began >= NOTICE_S:
                    told = True
                    line = f"  batches: waits for {_who(turn)}, which sends its own"
                    print(line, file=sys.stderr, flush=True)
                time.sleep(TURN_S)
            turn.truncate(0)
            turn.write(str(os.getpid()))
            turn.flush()
            yield

    def plan(self, batch: Batch, lines: Sequence[Line]) -> None:
        """Record that `batch` will be sent with `lines`, none of which is out yet."""
        row = (batch.uid, batch.address, batch.kind, batch.model, batch.requests, batch.made_at)
        keyed = [
            (bytes.fromhex(n.key), batch.uid, n.identity, n.request, n.row, n.purpose, n.media) for n in lines
        ]
        with self._write() as db:
            db.execute(
                "INSERT INTO batches (uid, address, kind, model, requests, made_at) VALUES (?,?,?,?,?,?)", row
            )
            db.executemany("INSERT INTO lines VALUES (?,?,?,?,?,?,?)", keyed)

    def note(self, uid: str, **seen: str | float) -> None:
        """Record what became known of a batch: file, id, status, done, failed, unknown, said."""
        names = ", ".join(f"{name} = ?" for name in seen)
        with self._write() as db:
            db.execute(f"UPDATE batches SET {names} WHERE uid = ?", (*seen.values(), uid))

    def end(self, uid: str, **seen: str | float) -> None:
        """Record that all of a batch is taken, by the first who took it; what it left may be asked again."""
        names = "".join(f", {name} = ?" for name in seen)
        with self._write() as db:
            db.execute(f"UPDATE batches SET open = 0{names} WHERE uid = ? AND open", (*seen.values(), uid))
            db.execute("DELETE FROM lines WHERE uid = ?", (uid,))

    def drop(self, uid: str) -> None:
        """Forget a batch that was never sent."""
        with self._write() as db:
            db.execute("DELETE FROM batches WHERE uid = ?", (uid,))
            db.execute("DELETE FROM lines WHERE uid = ?", (uid,))

    def batches(self, *, open_only: bool = True) -> list[Batch]:
        """In the order in which they were meant to be sent."""
        where = "WHERE open" if open_only else ""
        with self._guard():
            rows = self._db.execute(f"SELECT {_COLUMNS} FROM batches {where} ORDER BY made_at, uid")
            return [replace(Batch(*row), open=bool(row[-1])) for row in rows.fetchall()]

    def out(self, keys: Iterable[str]) -> dict[str, str]:
        """{key: uid of its batch} of those that are out."""
        found: dict[str, str] = {}
        for chunk in _chunks(keys):
            marks = ",".join("?" * len(chunk))
            with self._guard():
                rows = self._db.execute(f"SELECT key, uid FROM lines WHERE key IN ({marks})", chunk)
                found |= {key.hex(): uid for key, uid in rows.fetchall()}
        return found

    def keys(self, uid: str) -> list[str]:
        """All that one batch asks."""
        with self._guard():
            rows = self._db.execute("SELECT key FROM lines WHERE uid = ?", (uid,))
            return [key.hex() for (key,) in rows.fetchall()]

    def lines(self, uid: str, keys: Iterable[str]) -> dict[str, Line]:
        """The lines of one batch under `keys`; a key that it does not ask has none."""
        found: dict[str, Line] = {}
        for chunk in _chunks(keys):
            marks = ",".join("?" * len(chunk))
            columns = "key, identity, request, row, purpose, media"
            query = f"SELECT {columns} FROM lines WHERE uid = ? AND key IN ({marks})"
            with self._guard():
                for key, *rest in self._db.execute(query, (uid, *chunk)).fetchall():
                    found[key.hex()] = Line(key.hex(), *rest)
        return found

    def _prepare(self) -> None:
        db = self._db
        tables, application, version = mark(db)
        if tables and application != APPLICATION_ID:
            raise NotAStore("is no ledger of batches", where=str(self.path), cure="move it away")
        if version > VERSION:
            what = f"the ledger of batches has version {version}, this headrace reads up to {VERSION}"
            raise NewerStore(what, where=str(self.path), cure="use the headrace that wrote it")
        write_ahead(db)
        db.execute("PRAGMA synchronous = FULL")
        with transaction(db):  # several processes may open a new ledger together
            if not mark(db)[0]:
                for statement in _SCHEMA.split(";"):
                    db.execute(statement)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        with UNINTERRUPTED, self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise as_fault(error, self.path) from error
            except OSError as error:
                what = f"the ledger of batches cannot be written: {error.strerror}"
                raise EnvironmentFault(what, where=str(self.path), cure="name another folder") from error

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with self._guard():
            self._where.require()
            with transaction(self._db):
                yield self._db


def _chunks(keys: Iterable[str]) -> Iterator[list[bytes]]:
    wanted = iter(keys)
    while chunk := [bytes.fromhex(key) for key in islice(wanted, READ_BATCH)]:
        yield chunk


def _who(turn: TextIO) -> Claimant | str:
    """Whose turn it is, as the file says."""
    turn.seek(0)
    told = turn.read(20).strip()
    if not told.isdigit():
        return "another process"
    who = Claimant(int(told))
    return f"{who} (stopped: `kill -CONT {told}` lets it go on)" if who.stopped else who


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
