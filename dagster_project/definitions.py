"""All that Dagster loads: `dagster dev -m dagster_project.definitions`.

The workspace is $HEADRACE_ROOT, else the nearest folder with a dvc.yaml, from
the working directory upwards.
"""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg

from dagster_project.component import graph_definitions
from dagster_project.jobs import jobs
from dagster_project.reload import remember
from dagster_project.schedules import daily_refresh
from dagster_project.sensors import sensors
from dagster_project.versions import Graph
from pipelines.errors import ConfigError


def workspace() -> Path:
    """Raises ConfigError when there is none."""
    told = os.environ.get("HEADRACE_ROOT")
    here = Path(told).resolve() if told else Path.cwd()
    for folder in [here] if told else [here, *here.parents]:
        if (folder / "dvc.yaml").is_file():
            return folder
    raise ConfigError("no dvc.yaml here", where=str(here), cure="headrace init DIR makes a workspace")


def build(root: Path) -> dg.Definitions:
    """Everything for one workspace."""
    graph = Graph.read(root)
    remember(graph)
    made = jobs(graph)
    rest = dg.Definitions(
        jobs=made,
        schedules=[daily_refresh(job) for job in made if job.name == "refresh"],
        sensors=sensors(graph),
        # a process a step would cost two CPU-seconds more; the stage is one of its own
        executor=dg.in_process_executor,
    )
    return dg.Definitions.merge(graph_definitions(graph), rest)


@dg.definitions
def headrace() -> dg.Definitions:
    return build(workspace())
