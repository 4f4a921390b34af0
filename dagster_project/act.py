"""Materialising one asset: running its stage through DVC, and saying what came of it.

Law: a materialisation is the same act as `dvc repro`, and reports dvc.lock. A
stage that nothing touched is passed by and reports all the same. A gate that
refuses is a failed check first and a failed step then.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import dagster as dg
from pydantic import Field

from assets import checks
from dagster_project.judged import check_results, is_gated
from dagster_project.metadata import describe
from dagster_project.report import observe_sources
from dagster_project.versions import Graph, provenance
from pipelines import graph as dvc
from pipelines.environment import variables
from pipelines.errors import HeadraceError, StageError
from pipelines.graph import Stage
from pipelines.step import read_outcomes
from pipelines.tracking_figures import tell_figures

TAIL = 15  # lines of a failed stage that its failure repeats


class Run(dg.Config):
    """How to materialise."""

    force: bool = Field(
        default=False, description="Run the stage although nothing that it reads has changed."
    )


Event = dg.MaterializeResult[Any] | dg.AssetCheckResult


def materialize(
    context: dg.AssetExecutionContext, graph: Graph, stage: Stage, config: Run
) -> Iterator[Event]:
    """Runs the stage if something changed, and reports it. Raises dg.Failure."""
    started = time.monotonic()
    tail: deque[str] = deque(maxlen=TAIL)
    try:
        made = _run(context, graph, stage, config.force, tail)
        locked = dvc.lock(graph.root)
        told = provenance(graph, stage, locked)
        if told is None:
            raise StageError("ran, but dvc.lock does not tell of it", where=stage.name)
    except HeadraceError as e:
        yield from _refused(graph, stage)
        raise dg.Failure(
            str(e),
            metadata={"last lines": dg.MetadataValue.md("\n".join(f"    {t}" for t in tail) or "none")},
        ) from e
    observe_sources(context.instance, graph, graph.sources[stage.name])
    metadata = describe(graph.root, stage, locked[stage.name])
    metadata |= {"ran": made, "seconds": round(time.monotonic() - started, 2)}
    yield dg.MaterializeResult(
        asset_key=dg.AssetKey(list(stage.key)),
        data_version=dg.DataVersion(told["dagster/data_version"]),
        metadata=metadata,
        tags=told,
        check_results=check_results(graph, stage),
    )


def _run(
    context: dg.AssetExecutionContext, graph: Graph, stage: Stage, force: bool, tail: deque[str]
) -> bool:
    """Whether the stage ran. Waits for another writer, and says for whom."""
    who = f"Dagster run {context.run.run_id[:8]}"
    if not force and stage.name not in _changed(context.run.run_id, graph, who, context.log.info):
        context.log.info(f"{stage.name}: unchanged")
        return False

    def output(line: str) -> None:
        if line.strip():
            tail.append(line)
            context.log.info(line)

    with variables(HEADRACE_RUN_ID=context.run.run_id):
        ran = dvc.run(
            graph.root, [stage.name], who=who, single=True, force=force, say=context.log.info, output=output
        )
        tell_figures(graph.root, context.log.warning)
    if not ran.made:
        context.log.info(f"{stage.name}: unchanged")
    return bool(ran.made)


_ASKED: dict[str, frozenset[str]] = {}  # the run -> names of the stages that were not fresh at its start


def _changed(run_id: str, graph: Graph, who: str, say: Any) -> frozenset[str]:
    """Asked once a run; what the run itself changes is below one of these, so among them."""
    if run_id not in _ASKED:
        with dvc.writer(graph.root, who, say):
            told = frozenset(dvc.changed(graph.root, say=say))
        _ASKED.clear()
        _ASKED[run_id] = told
    return _ASKED[run_id]


def _refused(graph: Graph, stage: Stage) -> Iterator[dg.AssetCheckResult]:
    """The failed check, when it is the gate that ended the stage."""
    outcomes = read_outcomes(graph.root, stage.folder) if is_gated(stage) else None
    verdict = None if outcomes is None else checks.gate(outcomes)
    if verdict is not None and not verdict.passed:
        yield verdict
