"""Exports of a response store, written: one Parquet file, zstd, by key.

Law: equal answers give equal bytes, and a file at its place is whole: it is written beside, synced
and renamed. What a plain export leaves out is what two runs that got the same answers would not
share: when, how fast and in how many attempts, and the raw body, but for the log probabilities that
a request asked for.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from pipelines.errors import EnvironmentFault
from pipelines.llm.request import Request, canonical
from pipelines.llm.store_lent import BATCH, EMBEDDING, schema
from pipelines.llm.store_rows import Record, is_sound, is_sound_vector, record_of

if TYPE_CHECKING:
    from pipelines.llm.store import Store

CURE = "free some disk space or make the folder writable, then run again"


@dataclass(frozen=True)
class Exported:
    """What an export holds."""

    answers: int
    embeddings: int
    bytes: int


def export_all(store: Store, path: Path) -> Exported:
    """All sound rows of the store. Raises EnvironmentFault."""
    answers = (_row(record_of(r)) for r in store.scan("answers") if is_sound(r))
    vectors = (_vector_row(r[0].hex(), *r[1:4]) for r in store.scan("embeddings") if is_sound_vector(r))
    return write(answers, vectors, path)


def export_some(
    store: Store, answers: Iterable[str], embeddings: Iterable[str], path: Path, *, plain: bool = False
) -> Exported:
    """The rows of these keys, as far as the store has them. Raises EnvironmentFault."""
    return write(_rows(store, answers, plain), _vector_rows(store, embeddings), path)


def write(answers: Iterator[dict[str, Any]], vectors: Iterator[dict[str, Any]], path: Path) -> Exported:
    """Writes rows that come sorted by key, in bounded memory. Raises EnvironmentFault."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    form, counts = schema(), {True: 0, False: 0}
    rows = heapq.merge(answers, vectors, key=lambda row: row["key"])
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with pq.ParquetWriter(
            beside, form, compression="zstd", compression_level=9, write_page_checksum=True
        ) as file:
            while batch := list(islice(rows, BATCH)):
                for row in batch:
                    counts[row["kind"] == EMBEDDING] += 1
                file.write_table(pa.Table.from_pylist(batch, form))
        with open(beside, "rb") as written:
            os.fsync(written.fileno())
        os.replace(beside, path)
    except OSError as error:
        raise EnvironmentFault(
            f"cannot write: {error.strerror or error}", where=str(path), cure=CURE
        ) from error
    finally:
        with suppress(OSError):
            beside.unlink()
    return Exported(counts[False], counts[True], path.stat().st_size)


def _rows(store: Store, keys: Iterable[str], plain: bool) -> Iterator[dict[str, Any]]:
    wanted = iter(sorted(set(keys)))
    while chunk := list(islice(wanted, BATCH)):
        found = store.full(chunk)
        yield from (_row(found[k], plain) for k in chunk if k in found)


def _vector_rows(store: Store, keys: Iterable[str]) -> Iterator[dict[str, Any]]:
    wanted = iter(sorted(set(keys)))
    while chunk := list(islice(wanted, BATCH)):
        found = store.vectors(chunk)
        yield from (_vector_row(k, *found[k]) for k in chunk if k in found)


def _row(record: Record, plain: bool = False) -> dict[str, Any]:
    kept, usage = record.kept, record.kept.usage
    return {
        "key": record.key,
        "kind": record.kind,
        "model": record.model,
        "identity": record.identity,
        "request": record.request,
        "text": kept.text,
        "finish": kept.finish,
        "failure": str(kept.failure or ""),
        "detail": kept.detail,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cached_tokens": 0 if plain else usage.cached_tokens,
        "latency_ms": 0 if plain else record.latency_ms,
        "attempts": 1 if plain else record.attempts,
        "made_at": 0 if plain else record.made_at,
        "cost_usd": usage.cost_usd,
        "row": record.row,
        "purpose": record.purpose,
        "history": "[]" if plain else record.history,
        "media": record.media,
        "body": _measured(record) if plain else record.body,
        "vector": None,
    }


def _measured(record: Record) -> bytes:
    """What a plain export keeps of a body: the log probabilities, where they were asked for."""
    sampling = orjson.loads(record.request).get("sampling") if '"logprobs"' in record.request else None
    if not sampling or sampling.get("logprobs") is None:
        return b""
    try:
        told = orjson.loads(record.body)["choices"][0]["logprobs"]
    except (ValueError, KeyError, IndexError, TypeError):  # an answer that has none
        return b""
    return orjson.dumps({"choices": [{"logprobs": told}]}, option=orjson.OPT_SORT_KEYS) if told else b""


def _vector_row(key: str, identity: str, text: str, vector: bytes) -> dict[str, Any]:
    """An embedding in the columns of an answer; its request is what its key was made of."""
    empty = dict.fromkeys(("model", "finish", "failure", "detail", "row", "purpose"), "")
    none = dict.fromkeys(("prompt_tokens", "completion_tokens", "cached_tokens", "latency_ms", "made_at"), 0)
    return {
        **empty,
        **none,
        "key": key,
        "kind": EMBEDDING,
        "identity": identity,
        "request": canonical(Request("embedding", "", prompt=text), identity),
        "text": text,
        "attempts": 1,
        "cost_usd": 0.0,
        "history": "[]",
        "media": "[]",
        "body": b"",
        "vector": vector,
    }
