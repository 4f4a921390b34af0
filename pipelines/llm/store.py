"""The response store: every answer once, in one SQLite file that several processes share.

Law: an answer is committed, and synced to the disk, before anyone is handed it; the first
answer committed under a key is the answer for all. So a kill at any instant loses nothing that
was used, and two processes that ask the same question at once go on with the same text.

WAL, `synchronous=FULL`, one transaction for all answers that came while the one before it was
being written: no timer, an answer waits at most for the commit before its own (median 12-15 ms for
groups of 20 on a busy disk, 95 % under 55 ms).
Each row carries checksums; a damaged row counts as absent, and is set aside when it is asked again.
What the store lacks and a lent export has (`data/answers/`) is taken from there, once for all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pipelines.llm.sqlite_file import Whereabouts
from pipelines.llm.store_database import READ_BATCH, Database, marks
from pipelines.llm.store_errors import ReadOnlyStore
from pipelines.llm.store_file import connect, in_memory, prepare
from pipelines.llm.store_rows import (
    COLUMNS,
    COLUMNS_V1,
    KEPT_COLUMNS,
    KEPT_COLUMNS_V1,
    KEPT_FAILURES,
    VECTOR_COLUMNS,
    Kept,
    Record,
    handed_out,
    is_sound,
    is_sound_vector,
    record_of,
    row_of,
    vector_checksum,
)

if TYPE_CHECKING:
    import numpy as np

    from pipelines.llm.store_lent import Lent

__all__ = ["KEPT_FAILURES", "Kept", "Record", "Store"]


class Store(Database):
    """The store at `path`, made when absent. Safe to use from several threads and processes.

    `lent` is an export that is read where the store has no answer. A `path` that ends in
    .parquet is an export itself: it is read, and takes no answer.
    Raises NewerStore, NotAStore, ReadOnlyStore, LockedStore, FullDisk, GoneStore (all EnvironmentFault).
    """

    def __init__(self, path: Path, *, readonly: bool = False, lent: Path | None = None) -> None:
        self.path, self.is_export = path, path.suffix == ".parquet"
        self.readonly = readonly or self.is_export
        self._lock = threading.RLock()
        self._lent = _lent(path if self.is_export else lent)
        self._loan: Store | None = None  # what a reader took from the lent export
        version = 0
        with self._guard():
            if self.is_export or (readonly and self._lent is not None and not path.is_file()):
                self._db = in_memory()
            else:
                self._db = connect(path, readonly)
                try:
                    version = prepare(self._db, path, readonly)
                except BaseException:
                    self._db.close()
                    raise
        if not self.readonly:
            self._file = Whereabouts(path)
        self.columns = COLUMNS_V1 if version == 1 else COLUMNS
        self._kept_columns = KEPT_COLUMNS_V1 if version == 1 else KEPT_COLUMNS

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            if self._loan is not None:
                self._loan.close()
            self._db.close()

    # -- answers ----------------------------------------------------------------------------

    def answers(self, keys: Iterable[str]) -> dict[str, Kept]:
        """What is stored of `keys`, read in batches; a damaged row counts as absent."""
        found: dict[str, Kept] = {}
        wanted = iter(keys)
        while chunk := {bytes.fromhex(k): k for k in islice(wanted, READ_BATCH)}:
            before = len(found)
            for row in self._select(self._kept_columns, "answers", list(chunk)):
                kept = handed_out(row)
                if kept is not None:
                    found[chunk[row[0]]] = kept
            if self._lent is not None and len(found) - before < len(chunk):
                found |= self._borrowed([k for k in chunk.values() if k not in found], Store.answers)
        return found

    def full(self, keys: Iterable[str]) -> dict[str, Record]:
        """The whole rows of `keys`: question, parameters, raw body; damaged ones are left out."""
        wanted = list(keys)
        rows = self._in_batches(self.columns, "answers", wanted)
        found = {row[0].hex(): record_of(row) for row in rows if is_sound(row)}
        return found | self._borrowed([k for k in wanted if k not in found], Store.full)

    def record(self, key: str) -> Record | None:
        """The whole row of the answer `key`, or None."""
        return self.full([key]).get(key)

    def asked_for(self, *, purpose: str, row: str = "", most: int = 2000) -> list[Record]:
        """What was asked for a purpose, and for one row if it is named: what a replay that misses sees."""
        if self._lent is not None and self._loan is None:
            self._loan = self._taken_in()
        places = [self, self._loan] if self.readonly and self._loan is not None else [self]
        found = chain.from_iterable(
            place.scan("answers", "purpose = ? AND ? IN ('', row)", (purpose, row)) for place in places
        )
        return [record_of(r) for r in islice(filter(is_sound, found), most)]

    def put(self, records: Sequence[Record]) -> dict[str, Kept]:
        """Commit `records` in one transaction; returns what now stands under their keys.

        An answer that another process committed first is kept and returned instead.
        """
        self.require_room()
        return self._put(records)

    def require_room(self) -> None:
        """Raises ReadOnlyStore for a store that takes no answers: to be known before any is paid for."""
        if self.is_export:
            cure = "headrace store import it into a store, and name that"
            raise ReadOnlyStore("an export takes no further answers", where=str(self.path), cure=cure)

    def _put(self, records: Sequence[Record]) -> dict[str, Kept]:
        rows = {row[0]: row for row in reversed([row_of(r) for r in records])}
        stands = {}
        with self._guard(), self._write():
            if self._insert(rows.values()) < len(rows):
                for seen in self._select(COLUMNS, "answers", list(rows)):
                    if is_sound(seen):
                        stands[seen[0]] = record_of(seen).kept
                    else:
                        self._set_aside("answers", seen)
                        self._insert([rows[seen[0]]])
        first = {r.key: r.kept for r in reversed(records)}
        return first | {key.hex(): kept for key, kept in stands.items()}

    def _insert(self, rows: Iterable[Sequence[Any]]) -> int:
        """How many of the rows are new, and now in the transaction."""
        every = marks(len(COLUMNS.split(",")))
        put = f"INSERT OR IGNORE INTO answers ({COLUMNS}) VALUES ({every})"
        return self._db.executemany(put, rows).rowcount

    # -- embeddings -------------------------------------------------------------------------

    def embeddings(self, keys: Iterable[str]) -> dict[str, np.ndarray]:
        """Stored vectors, float32 [dim] each."""
        import numpy as np

        wanted = list(keys)
        rows = self._in_batches(VECTOR_COLUMNS, "embeddings", wanted)
        found = {row[0].hex(): np.frombuffer(row[3], dtype="<f4") for row in rows if is_sound_vector(row)}
        return found | self._borrowed([k for k in wanted if k not in found], Store.embeddings)

    def vectors(self, keys: Iterable[str]) -> dict[str, tuple[str, str, bytes]]:
        """(identity, prompt, little-endian float32) of the stored embeddings of `keys`."""
        wanted = list(keys)
        rows = self._in_batches(VECTOR_COLUMNS, "embeddings", wanted)
        found = {row[0].hex(): (row[1], row[2], row[3]) for row in rows if is_sound_vector(row)}
        return found | self._borrowed([k for k in wanted if k not in found], Store.vectors)

    def put_embeddings(self, identity: str, rows: Sequence[tuple[str, str, np.ndarray]]) -> None:
        """Commit (key, prompt, float32 vector) rows of one embedding model in one transaction."""
        self.put_vectors([(k, identity, prompt, v.astype("<f4").tobytes()) for k, prompt, v in rows])

    def put_vectors(self, rows: Sequence[tuple[str, str, str, bytes]]) -> None:
        """Commit (key, identity, prompt, little-endian float32) rows in one transaction."""
        packed: dict[bytes, tuple[bytes, str, str, bytes, int]] = {}
        for key, identity, prompt, vector in rows:
            raw = bytes.fromhex(key)
            packed.setdefault(raw, (raw, identity, prompt, vector, vector_checksum(raw, vector)))
        with self._guard(), self._write():
            for seen in self._select(VECTOR_COLUMNS, "embeddings", list(packed)):
                if not is_sound_vector(seen):
                    self._set_aside("embeddings", seen)
            self._db.executemany("INSERT OR IGNORE INTO embeddings VALUES (?, ?, ?, ?, ?)", packed.values())

    # -- within -----------------------------------------------------------------------------

    def _borrowed(
        self, keys: list[str], read: Callable[[Store, list[str]], dict[str, Any]]
    ) -> dict[str, Any]:
        """What the lent export has of `keys`: taken into this store, or beside it by a reader."""
        if self._lent is None or not keys:
            return {}
        with self._lock:
            held = self._lent.among(keys)
            if held and self._loan is None:
                self._loan = self._taken_in()
        if not held or self._loan is None:
            return {}
        return read(self._loan, held)

    def _taken_in(self) -> Store:
        from pipelines.llm.store_lent import take_in

        assert self._lent is not None
        into = Store.without_file() if self.readonly else Store(self.path)
        take_in(into, self._lent.path)
        return into

    @classmethod
    def without_file(cls) -> Store:
        """An empty store in memory, which ends with this process."""
        made = cls.__new__(cls)
        made.path, made.is_export, made.readonly = Path(":memory:"), False, False
        made._lock, made._lent, made._loan = threading.RLock(), None, None
        made._db, made.columns, made._kept_columns = in_memory(), COLUMNS, KEPT_COLUMNS
        return made


def _lent(path: Path | None) -> Lent | None:
    if path is None or not path.is_file():
        return None
    from pipelines.llm.store_lent import Lent

    return Lent(path)
