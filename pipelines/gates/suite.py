"""A gate: numbers counted from an artifact, and the bounds that they must keep.

Law: Polars counts, Great Expectations judges a frame of one row, and a stage
whose gate fails publishes no rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from pipelines.errors import StageError

Measures = Callable[[pl.DataFrame], Mapping[str, float]]


@dataclass(frozen=True)
class Expect:
    """`low <= measure <= high`; `meaning` says it in words for a person."""

    measure: str
    meaning: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Suite:
    """The gate of one artifact. `measures` is pure: rows -> one number a name."""

    name: str
    measures: Measures
    expectations: tuple[Expect, ...]


@dataclass(frozen=True)
class Verdict:
    """What the gate found: each expectation with the number seen."""

    name: str
    passed: bool
    checks: tuple[dict[str, Any], ...]  # measure, meaning, low, high, value, passed

    def plain(self) -> dict[str, Any]:
        return {"suite": self.name, "passed": self.passed, "checks": list(self.checks)}

    def failures(self) -> str:
        """The failed expectations in one line."""
        return "; ".join(
            f"{c['meaning']} ({c['measure']} = {c['value']:g})" for c in self.checks if not c["passed"]
        )


def judge(suite: Suite, rows: pl.DataFrame) -> Verdict:
    """Runs the suite on the rows with Great Expectations (ephemeral, no files)."""
    values = {k: float(v) for k, v in suite.measures(rows).items()}
    for name, value in values.items():
        if not math.isfinite(value):  # Great Expectations would pass over it as missing
            raise StageError(f"gate {suite.name}: measure {name!r} is {value}")
    results = _expectations(suite, values)
    checks = tuple(
        {
            "measure": e.measure,
            "meaning": e.meaning,
            "low": e.low,
            "high": e.high,
            "value": values[e.measure],
            "passed": ok,
        }
        for e, ok in zip(suite.expectations, results, strict=True)
    )
    return Verdict(suite.name, all(results), checks)


def _expectations(suite: Suite, values: Mapping[str, float]) -> list[bool]:
    """Whether each expectation holds, in their order."""
    import logging
    import os
    import warnings

    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import great_expectations as gx
        import pandas as pd

        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False, "metric_calculations": False}
        source = context.data_sources.add_pandas(suite.name)
        batch = source.add_dataframe_asset("counts").add_batch_definition_whole_dataframe("all")
        got = batch.get_batch({"dataframe": pd.DataFrame([dict(values)])})
        between = gx.expectations.ExpectColumnValuesToBeBetween
        return [
            bool(got.validate(between(column=e.measure, min_value=e.low, max_value=e.high)).success)
            for e in suite.expectations
        ]
