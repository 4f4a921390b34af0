"""Schemas of artifacts, and the identity of their rows.

Law: `row_id` is a hash of the identity columns that the schema names, and of
nothing else: never of a line, a file or a column added later. One row put in
above changes no other.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from pipelines.errors import StageError

ID_HEX = 24  # 96 bits: a collision among 10^9 rows has a chance below 10^-10

LINEAGE: dict[str, Any] = {
    "row_id": pl.String,
    "parents": pl.List(pl.String),
    "responses": pl.List(pl.String),
}

REJECTED: dict[str, Any] = {
    "row_id": pl.String,
    "item": pl.String,
    "outcome": pl.String,
    "reason": pl.String,
    "detail": pl.String,
    "file": pl.String,
    "line": pl.Int64,
    "column": pl.String,
    "raw": pl.String,
    "parents": pl.List(pl.String),
    "responses": pl.List(pl.String),
}


def digest(*parts: object) -> str:
    """Hash of a tuple of plain values, `ID_HEX` hex digits."""
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:ID_HEX]


@dataclass(frozen=True)
class Schema:
    """Columns of an artifact and which of them say which row it is.

    `name` is the artifact ("trit.translate") and part of the hash, so that a
    row id names one row of one artifact. `columns` leaves out `LINEAGE`.
    """

    name: str
    columns: Mapping[str, Any]
    identity: tuple[str, ...]

    def row(
        self,
        *,
        parents: Iterable[str] = (),
        responses: Iterable[str] = (),
        occurrence: int = 0,
        **values: Any,
    ) -> dict[str, Any]:
        """A row with its id. `occurrence` tells equal raw rows apart and is used at ingest only.

        Raises StageError for a missing or an unknown column.
        """
        if values.keys() != self.columns.keys():
            odd = sorted(values.keys() ^ self.columns.keys())
            raise StageError(f"{self.name}: columns missing or unknown: {', '.join(odd)}")
        which = [values[c] for c in self.identity] + ([occurrence] if occurrence else [])
        return {
            "row_id": digest(self.name, *which),
            **values,
            "parents": sorted(set(parents)),
            "responses": sorted(set(responses)),
        }

    def frame(self, rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
        """Rows as a frame, sorted by row id. Raises StageError if two rows have one id."""
        order = {"row_id": LINEAGE["row_id"], **self.columns}
        order |= {"parents": LINEAGE["parents"], "responses": LINEAGE["responses"]}
        try:
            frame = pl.DataFrame(list(rows), schema=order, orient="row", strict=True).sort("row_id")
        except (pl.exceptions.PolarsError, TypeError) as e:
            raise StageError(f"{self.name}: a row does not fit its schema: {e}") from e
        twins = frame.filter(pl.col("row_id").is_duplicated())
        if len(twins):
            same = twins.select(self.identity).head(1).to_dicts()[0]
            raise StageError(f"{self.name}: {len(twins)} rows share an identity, e.g. {same}")
        return frame


def occurrences(keys: Iterable[object]) -> Iterator[int]:
    """For each key how often it was seen before: 0, 0, 1, ... (in input order)."""
    seen: Counter[object] = Counter()
    for key in keys:
        yield seen[key]
        seen[key] += 1
