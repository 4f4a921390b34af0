"""Where a row comes from: its parents down to the raw line, and the answers it used.

Law: a trace is read from the artifacts and the response store alone; it starts
nothing, asks nothing and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from pipelines.data.rows import LINEAGE
from pipelines.errors import InputError, StageError

if TYPE_CHECKING:
    from pipelines.llm.prices import Price

LONGEST = 240  # characters of one value in a printed tree


@dataclass(frozen=True)
class Response:
    """A stored model answer, with the request that it answers. `request` is empty when it is not stored."""

    id: str
    model: str = ""
    request: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float | None = 0.0  # None: nobody knows


@dataclass(frozen=True)
class Node:
    """One row in a trace. `artifact` is its folder below data/; `origin` the raw file and line, at ingest."""

    row_id: str
    artifact: str
    rejected: bool
    values: dict[str, Any]
    origin: str = ""
    responses: tuple[Response, ...] = ()
    parents: tuple[Node, ...] = ()


class Tracer:
    """Finds rows by id in the artifacts of a workspace.

    `store` is the response store's path; `lent` an export that has what the store lacks; `prices` those of
    now, by model.
    """

    def __init__(
        self, root: Path, store: Path, lent: Path | None = None, prices: Mapping[str, Price] | None = None
    ) -> None:
        self.data, self.store, self.lent, self.prices = root / "data", store, lent, prices or {}

    def trace(self, row_id: str) -> Node:
        """The tree of a row. A unique beginning of an id of 6 or more digits will do. Raises InputError."""
        if row_id not in self._where:
            found = sorted(i for i in self._where if i.startswith(row_id)) if len(row_id) >= 6 else []
            if len(found) != 1:
                many = f"begins {len(found)} row ids" if found else "is no row id of this workspace"
                raise InputError(f"{row_id!r} {many}", cure="take one from a rows.parquet or the report")
            row_id = found[0]
        return self._node(row_id, frozenset())

    @cached_property
    def _where(self) -> dict[str, Path]:
        """Row id -> file, over every artifact."""
        found: dict[str, Path] = {}
        for path in sorted(self.data.glob("*/**/re*ed.parquet")) + sorted(
            self.data.glob("*/**/rows.parquet")
        ):
            try:
                ids = pl.read_parquet(path, columns=["row_id"])["row_id"]
            except (pl.exceptions.PolarsError, OSError):
                continue  # a file of some other kind
            found.update(dict.fromkeys(ids, path))
        return found

    def _node(self, row_id: str, above: frozenset[str]) -> Node:
        path = self._where.get(row_id)
        if path is None or row_id in above:
            gone = "the parent is not in any artifact" if path is None else "a row is its own ancestor"
            raise StageError(gone, where=row_id, cure="headrace run")
        row = pl.scan_parquet(path).filter(pl.col("row_id") == row_id).collect().to_dicts()[0]
        return Node(
            row_id,
            path.parent.relative_to(self.data).as_posix(),
            path.name == "rejected.parquet",
            {k: v for k, v in row.items() if k not in LINEAGE},
            self._origin(path.parent / "origin.parquet", row_id),
            tuple(self._responses(row["responses"])),
            tuple(self._node(p, above | {row_id}) for p in row["parents"]),
        )

    def _origin(self, path: Path, row_id: str) -> str:
        if not path.is_file():
            return ""
        lines = pl.scan_parquet(path).filter(pl.col("row_id") == row_id).collect()
        by_file: dict[str, list[int]] = {}
        for r in lines.sort("file", "line").to_dicts():
            by_file.setdefault(r["file"], []).append(r["line"])
        raw = self.data / "raw"
        places = raw / path.relative_to(self.data).parts[0], raw  # below which an engine names its files
        there = {file: found for file in by_file for p in places if (found := p / file).is_file()}
        names = {file: found.relative_to(self.data.parent).as_posix() for file, found in there.items()}
        return ", ".join(f"{names.get(file, file)}:{_ranges(n)}" for file, n in by_file.items())

    def _responses(self, ids: Iterable[str]) -> Iterator[Response]:
        ids = list(ids)
        if not ids:
            return
        from pipelines.llm.prices import unpriced
        from pipelines.llm.store import Store

        lent = self.lent if self.lent is not None and self.lent.is_file() else None
        if lent is None and not self.store.is_file():
            yield from (Response(i) for i in ids)
            return
        with Store(self.store, readonly=True, lent=lent) as store:
            found = store.full(ids)
        for key in ids:
            record = found.get(key)
            if record is None:
                yield Response(key)
                continue
            use = record.kept.usage
            yield Response(
                key,
                record.model,
                json.loads(record.request),
                record.kept.text,
                use.prompt_tokens,
                use.completion_tokens,
                None if unpriced(record.identity, use, self.prices.get(record.model)) else use.cost_usd,
            )


@dataclass(frozen=True)
class Reached:
    """Model answers that rows used, each with the artifact of one such row, and vectors that stages used."""

    answers: Mapping[str, str] = field(default_factory=dict)
    embeddings: frozenset[str] = frozenset()


def reached(data: Path, folders: Sequence[str] = ("*/**",)) -> Reached:
    """What the artifacts in these folders below `data` (or patterns of them) reach, by key of the answer.

    Raises InputError for an artifact that cannot be read.
    """
    answers: dict[str, str] = {}
    embeddings: set[str] = set()
    for path in sorted({p for f in folders for p in data.glob(f"{f}/*.parquet")}):
        if path.name not in ("rows.parquet", "rejected.parquet", "embedded.parquet"):
            continue
        column = "key" if path.name == "embedded.parquet" else "responses"
        try:
            if column not in pl.read_parquet_schema(path):
                continue
            found = pl.read_parquet(path, columns=[column])[column]
        except (pl.exceptions.PolarsError, OSError) as e:
            raise InputError(f"not a readable Parquet file: {e}", where=str(path), cure="headrace run") from e
        if column == "key":
            embeddings.update(found)
        else:
            artifact = path.parent.relative_to(data).as_posix()
            for key in found.explode().drop_nulls().unique().sort():
                answers.setdefault(key, artifact)
    return Reached(dict(sorted(answers.items())), frozenset(embeddings))


def lines(
    node: Node, versions: dict[str, str] | None = None, depth: int = 0, seen: set[str] | None = None
) -> Iterator[str]:
    """The tree as text, the row first, then its answers, then its parents, indented.

    A row that stands above already is only named, and so is a value that a row has from its one parent.

    `versions` says for an artifact which code and data made it.
    """
    seen = set() if seen is None else seen
    pad = "  " * depth
    state = " (rejected)" if node.rejected else ""
    version = f"  [{versions[node.artifact]}]" if versions and node.artifact in versions else ""
    above = "  (as above)" if node.row_id in seen else ""
    yield f"{pad}{node.artifact}{state}  {node.row_id}{version}{above}"
    if above:
        return
    seen.add(node.row_id)
    same = node.parents[0].values if len(node.parents) == 1 else {}
    for name, value in node.values.items():
        if value is not None and value not in ("", []) and not (name in same and same[name] == value):
            yield f"{pad}  {name}: {_short(value)}"
    if node.origin:
        yield f"{pad}  raw: {node.origin}"
    for response in node.responses:
        yield from (f"{pad}  {line}" for line in _response(response))
    for parent in node.parents:
        yield from lines(parent, versions, depth + 1, seen)


def _response(response: Response) -> Iterator[str]:
    if not response.request:
        yield f"answer {response.id[:16]}: not in this store"
        return
    asked = response.request
    sampling = ", ".join(f"{k} {v}" for k, v in (asked.get("sampling") or {}).items() if v not in (None, []))
    yield f"answer {response.id[:16]} by {response.model} ({asked['model'][:23]})"
    yield f"  sampling: {sampling}, seed {asked.get('seed')}, sample {asked.get('sample')}"
    usd = "price unknown" if response.cost_usd is None else f"{response.cost_usd:.6f} USD"
    yield f"  cost: {response.prompt_tokens} + {response.completion_tokens} tokens, {usd}"
    yield f"  prompt: {_short(asked.get('prompt') or asked.get('messages'), 2000)}"
    yield f"  text: {_short(response.text)}"


def _ranges(numbers: list[int]) -> str:
    """Sorted line numbers as ranges: 1-3,7."""
    spans: list[list[int]] = []
    for n in numbers:
        if spans and n <= spans[-1][1] + 1:
            spans[-1][1] = n
        else:
            spans.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def _short(value: Any, longest: int = LONGEST) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = text.replace("\n", "\\n")
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
