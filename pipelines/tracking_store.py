"""Where MLflow keeps what it is told: a SQLite database in the workspace, unless a server is named.

Law: a database is whole or absent (it is migrated under another name and renamed), several stages may
write at once, and MLflow's global state is as it was once a call has ended. Nothing is sent anywhere.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.errors import EnvironmentFault

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT = "headrace"
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
}
GLOBAL = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI", "MLFLOW_EXPERIMENT_ID")  # set by MLflow itself
WAIT_S = 60  # for another process that holds the database


def uri(root: Path) -> str:
    """Where runs go: $MLFLOW_TRACKING_URI, else .headrace/mlflow.db of the workspace."""
    told = os.environ.get("MLFLOW_TRACKING_URI")
    return told or f"sqlite:///{(root / '.headrace' / 'mlflow.db').resolve()}?timeout={WAIT_S}"


def opened(root: Path) -> tuple[MlflowClient, str]:
    """A client, and the id of the experiment. Raises EnvironmentFault when MLflow cannot be reached."""
    try:
        with answering():
            if not os.environ.get("MLFLOW_TRACKING_URI"):
                prepared(root)
            _quiet(root)
            with lock(root):
                return _client(root)
    except OSError as e:
        raise EnvironmentFault(f"cannot write here: {e.strerror or e}", where=str(root / ".headrace")) from e


@contextmanager
def answering() -> Iterator[None]:
    """What MLflow and its database raise meanwhile, as one EnvironmentFault that names it."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError) as e:
        first = str(e).partition("\n")[0]
        where = "MLFLOW_TRACKING_URI"
        cure = "unset MLFLOW_TRACKING_URI to track in the workspace, or start that server"
        if not os.environ.get("MLFLOW_TRACKING_URI"):
            where, cure = ".headrace/mlflow.db", "move it away: the next stage makes a new one"
            if "locked" in first:
                cure = "end the process that holds it, then run again"
        raise EnvironmentFault(f"MLflow does not answer: {first}", where=where, cure=cure) from e


def prepared(root: Path) -> None:
    """Makes the workspace's database if there is none. MLflow's own server would make it in place."""
    _quiet(root)
    with lock(root):
        _migrate(root)


def _quiet(root: Path) -> None:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    (root / ".headrace").mkdir(parents=True, exist_ok=True)


def _client(root: Path) -> tuple[MlflowClient, str]:
    import logging

    import mlflow

    for noisy in ("mlflow", "alembic"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it logs what it raises
    client = mlflow.MlflowClient(uri(root), uri(root))
    known = client.get_experiment_by_name(EXPERIMENT)
    if known is not None:
        return client, known.experiment_id
    return client, client.create_experiment(EXPERIMENT, artifact_location=_artifacts(root))


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
def pointed(root: Path, experiment: str) -> Iterator[None]:
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
