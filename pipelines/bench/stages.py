"""Stages run by a bench, in a workspace of its own."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def run_stage(root: Path, stage: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Runs a stage by its own module, as the drivers do; its counts and metrics.

    `params` is a whole params.yaml. Raises what the stage raises.
    """
    from pipelines.asking import AskingStep
    from pipelines.data.config import load

    engine, name = stage.split(".")
    module = importlib.import_module(f"pipelines.{stage}")
    step = AskingStep(stage, None, root, params["seed"], params.get("llm"))
    module.run(step, load(module.Params, params[engine].get(name), stage))
    step.finish(getattr(module, "SCHEMA", None), getattr(module, "GATE", None))
    return {**step.ledger.summary(), **step.metrics}
