"""Exports of a response store, read: answers that travel as one Parquet file, and their way into a store.

Law: what an export says is checked before it is taken (the file's own checksums, each key against its
request), and never replaces what a store has: the first committed answer is the answer for all.

An export holds a row an answer, by key; a row of kind "embedding" has the embedded text in `text`
and its `vector`, little-endian float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.llm.answer import Failure, Usage
from pipelines.llm.request import key_of
from pipelines.llm.store_database import SOUND, is_named_by_its_request
from pipelines.llm.store_errors import NewerStore, NotAStore
from pipelines.llm.store_rows import Kept, Record, record_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    from pipelines.llm.store import Store

MARK, FORMAT_VERSION = b"headrace.answers", 1
BATCH = 1000
FLOAT_BYTES = 4
EMBEDDING = "embedding"
_FAILURES = {"", *(f.value for f in Failure)}
SQLITE = b"SQLite format 3\0"
Vector = tuple[str, str, str, bytes]  # key, identity, embedded text, little-endian float32
Piece = tuple[list[Record], list[Vector], int]  # and how many rows were refused


def schema() -> pa.Schema:
    """The columns of an export. Only `vector` may be missing in a row."""
    import pyarrow as pa

    text = ("key", "kind", "model", "identity", "request", "text", "finish", "failure", "detail")
    whole = ("prompt_tokens", "completion_tokens", "cached_tokens", "latency_ms", "attempts", "made_at")
    fields = [
        *((name, pa.string()) for name in text),
        *((name, pa.int64()) for name in whole),
        ("cost_usd", pa.float64()),
        *((name, pa.string()) for name in ("row", "purpose", "history", "media")),
        ("body", pa.binary()),
        ("vector", pa.binary()),
    ]
    return pa.schema(
        [pa.field(name, kind, nullable=name == "vector") for name, kind in fields],
        metadata={MARK: str(FORMAT_VERSION).encode()},
    )


@dataclass(frozen=True)
class Merged:
    """What became of the rows of an export."""

    new: int = 0
    same: int = 0
    conflicting: int = 0  # the store has another answer under the key, which stays
    refused: int = 0  # something is missing, or its key is not the hash of its request

    def __add__(self, other: Merged) -> Merged:
        return Merged(
            self.new + other.new,
            self.same + other.same,
            self.conflicting + other.conflicting,
            self.refused + other.refused,
        )


@dataclass
class Lent:
    """An export whose answers a store may take. Nothing is read before the first that is missing."""

    path: Path

    @cached_property
    def _keys(self) -> frozenset[bytes]:
        with _opened(self.path) as file:
            return frozenset(bytes.fromhex(row["key"]) for rows in _batches(file, ["key"]) for row in rows)

    def among(self, keys: list[str]) -> list[str]:
        """Those of `keys` that it has."""
        return [k for k in keys if bytes.fromhex(k) in self._keys]


def take_in(store: Store, path: Path) -> Merged:
    """Commit to `store` what the export (or other store) at `path` has and the store lacks, in batches.

    A kill in between leaves whole batches; once more takes the rest. Raises NotAStore, NewerStore.
    """
    total = Merged()
    pieces = _of_store(type(store)(path, readonly=True)) if is_database(path) else read(path)
    for records, vectors, refused in pieces:
        total += _take_answers(store, records) + _take_vectors(store, vectors) + Merged(refused=refused)
    return total


def read(path: Path) -> Iterator[Piece]:
    """The export in batches: answers, embeddings, and how many rows are damaged."""
    with _opened(path) as file:
        for rows in _batches(file):
            named = [row for row in rows if _is_whole(row)]
            vectors = [
                (r["key"], r["identity"], r["text"], r["vector"]) for r in named if r["kind"] == EMBEDDING
            ]
            records = [_record(r) for r in named if r["kind"] != EMBEDDING]
            yield records, vectors, len(rows) - len(named)


def _of_store(opened: Store) -> Iterator[Piece]:
    """Another store in the same batches, damaged rows left out."""
    with opened as other:
        for table, (_, sound) in SOUND.items():
            rows = other.salvage(table)
            while batch := list(islice(rows, BATCH)):
                good = [r for r in batch if sound(r) and is_named_by_its_request(table, r)]
                records = [record_of(r) for r in good] if table == "answers" else []
                vectors = [(r[0].hex(), r[1], r[2], r[3]) for r in good] if table == "embeddings" else []
                yield records, vectors, len(batch) - len(good)


def is_database(path: Path) -> bool:
    """Whether the file begins as SQLite's do."""
    try:
        with open(path, "rb") as file:
            return file.read(len(SQLITE)) == SQLITE
    except OSError:
        return False  # `read` says what is wrong with it


