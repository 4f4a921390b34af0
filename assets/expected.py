"""Checks of meaning that a view adds to an artifact: what is looked at, what is found, how it is told.

Law: a check reads the rows that lie in the artifact and counts again; what cannot be read, or has
another shape, is a check that failed with the reason, never one that is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl

from assets.view import table
from pipelines.data.bounds import bounds_of
from pipelines.data.config import read_params
from pipelines.errors import HeadraceError, InputError

SHOWN = 10  # rows of what is wrong


@dataclass(frozen=True)
class Seen:
    """One workspace on one day. `bounds` is the engine's, from `checks` of params.yaml."""

    root: Path
    day: date
    bounds: Any = None

    def rows(self, artifact: str, file: str = "rows.parquet") -> pl.DataFrame:
        """A file of an artifact ("evergreen/curate"). Raises InputError when there is none to read."""
        path = self.root / "data" / artifact / file
        where = f"data/{artifact}/{file}"
        if not path.is_file():
            raise InputError("is not there", where=where)
        try:
            return pl.read_parquet(path)
        except (OSError, pl.exceptions.PolarsError) as e:
            raise InputError(f"cannot be read ({type(e).__name__})", where=where) from e


@dataclass(frozen=True)
class Finding:
    """Whether it is as it should be; in words, in figures, and the rows that are not."""

    passed: bool
    words: str
    figures: Mapping[str, float | int | str] = field(default_factory=dict)
    wrong: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Expectation:
    """A check by its name. `serious`: an error, else a warning."""

    name: str
    description: str
    judge: Callable[[Seen], Finding]
    serious: bool = True

    def result(self, seen: Callable[[], Seen]) -> dg.AssetCheckResult:
        """What it finds."""
        try:
            found = self.judge(seen())
        except (HeadraceError, pl.exceptions.PolarsError, AttributeError, TypeError, ValueError) as e:
            found = Finding(False, f"could not be judged: {str(e).split(chr(10), 1)[0][:300]}")
        metadata: dict[str, Any] = dict(found.figures)
        if found.wrong:
            metadata["wrong"] = dg.MetadataValue.md(table(found.wrong[:SHOWN]))
        return dg.AssetCheckResult(
            check_name=self.name,
            passed=found.passed,
            severity=dg.AssetCheckSeverity.ERROR if self.serious else dg.AssetCheckSeverity.WARN,
            description=found.words,
            metadata=metadata,
        )

    def spec(self, asset: dg.AssetKey) -> dg.AssetCheckSpec:
        return dg.AssetCheckSpec(self.name, asset=asset, description=self.description)


def look(root: Path, engine: str, day: date) -> Seen:
    """The workspace as the checks on an engine's artifacts see it; "" for an engine without bounds.

    Raises ConfigError for bad bounds.
    """
    if not engine:
        return Seen(root, day)
    return Seen(root, day, bounds_of(read_params(root / "params.yaml"), engine))
