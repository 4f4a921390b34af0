"""Looking after a response store: what is in it, whether it is sound, what may go.

Law: only what is asked for is taken away, and a damaged row is kept for a look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pipelines.llm.prices import BY_NAME, Price
from pipelines.llm.store import Store
from pipelines.llm.store_database import SOUND, is_named_by_its_request, marks
from pipelines.llm.store_errors import FullDisk, LockedStore

BATCH = 1000
NO_PRICES: Mapping[str, Price] = MappingProxyType({})
TABLES = ("answers", "embeddings")
SIZE = {
    "answers": "length(request) + length(text) + length(body) + length(detail) + 200",
    "embeddings": "length(prompt) + length(vector) + 150",
}
GROUPS = {
    "models": "model",
    "purposes": "CASE purpose WHEN '' THEN '(unnamed)' ELSE purpose END",
    "outcomes": "CASE failure WHEN '' THEN 'ok' ELSE failure END",
}


@dataclass(frozen=True)
class Checked:
    """What a verification found. `damaged` are keys by table."""

    answers: int
    embeddings: int
    damaged: dict[str, list[bytes]]

    @property
    def count(self) -> int:
        return sum(len(keys) for keys in self.damaged.values())


@dataclass(frozen=True)
class Prunable:
    """What no kept row reaches: keys by table, and the bytes that they hold, roughly."""

    keys: dict[str, list[bytes]]
    rows: dict[str, int]
    bytes: int


def stats(store: Store, prices: Mapping[str, Price] = NO_PRICES) -> dict[str, Any]:
    """What is in the store, as plain data: counts, bytes, tokens, USD; by model, purpose and outcome.

    `unpriced` answers are those of which it is unknown what they cost, by `prices` (of now); `cost_usd` is
    that of the others, None where there are none.
    """
    free = sorted(model for model, price in prices.items() if price.free)
    version = int(store.query("PRAGMA user_version")[0][0])
    files = (store.path.with_name(store.path.name + end) for end in ("", "-wal", "-shm"))
    return {
        "version": version,
        "bytes": sum(f.stat().st_size for f in files if f.is_file()),
        **_sums(store, "'all'", free).get("all", _plain(0, 0, 0, 0.0, 0)),
        "embeddings": int(store.query("SELECT count(*) FROM embeddings")[0][0]),
        "damaged": 0 if version < 2 else int(store.query("SELECT count(*) FROM damaged")[0][0]),
        **{name: _sums(store, column, free) for name, column in GROUPS.items()},
    }


def _sums(store: Store, column: str, free: Sequence[str]) -> dict[str, dict[str, Any]]:
    named = f"substr(identity, 1, {len(BY_NAME)}) = '{BY_NAME}'"
    unpriced = f"cost_usd = 0 AND {named} AND model NOT IN ({marks(len(free))})"  # as `unpriced` of `prices`
    rows = store.query(
        f"SELECT {column}, count(*), sum(prompt_tokens), sum(completion_tokens), sum(cost_usd), "
        f"sum({unpriced}) FROM answers GROUP BY 1 ORDER BY 2 DESC, 1",
        free,
    )
    return {str(row[0]): _plain(*row[1:]) for row in rows}


def _plain(answers: int, asked: int, drawn: int, usd: float, unpriced: int) -> dict[str, Any]:
    return {
        "answers": answers,
        "prompt_tokens": asked,
        "completion_tokens": drawn,
        "cost_usd": None if unpriced and not usd else round(usd, 6),
        "unpriced": unpriced,
    }


def verify(store: Store, progress: Callable[[int], None] | None = None) -> Checked:
    """Every row's checksums, and every answer's key against its request. Changes nothing."""
    seen, damaged = dict.fromkeys(TABLES, 0), {table: list[bytes]() for table in TABLES}
    for table in TABLES:
        sound = SOUND[table][1]
        for row in store.scan(table):
            seen[table] += 1
            if not (sound(row) and is_named_by_its_request(table, row)):
                damaged[table].append(row[0])
            if progress is not None and seen[table] % BATCH == 0:
                progress(sum(seen.values()))
    return Checked(seen["answers"], seen["embeddings"], damaged)


def prunable(
    store: Store,
    answers: Iterable[str],
    embeddings: Iterable[str],
    stages: Iterable[str] = (),
    *,
    every_vector: bool = False,
) -> Prunable:
    """What is neither among `answers` nor asked for `stages` (or to repair an answer of theirs), nor among
    `embeddings` unless `every_vector` is kept."""
    asked_for = sorted({name for s in stages for name in (s, s.partition("@")[0])})
    purpose = "substr(purpose, 1, instr(purpose || ' ', ' ') - 1)"  # its first word: the stage
    free = {
        "answers": f"{purpose} NOT IN ({marks(len(asked_for))})",
        "embeddings": str(int(not every_vector)),
    }
    values: dict[str, Sequence[str]] = {"answers": asked_for, "embeddings": ()}
    kept = {
        "answers": {bytes.fromhex(k) for k in answers},
        "embeddings": {bytes.fromhex(k) for k in embeddings},
    }
    keys, rows, size = {}, {}, 0
    for table in TABLES:
        query = f"SELECT key, {SIZE[table]} FROM {table} WHERE {free[table]} ORDER BY key"
        gone = [(key, n) for key, n in store.query(query, values[table]) if key not in kept[table]]
        keys[table] = [key for key, _ in gone]
        rows[table] = int(store.query(f"SELECT count(*) FROM {table}")[0][0])
        size += sum(n for _, n in gone)
    return Prunable(keys, rows, size)


def prune(store: Store, going: Prunable) -> bool:
    """Takes them away in batches. Returns whether the file could be made smaller too."""
    for table, keys in going.keys.items():
        for start in range(0, len(keys), BATCH):
            store.remove(table, keys[start : start + BATCH])
    try:
        store.compact()
    except (LockedStore, FullDisk):  # someone reads, or no room for the copy: the room is used again anyway
        return False
    return True
