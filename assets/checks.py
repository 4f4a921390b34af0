"""The checks of an artifact.

Law: the gate's verdict is the stage's own, read from outcomes.json and never
judged again; `outcomes_add_up` never trusts the stage's counts: it counts what
lies in the files. What a view expects besides is in `expected`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl

from assets.expected import Expectation
from assets.view import table
from pipelines.data.outcomes import OTHER

GATE = "gate"
ADD_UP = "outcomes_add_up"


def specs(
    asset: dg.AssetKey, *, gated: bool, makes_rows: bool, expected: Sequence[Expectation] = ()
) -> list[dg.AssetCheckSpec]:
    """The checks that the asset has."""
    found = []
    if gated:
        found.append(
            dg.AssetCheckSpec(
                GATE,
                asset=asset,
                blocking=True,
                description="The stage's own gate: bounds on numbers counted from its rows.",
            )
        )
    if makes_rows:
        found.append(
            dg.AssetCheckSpec(
                ADD_UP,
                asset=asset,
                description="Every planned item has one outcome; the files hold as many rows as counted.",
            )
        )
    return [*found, *(e.spec(asset) for e in expected)]


def gate(outcomes: Mapping[str, Any]) -> dg.AssetCheckResult | None:
    """The verdict in outcomes.json; None when the stage gave none."""
    verdict = outcomes.get("gate")
    if not isinstance(verdict, Mapping):
        return None
    checks = [dict(c) for c in verdict.get("checks", [])]
    failed = [c for c in checks if not c.get("passed")]
    return dg.AssetCheckResult(
        check_name=GATE,
        passed=bool(verdict.get("passed")),
        severity=dg.AssetCheckSeverity.ERROR,
        description="; ".join(f"{c['meaning']} ({c['measure']} = {c['value']:g})" for c in failed)
        or f"{len(checks)} expectations kept",
        metadata={
            "suite": str(verdict.get("suite")),
            "expectations": dg.MetadataValue.md(table(checks)),
        },
    )


def outcomes_add_up(folder: Path, outcomes: Mapping[str, Any]) -> dg.AssetCheckResult:
    """Counts the files of an artifact folder again and compares them with its outcomes.json."""
    counted = {
        "items": outcomes.get("items"),
        "rejected.parquet": sum(int(outcomes.get(k) or 0) for k in ("rejected", *OTHER)),
        "rows.parquet": outcomes.get("rows_out"),
    }
    seen = {
        "items": sum(int(outcomes.get(k) or 0) for k in ("accepted", "rejected", *OTHER)),
        "rejected.parquet": _length(folder / "rejected.parquet"),
        "rows.parquet": _length(folder / "rows.parquet"),
    }
    wrong = [name for name in counted if counted[name] != seen[name]]
    rows = [{"what": n, "outcomes.json": counted[n], "counted again": seen[n]} for n in counted]
    return dg.AssetCheckResult(
        check_name=ADD_UP,
        passed=not wrong,
        severity=dg.AssetCheckSeverity.ERROR,
        description="; ".join(f"{n}: {counted[n]} told, {seen[n]} there" for n in wrong)
        or "all counts agree",
        metadata={"counts": dg.MetadataValue.md(table(rows))},
    )


def _length(path: Path) -> int | None:
    return int(pl.scan_parquet(path).select(pl.len()).collect().item()) if path.is_file() else None
