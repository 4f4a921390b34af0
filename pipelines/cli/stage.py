"""Runs one stage in the current workspace: what `dvc.yaml` calls."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

from pipelines.data.config import load, read_params
from pipelines.errors import ConfigError, nearest
from pipelines.step import Step

ENGINES = ("evergreen", "egoavu", "trit", "cbu", "training", "evaluation")


def run_stage(stage: str, item: str | None, root: Path | None = None) -> int:
    """Loads the step's module and parameters, runs it, publishes its outs. Returns 0."""
    root = Path.cwd() if root is None else root
    engine, _, name = stage.partition(".")
    if engine not in ENGINES:
        raise ConfigError(f"unknown engine {engine!r}", cure=nearest(engine, ENGINES))
    if importlib.util.find_spec(f"pipelines.{engine}.{name}") is None:
        steps = [p.stem for p in Path(__file__).parents[1].joinpath(engine).glob("[a-z]*.py")]
        raise ConfigError(f"unknown stage {stage!r}", cure=nearest(name, steps))
    module = importlib.import_module(f"pipelines.{engine}.{name}")
    params = read_params(root / "params.yaml")
    section = params.get(engine, {}).get(name)
    step = Step(stage, item, root, params.get("seed", 0), params.get("llm"))
    values = load(module.Params, section, stage)
    module.run(step, values)
    step.finish(
        getattr(module, "SCHEMA", None),
        getattr(module, "GATE", None),
        getattr(values, "allow_failed", 0.0),
    )
    return 0
