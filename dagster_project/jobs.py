"""The jobs: everything, one an engine, and the one act that asks the world.

Law: the engines are those of the graph; a new one needs no line here.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from dagster_project.versions import Graph, Key
from pipelines import graph as dvc
from pipelines.errors import HeadraceError

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

    as_of: str = Field(default="", description="YYYY-MM-DD; today when empty")


def refresh_job(root: Path) -> dg.JobDefinition:
    """The act of `headrace refresh`: asks for the answers that are due and adds one file of observations."""

    @dg.op(name="ask_world", pool="dvc", out=dg.Out(dg.Nothing))
    def ask_world(context: dg.OpExecutionContext, config: AsOf) -> None:
        from pipelines.evergreen.refreshing.ask import refresh

        try:
            day = date.fromisoformat(config.as_of) if config.as_of else datetime.now(UTC).date()
        except ValueError as e:
            raise dg.Failure(f"as_of is {config.as_of!r}, expected YYYY-MM-DD") from e
        try:
            with dvc.writer(root, f"Dagster run {context.run_id[:8]}", context.log.info):
                told = refresh(root, day)
        except HeadraceError as e:
            raise dg.Failure(str(e)) from e
        context.log.info(str(told))
        context.add_output_metadata(
            {
                "as of": str(day),
                "due": told.due,
                "audited": told.audited,
                "answered": told.answered,
                "unanswered": told.unanswered,
                "changed": told.changed,
                "to review": told.review,
                "requests saved": told.saved,
                "added": told.file or "nothing",
            }
        )

    @dg.job(
        name="refresh",
        executor_def=dg.in_process_executor,
        description="Asks the world for what is due. Adds a file of observations, or none.",
    )
    def ask() -> None:
        ask_world()

    return ask
