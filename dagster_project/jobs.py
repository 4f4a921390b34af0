"""The jobs: everything, one an engine, and the one act that asks the world.

Law: the engines are those of the graph; a new one needs no line here.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from dagster_project.versions import Graph, Key
from pipelines import graph as dvc
from pipelines.errors import HeadraceError

if TYPE_CHECKING:
    from pipelines.evergreen.refreshing.report import Report

JOBS_OF_MODELS = ("training", "evaluation")  # their stages belong to the engine that they name


def engines(graph: Graph) -> dict[str, list[Key]]:
    """The stages of each engine, its training and evaluation among them; the report belongs to none."""
    found: dict[str, list[Key]] = {}
    for s in graph.stages:
        if s.key[0] not in JOBS_OF_MODELS:
            found.setdefault(s.key[0], []).append(s.key)
    for s in graph.stages:
        if s.key[0] in JOBS_OF_MODELS and len(s.key) > 1 and s.key[1] in found:
            found[s.key[1]].append(s.key)
    return found


def selection(keys: Sequence[Key]) -> dg.AssetSelection:
    return dg.AssetSelection.assets(*(dg.AssetKey(list(k)) for k in keys))


def jobs(graph: Graph) -> list[Any]:
    """`all`, one job an engine, and `refresh` where there are observations to add to."""
    found: list[Any] = [
        dg.define_asset_job(
            "all",
            selection=selection([s.key for s in graph.stages]),
            description="Brings every artifact up to date, as `headrace run` does.",
        )
    ]
    for engine, keys in engines(graph).items():
        found.append(
            dg.define_asset_job(
                engine, selection=selection(keys), description=f"Brings what {engine} makes up to date."
            )
        )
    return [*found, refresh_job(graph.root)]


class AsOf(dg.Config):
    """The day for which answers are asked."""

    as_of: str = Field(default="", description="YYYY-MM-DD; today (UTC) when empty")


def refresh_job(root: Path) -> dg.JobDefinition:
    """The act of `headrace refresh`: asks for the answers that are due and adds one file of observations."""

    @dg.op(name="ask_world", pool="dvc", out=dg.Out(dg.Nothing))
    def ask_world(context: dg.OpExecutionContext, config: AsOf) -> None:
        from pipelines.evergreen.refreshing.ask import PartlyAsked, refresh
        from pipelines.evergreen.refreshing.day import day_of

        try:
            day = day_of(config.as_of, datetime.now(UTC), "as_of")
            with dvc.writer(root, f"Dagster run {context.run_id[:8]}", context.log.info):
                told = refresh(root, day)
        except PartlyAsked as partly:
            context.log.warning(str(partly.report))
            raise dg.Failure(str(partly), metadata=figures(partly.report)) from partly
        except HeadraceError as e:
            raise dg.Failure(str(e)) from e
        context.log.info(str(told))
        context.add_output_metadata(figures(told))

    @dg.job(
        name="refresh",
        executor_def=dg.in_process_executor,
        description="Asks the world for what is due. Adds a file of observations, or none.",
    )
    def ask() -> None:
        ask_world()

    return ask


def figures(told: "Report") -> dict[str, Any]:
    """What one refresh came to, as Dagster shows it."""
    return {
        "as of": str(told.as_of),
        "due": told.due,
        "audited": told.audited,
        "answered": told.answered,
        "unanswered": told.unanswered,
        "failed": len(told.failed),
        "changed": told.changed,
        "to review": told.review,
        "requests saved": told.saved,
        "added": told.file or "nothing",
    }
