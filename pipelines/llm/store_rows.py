"""The rows of the response store: what an answer and its record are, and their checksums.

Law: a row has two checksums. One is over what is handed out (key, text, failure, tokens, money)
and is tried at each reading; the other is over all else (the question, the raw body, how it was
asked) as well, and is tried whenever the whole row is read.
"""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from zlib import crc32

from pipelines.llm.answer import Failure, Usage

# What may be kept: an answer, and the failures that belong to the question itself.
KEPT_FAILURES = frozenset({Failure.LENGTH, Failure.FILTERED, Failure.REFUSED, Failure.EMPTY})

COLUMNS = (
    "key, kind, model, identity, request, text, finish, failure, detail, prompt_tokens, completion_tokens, "
    "cost_usd, latency_ms, attempts, row, purpose, made_at, body, checksum, history, media, cached_tokens, "
    "whole"
)
KEPT_COLUMNS = (
    "key, text, finish, failure, detail, prompt_tokens, completion_tokens, cost_usd, cached_tokens, checksum"
)
# What a store of version 1 has in their place.
COLUMNS_V1 = COLUMNS.replace("history, media, cached_tokens, whole", "'[]', '[]', 0, NULL")
KEPT_COLUMNS_V1 = KEPT_COLUMNS.replace("cached_tokens", "0")
VECTOR_COLUMNS = "key, identity, prompt, vector, checksum"
NOTHING = Usage()
_usage = lru_cache(maxsize=65_536)(Usage)  # values recur, and making them is a third of reading a row
_FAILURES: dict[str, Failure | None] = {"": None} | {f.value: f for f in Failure}
ZLIB = b"\x78"  # the first byte of every compressed body, and of no plain one
PLAIN_MOST = 1024


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
    """One row of the store, as `headrace trace` shows it. `key` is the answer's id.

    `history` is JSON text, a list of the attempts: {"outcome", "seconds", "waited_s"} each; `media` too,
    where the parts lie that are no text: {"sha256", "ref"} each.
    `made_at` is in seconds since 1970; 0 is the moment of the commit.
    """

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
    history: str = "[]"
    media: str = "[]"
    made_at: int = field(default=0, compare=False)


def handed_out(row: Sequence[Any]) -> Kept | None:
    """What a row of `KEPT_COLUMNS` says; None when it is damaged."""
    key, text, finish, failure, detail, asked, drawn, usd, cached, checksum = row
    told = f"{text}\x1f{finish}\x1f{failure}\x1f{detail}\x1f{asked}\x1f{drawn}\x1f{usd}"
    if cached:
        told += f"\x1f{cached}"
    if crc32(told.encode("utf-8", "surrogatepass"), crc32(key)) != checksum:
        return None
    return Kept(text, finish, _usage(asked, drawn, usd, cached), _FAILURES.get(failure), detail)


def _checksum(values: Sequence[Any]) -> int:
    """Of the values of `KEPT_COLUMNS` without the checksum; `handed_out` has it too, for speed."""
    key, *told, cached = values
    text = "\x1f".join(map(str, [*told, cached] if cached else told))
    return crc32(text.encode("utf-8", "surrogatepass"), crc32(key))


def whole_of(row: Sequence[Any]) -> int:
    """Of the values of `COLUMNS` without the last."""
    question, asker, body, checksum, further = row[1:5], row[12:17], row[17], row[18], row[19:22]
    text = "\x1f".join(map(str, (*question, *asker, checksum, *further)))
    return crc32(text.encode("utf-8", "surrogatepass"), crc32(body))


def _kept(row: Sequence[Any]) -> Kept | None:
    """What a row of `COLUMNS` hands out; None when that is damaged."""
    return handed_out((row[0], *row[5:12], row[21], row[18]))


def is_sound(row: Sequence[Any]) -> bool:
    """Whether both checksums of a row of `COLUMNS` hold; one of version 1 has only the first."""
    try:
        return _kept(row) is not None and (row[22] is None or whole_of(row) == row[22])
    except TypeError:  # a column of another type than was written
        return False


def is_sound_vector(row: Sequence[Any]) -> bool:
    """Whether the checksum of a row of `VECTOR_COLUMNS` holds."""
    key, _, _, vector, checksum = row
    return isinstance(vector, bytes) and vector_checksum(key, vector) == checksum


def vector_checksum(key: bytes, vector: bytes) -> int:
    return crc32(vector, crc32(key))


def row_of(record: Record) -> tuple[Any, ...]:
    """The values of `COLUMNS`. Raises ValueError for a passing failure and for a key that is none."""
    kept, usage = record.kept, record.kept.usage
    if kept.failure is not None and kept.failure not in KEPT_FAILURES:
        raise ValueError(f"a passing failure is not kept: {kept.failure}")
    key, failure = bytes.fromhex(record.key), kept.failure.value if kept.failure else ""
    answer = (kept.text, kept.finish, failure, kept.detail)
    spent = (usage.prompt_tokens, usage.completion_tokens, float(usage.cost_usd))
    question = (key, record.kind, record.model, record.identity, record.request)
    made_at = record.made_at or int(time.time())
    asker = (record.latency_ms, record.attempts, record.row, record.purpose, made_at)
    body = _packed(record.body)
    checksum = _checksum((key, *answer, *spent, usage.cached_tokens))
    further = (record.history, record.media, usage.cached_tokens)
    row = (*question, *answer, *spent, *asker, body, checksum, *further)
    return (*row, whole_of(row))


def record_of(row: Sequence[Any]) -> Record:
    """From a sound row of `COLUMNS`. Raises ValueError for another."""
    key, kind, model, identity, request = row[:5]
    latency, attempts, asker, purpose, made_at, body = row[12:18]
    kept = _kept(row)
    if kept is None:
        raise ValueError("a damaged row is no record")
    return Record(
        key.hex(),
        kind,
        model,
        identity,
        request,
        kept,
        zlib.decompress(body) if body[:1] == ZLIB else body,
        latency,
        attempts,
        asker,
        purpose,
        row[19],
        row[20],
        made_at,
    )


def _packed(body: bytes) -> bytes:
    """A short body as it is: compressing costs it more than it saves, and a switch of threads."""
    return body if len(body) <= PLAIN_MOST and body[:1] != ZLIB else zlib.compress(body, 1)


def as_text(value: Any) -> Any:
    """A value of any row as JSON can hold it, for the table of damaged rows."""
    return f"hex:{value.hex()}" if isinstance(value, bytes) else value


def add_functions(db: sqlite3.Connection) -> None:
    """What the upgrade calls from SQL: WHOLE(the columns of a row, in order)."""
    db.create_function("whole", 22, lambda *row: whole_of(row), deterministic=True)
