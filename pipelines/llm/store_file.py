"""The response store's file: opening it, its version, its tables.

Law: a file that is not ours, or newer than we know, is left as it is and named.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from pipelines.llm.store_errors import NewerStore, NotAStore, ReadOnlyStore

VERSION = 1
APPLICATION_ID = 0x48445243  # "HDRC"
BUSY_MS = 30_000

_SCHEMA = f"""
CREATE TABLE answers (
  key BLOB PRIMARY KEY, kind TEXT NOT NULL, model TEXT NOT NULL, identity TEXT NOT NULL,
  request TEXT NOT NULL, text TEXT NOT NULL, finish TEXT NOT NULL, failure TEXT NOT NULL,
  detail TEXT NOT NULL, prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
  cost_usd REAL NOT NULL, latency_ms INTEGER NOT NULL, attempts INTEGER NOT NULL,
  row TEXT NOT NULL, purpose TEXT NOT NULL, made_at INTEGER NOT NULL, body BLOB NOT NULL,
  checksum INTEGER NOT NULL);
CREATE TABLE embeddings (
  key BLOB PRIMARY KEY, identity TEXT NOT NULL, prompt TEXT NOT NULL, vector BLOB NOT NULL,
  checksum INTEGER NOT NULL);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
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
    return sqlite3.connect(path, timeout=BUSY_MS / 1000, isolation_level=None, check_same_thread=False)


def prepare(db: sqlite3.Connection, path: Path, readonly: bool) -> None:
    """Check whose file it is and which version; make the tables of a new one."""
    db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    application = db.execute("PRAGMA application_id").fetchone()[0]
    version = db.execute("PRAGMA user_version").fetchone()[0]
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if tables and application != APPLICATION_ID:
        raise NotAStore("is a database, but not a response store", where=str(path), cure="name another file")
    if version > VERSION:
        raise NewerStore(
            f"the response store has version {version}, this headrace reads up to {VERSION}",
            where=str(path),
            cure="use the headrace that wrote it, or name another store",
        )
    if readonly:
        return
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    if not tables:
        _create(db)


def _create(db: sqlite3.Connection) -> None:
    """Make the tables, once, also when several processes open a new store together."""
    db.execute("BEGIN IMMEDIATE")
    if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        for statement in _SCHEMA.split(";"):
            db.execute(statement)
    db.execute("COMMIT")
