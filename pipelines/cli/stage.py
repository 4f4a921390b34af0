"""Runs one stage in the current workspace: what `dvc.yaml` calls."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.asking import AskingStep
from pipelines.cli.params import check_params, read_graph
from pipelines.data.config import load
from pipelines.errors import ConfigError, nearest
from pipelines.graph.waiting import held


def run_stage(stage: str, item: str | None, root: Path | None = None) -> int:
    """Loads the step's module and parameters, runs it, publishes its outs. Returns 0.

    Raises ConfigError for a stage, a matrix entry or a parameter that the workspace does not know.
    """
    root = Path.cwd() if root is None else root
    stages = read_graph(root)
    if stage not in stages:
        raise ConfigError(f"unknown stage {stage!r}", cure=nearest(stage, stages))
    engine, name = stage.split(".")
    params = check_params(root, only=engine)
    section = params.get(engine) or {}
    _check_item(stage, stages[stage], section, item)
    module = importlib.import_module(f"pipelines.{engine}.{name}")
    values = load(module.Params, section.get(name), stage)
    step = AskingStep(stage, item, root, params.get("seed", 0), params.get("llm"))
    if any(str(out).endswith("/embedded.parquet") for out in stages[stage].get("outs", [])):
        step.embedded = set()
    # A run that was killed alone leaves its stage at work: the next must not make the same outs beside it.
    with held(root / ".headrace" / "making" / f"{step.name}.lock", step.name, _say):
        ended = False
        try:
            module.run(step, values)
            step.finish(
                getattr(module, "SCHEMA", None),
                getattr(module, "GATE", None),
                getattr(values, "allow_failed", 0.0),
            )
            ended = True
        finally:
            step.tell(ended=ended)
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _check_item(stage: str, entry: Mapping[str, Any], section: Mapping[str, Any], item: str | None) -> None:
    """A stage with a matrix needs one of its entries (all lists are `${engine.key}`); others take none."""
    known: list[str] = []
    for values in (entry.get("matrix") or {}).values():
        key = values.strip("${}").split(".")[-1]
        known = [str(v) for v in section.get(key) or []]
    if known and item is None:
        raise ConfigError(f"stage {stage} needs one of its entries", cure=f"add one of {', '.join(known)}")
    if item is not None and item not in known:
        raise ConfigError(f"stage {stage} has no entry {item!r}", cure=nearest(item, known))