def is_export(path: Path) -> bool:
    """Whether the file is an export, of any version."""
    try:
        with _opened(path):
            return True
    except NewerStore:
        return True
    except NotAStore:
        return False


def _take_answers(store: Store, records: Sequence[Record]) -> Merged:
    before = store.answers([r.key for r in records])
    stands = store.put([r for r in records if r.key not in before])
    there = {**stands, **before}
    conflicting = sum(_said(there[r.key]) != _said(r.kept) for r in records)
    fresh = len(records) - len(before)
    return Merged(fresh, len(before) - conflicting, conflicting)


def _take_vectors(store: Store, vectors: Sequence[Vector]) -> Merged:
    before = store.vectors([v[0] for v in vectors])
    store.put_vectors([v for v in vectors if v[0] not in before])
    conflicting = sum(v[0] in before and before[v[0]][2] != v[3] for v in vectors)
    return Merged(len(vectors) - len(before), len(before) - conflicting, conflicting)


def _said(kept: Kept) -> tuple[str, Failure | None]:
    return kept.text, kept.failure


@contextmanager
def _opened(path: Path) -> Iterator[ParquetFile]:
    """The file, known to be an export that this version reads; what is wrong with it is one line."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    foreign = NotAStore(
        "is no export of a response store", where=str(path), cure="name a file of `headrace store export`"
    )
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            told = (file.schema_arrow.metadata or {}).get(MARK)
            if told is None or not told.isdigit():
                raise foreign
            if int(told) > FORMAT_VERSION:
                raise NewerStore(
                    f"the export has version {int(told)}, this headrace reads up to {FORMAT_VERSION}",
                    where=str(path),
                    cure="use the headrace that wrote it",
                )
            wrong = [f.name for f in schema() if f.name not in _told(file) or _told(file)[f.name] != f.type]
            if wrong:
                raise NotAStore(
                    f"the export's column {wrong[0]!r} is absent or of another type",
                    where=str(path),
                    cure="take it again from where it came",
                )
            yield file
    except FileNotFoundError as error:
        raise NotAStore("there is no such file", where=str(path), cure="check the path") from error
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError) as error:
        what = f"the export is damaged or no Parquet file: {str(error)[:200]}"
        raise NotAStore(what, where=str(path), cure="take it again from where it came") from error


def _told(file: ParquetFile) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in file.schema_arrow}


def _batches(file: ParquetFile, columns: list[str] | None = None) -> Iterator[list[dict[str, Any]]]:
    for batch in file.iter_batches(BATCH, columns=columns):
        yield batch.to_pylist()


def _is_whole(row: dict[str, Any]) -> bool:
    needed = (v for c, v in row.items() if c != "vector" or row["kind"] == EMBEDDING)
    if any(value is None for value in needed):
        return False
    if row["kind"] == EMBEDDING and len(row["vector"]) % FLOAT_BYTES:
        return False
    return key_of(row["request"]) == row["key"] and row["failure"] in _FAILURES


def _record(row: dict[str, Any]) -> Record:
    failure = Failure(row["failure"]) if row["failure"] else None
    usage = Usage(row["prompt_tokens"], row["completion_tokens"], row["cost_usd"], row["cached_tokens"])
    return Record(
        key=row["key"],
        kind=row["kind"],
        model=row["model"],
        identity=row["identity"],
        request=row["request"],
        kept=Kept(row["text"], row["finish"], usage, failure, row["detail"]),
        body=row["body"],
        latency_ms=row["latency_ms"],
        attempts=row["attempts"],
        row=row["row"],
        purpose=row["purpose"],
        history=row["history"],
        media=row["media"],
        made_at=row["made_at"],
    )
