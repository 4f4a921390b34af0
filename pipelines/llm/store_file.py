"""The response store's file: opening it, its version, its tables, its upgrade.

Law: a file that is not ours, or newer than we know, is left as it is and named. An older one is
upgraded in one transaction: a kill in between leaves the old version whole.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from pipelines.llm.sqlite_file import BUSY_S, mark, open_shared, transaction, write_ahead
from pipelines.llm.store_errors import NewerStore, NotAStore, ReadOnlyStore
from pipelines.llm.store_rows import COLUMNS, add_functions

VERSION = 2
CACHE_KIB = 32 * 1024
APPLICATION_ID = 0x48445243  # "HDRC"

_DAMAGED = """
CREATE TABLE damaged (
  source TEXT NOT NULL, key BLOB NOT NULL, set_aside_at INTEGER NOT NULL, content TEXT NOT NULL);
"""
_SCHEMA = f"""
CREATE TABLE answers (
  key BLOB PRIMARY KEY, kind TEXT NOT NULL, model TEXT NOT NULL, identity TEXT NOT NULL,
  request TEXT NOT NULL, text TEXT NOT NULL, finish TEXT NOT NULL, failure TEXT NOT NULL,
  detail TEXT NOT NULL, prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
  cost_usd REAL NOT NULL, latency_ms INTEGER NOT NULL, attempts INTEGER NOT NULL,
  row TEXT NOT NULL, purpose TEXT NOT NULL, made_at INTEGER NOT NULL, body BLOB NOT NULL,
  checksum INTEGER NOT NULL, history TEXT NOT NULL DEFAULT '[]', media TEXT NOT NULL DEFAULT '[]',
  cached_tokens INTEGER NOT NULL DEFAULT 0, whole INTEGER);
CREATE TABLE embeddings (
  key BLOB PRIMARY KEY, identity TEXT NOT NULL, prompt TEXT NOT NULL, vector BLOB NOT NULL,
  checksum INTEGER NOT NULL);
{_DAMAGED.strip()}
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
"""
_FROM_1 = f"""
ALTER TABLE answers ADD COLUMN history TEXT NOT NULL DEFAULT '[]';
ALTER TABLE answers ADD COLUMN media TEXT NOT NULL DEFAULT '[]';
ALTER TABLE answers ADD COLUMN cached_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE answers ADD COLUMN whole INTEGER;
UPDATE answers SET whole = whole({COLUMNS.removesuffix(", whole")});
{_DAMAGED}
PRAGMA user_version = 2;
"""


def connect(path: Path, readonly: bool) -> sqlite3.Connection:
    """Open the file, made when absent and not `readonly`; nothing in it is read yet."""
    if readonly:
        if not path.is_file():
            raise NotAStore(
                "there is no response store", where=str(path), cure="run the stage that asks first"
            )
        # A store on read-only media has no room for WAL's shared memory; without a WAL it needs none.
        frozen = "" if path.with_name(path.name + "-wal").exists() else "&immutable=1"
        uri = f"{path.absolute().as_uri()}?mode=ro"
        try:
            db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
            db.execute("SELECT count(*) FROM sqlite_master")
            return db
        except sqlite3.OperationalError:
            return sqlite3.connect(uri + frozen, uri=True, isolation_level=None, check_same_thread=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"the response store's folder cannot be made: {error.strerror}"
        raise ReadOnlyStore(what, where=str(path.parent), cure="name another folder") from error
    return open_shared(path)


def in_memory() -> sqlite3.Connection:
    """A store without a file, empty."""
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _create(db)
    return db


def prepare(db: sqlite3.Connection, path: Path, readonly: bool) -> int:
    """Check whose file it is; make the tables of a new one, upgrade an older one; its version."""
    db.execute(f"PRAGMA busy_timeout = {int(BUSY_S * 1000)}")
    db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")  # keys come in no order, so all of the file is in use
    tables, application, version = mark(db)
    if tables and application != APPLICATION_ID:
        raise NotAStore("is a database, but not a response store", where=str(path), cure="name another file")
    if version > VERSION:
        raise NewerStore(
            f"the response store has version {version}, this headrace reads up to {VERSION}",
            where=str(path),
            cure="use the headrace that wrote it, or name another store",
        )
    if readonly:
        if not tables:
            raise NotAStore("is empty, no response store", where=str(path), cure="name another file")
        return version
    write_ahead(db)
    db.execute("PRAGMA synchronous = FULL")
    if not tables:
        _create(db)
    elif version < VERSION:
        _upgrade(db)
    return VERSION


def _create(db: sqlite3.Connection) -> None:
    """Make the tables, once, also when several processes open a new store together."""
    with transaction(db):
        if not mark(db)[0]:
            _run(db, _SCHEMA)


def _upgrade(db: sqlite3.Connection) -> None:
    """From version 1 in place, in one transaction; the second of two processes finds it done."""
    add_functions(db)
    with transaction(db):
        if mark(db)[2] < VERSION:
            _run(db, _FROM_1)


def _run(db: sqlite3.Connection, statements: str) -> None:
    for statement in statements.split(";"):
        db.execute(statement)
