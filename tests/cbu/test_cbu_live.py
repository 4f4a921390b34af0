"""With the embedded solver, a right worked solution helps more than a wrong one."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from cbu_workspace import Workspace

from pipelines.asking import AskingStep
from pipelines.data.config import load, read_params

ROOT = Path(__file__).parents[2]


def live(workspace: Workspace, name: str, **changed: Any) -> None:
    """Runs a step with the parameters of params.yaml, some changed, and real models."""
    section = {**read_params(ROOT / "params.yaml")["cbu"][name], **changed}
    module = importlib.import_module(f"pipelines.cbu.{name}")
    step = AskingStep(f"cbu.{name}", None, workspace.root, 7, {"concurrency": 4})
    module.run(step, load(module.Params, section, f"cbu.{name}"))
    step.finish(module.SCHEMA, getattr(module, "GATE", None))


@pytest.mark.live
@pytest.mark.slow
def test_two_problems_differ_in_utility_and_stay_within_their_tokens(workspace: Workspace) -> None:
    (workspace.raw / "problems.jsonl").symlink_to(ROOT / "data/raw/cbu/problems.jsonl")
    live(workspace, "ingest")
    live(workspace, "neighbors", problems=2, per_problem=1)
    live(workspace, "rollout", baseline=False)
    live(workspace, "score")
    rows = workspace.rows("score")
    assert rows.group_by("problem").n_unique()["utility"].to_list() == [2, 2]
    best = rows.filter(rows["rank"] == 1)
    assert best["label"].to_list() == ["right", "right"]
    counts = workspace.outcomes("rollout")
    assert counts["items"] == 2 * 2 * 4 == sum(counts[o] for o in ("accepted", "unparsable", "unverified"))
    assert 0 < counts["tokens"]["completion"] <= 16 * 24
