"""Which checks a stage has, and what they find after it ended well.

Law: a stage that should have given a verdict and gave none has failed its gate.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import dagster as dg

from assets import checks
from assets.expected import Expectation, look
from assets.view import view_of
from dagster_project.versions import Graph
from pipelines.graph import Stage
from pipelines.step import read_outcomes


def check_results(graph: Graph, stage: Stage) -> list[dg.AssetCheckResult]:
    """What the checks of a stage that ended well find."""
    outcomes = read_outcomes(graph.root, stage.folder)
    found = []
    if is_gated(stage):
        verdict = None if outcomes is None else checks.gate(outcomes)
        found.append(
            verdict
            or dg.AssetCheckResult(
                check_name=checks.GATE, passed=False, description="the stage gave no verdict in outcomes.json"
            )
        )
    if makes_rows(stage):
        found.append(checks.outcomes_add_up(graph.root / "data" / stage.folder, outcomes or {}))
    day = datetime.now(UTC).date()
    bounds = view_of(stage.key[0]).bounds
    found += [e.result(lambda: look(graph.root, bounds, day)) for e in expected(stage)]
    return found


def expected(stage: Stage) -> Sequence[Expectation]:
    """The further checks that its engine's view has for it."""
    return view_of(stage.key[0]).expected.get("/".join(stage.key[1:2]), ())


def is_gated(stage: Stage) -> bool:
    """Whether its engine's view says so, or its `meta` in dvc.yaml."""
    return bool(stage.meta.get("gate")) or "/".join(stage.key[1:2]) in view_of(stage.key[0]).gated


def makes_rows(stage: Stage) -> bool:
    return stage.version_path == f"data/{stage.folder}/rows.parquet"
