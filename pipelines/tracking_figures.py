"""MLflow: what the model calls of each stage came to.

Law: the figures of a stage are told once, and by whoever has MLflow open anyway or drives the run;
no stage pays for it. What cannot be told now waits in `.headrace/pace/untold/` for a later run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines import tracking
from pipelines.errors import HeadraceError
from pipelines.progress import Told, untold

if TYPE_CHECKING:
    from mlflow import MlflowClient

RETRIES = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}  # of a server that is away; MLflow's own take minutes


def tell_figures(root: Path, say: Callable[[str], None]) -> int:
    """Writes what no tracker was told yet; the number of stages told.

    Nothing is opened, nor MLflow imported, when nothing was asked. MLflow being away is one line.
    """
    if not any(told.figures.get("answers_asked") for _, told in untold(root)):
        return 0
    from mlflow.exceptions import MlflowException

    for name, value in RETRIES.items():
        os.environ.setdefault(name, value)
    count = 0
    try:
        client, experiment = tracking.opened(root)
        with tracking.lock(root):
            for path, told in untold(root):  # another process may have told some meanwhile
                _tell(client, experiment, told)
                path.unlink()
                count += 1
    except (HeadraceError, MlflowException, OSError) as e:
        say(f"MLflow is not told the figures of the model calls now, a later run tells them: {e}")
    return count


def _tell(client: MlflowClient, experiment: str, told: Told) -> None:
    """Into the run that the stage's own process wrote, else into one of their own."""
    from mlflow.entities import Metric

    own = f"tags.`headrace.process` = '{told.process}' and tags.`headrace.stage` = '{told.stage}'"
    own += f" and attributes.start_time >= {told.started}"
    found = client.search_runs([experiment], own, max_results=1)
    run_id = found[0].info.run_id if found else _made(client, experiment, told)
    client.log_batch(run_id, metrics=[Metric(k, float(v), told.until, 0) for k, v in told.figures.items()])
    if not found:
        client.set_terminated(run_id, "FINISHED" if told.ended else "FAILED", end_time=told.until)
        tracking.end_parent(client, run_id)


def _made(client: MlflowClient, experiment: str, told: Told) -> str:
    tags = {**tracking.common_tags(told.stage), "headrace.process": told.process}
    if told.run:
        parent = tracking.parent_of(client, experiment, told.run, told.started)
        tags |= {"headrace.run_id": told.run, "mlflow.parentRunId": parent}
    run = client.create_run(experiment, start_time=told.started, tags=tags, run_name=told.stage)
    return str(run.info.run_id)
