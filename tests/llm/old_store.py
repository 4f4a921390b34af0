"""A response store as version 1 wrote it, and a process that is killed while it upgrades one.

Run: old_store.py PATH STEP, STEP the statement of the upgrade (from 1) after which it kills itself,
or "row:N" for the N-th row.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import zlib
from pathlib import Path

V1 = """
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
PRAGMA application_id = 1212437059;
PRAGMA user_version = 1;
"""


def write(path: Path, answers: dict[str, tuple[str, str]]) -> None:
    """A store of version 1. `answers`: key -> (canonical request, text)."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.executescript(V1)
    for key, (request, text) in answers.items():
        raw, told = bytes.fromhex(key), (text, "stop", "", "", 5, 2, 0.25)
        checksum = zlib.crc32("\x1f".join(map(str, told)).encode(), zlib.crc32(raw))
        values = (raw, "completion", "m", "name:m", request, *told, 12, 1, "r1", "p", 1_700_000_000)
        body = zlib.compress(b'{"raw": true}', 1)
        db.execute(f"INSERT INTO answers VALUES ({','.join('?' * 19)})", (*values, body, checksum))
    vector = b"\0\0\x80?" * 4
    raw = bytes.fromhex("ee" * 32)
    db.execute(
        "INSERT INTO embeddings VALUES (?, 'e', 'query: x', ?, ?)",
        (raw, vector, zlib.crc32(vector, zlib.crc32(raw))),
    )
    db.commit()
    db.close()


def kill_while_upgrading(path: str, step: str) -> None:
    from pipelines.llm import store_file, store_rows
    from pipelines.llm.store import Store

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if step.startswith("row:"):
        real, left = store_rows.whole_of, [int(step[4:])]

        def counted(row: tuple[object, ...]) -> int:
            left[0] -= 1
            if left[0] == 0:
                die()
            return real(row)

        store_rows.whole_of = counted  # type: ignore[assignment]
    else:
        statements = [s for s in store_file._FROM_1.split(";") if s.strip()]

        def some(db: sqlite3.Connection, _: str) -> None:
            for statement in statements[: int(step)]:
                db.execute(statement)
            die()

        store_file._run = some
    Store(Path(path))


if __name__ == "__main__":
    kill_while_upgrading(*sys.argv[1:])
