"""What a killed Dagster leaves open ends when `headrace ui` starts again: else all later runs would wait."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import dagster as dg
import psutil
import pytest
from dagster._core.remote_origin import InProcessCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.storage.dagster_run import DagsterRun, DagsterRunStatus
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._time import get_current_datetime

from dagster_project import serve
from dagster_project.killed import end_killed

LIVE = "import sys; print('up', flush=True); sys.stdin.read()"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Dagster's home in a workspace, as `headrace ui` lays it."""
    return Path(serve.environment(tmp_path, 3000)["DAGSTER_HOME"])


@pytest.fixture
def stored(home: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.from_config(str(home)) as instance:
        yield instance


def begun(instance: dg.DagsterInstance, status: DagsterRunStatus = DagsterRunStatus.STARTED) -> str:
    """A run at work, whose step has the one place of the pool."""
    run = instance.add_run(DagsterRun(job_name="all", status=status))
    storage = instance.event_log_storage
    storage.initialize_concurrency_limit_to_default("dvc")
    storage.claim_concurrency_slot("dvc", run.run_id, "brook__ingest")
    return run.run_id


def status(instance: dg.DagsterInstance, run: str) -> DagsterRunStatus:
    found = instance.get_run_by_id(run)
    assert found is not None
    return found.status


def places(instance: dg.DagsterInstance) -> int:
    """Steps that hold the pool's place or wait for it."""
    info = instance.event_log_storage.get_concurrency_info("dvc")
    return info.active_slot_count + info.pending_step_count


def queued(instance: dg.DagsterInstance) -> str:
    target = LoadableTargetOrigin(python_file="definitions.py")
    place = RemoteRepositoryOrigin(InProcessCodeLocationOrigin(target, "headrace"), "__repository__")
    origin = RemoteJobOrigin(place, "all")
    run = DagsterRun(job_name="all", status=DagsterRunStatus.QUEUED, remote_job_origin=origin)
    return instance.add_run(run).run_id


def test_runs_whose_process_is_gone_end_and_give_up_their_places(
    home: Path, stored: dg.DagsterInstance
) -> None:
    ends = {
        begun(stored, DagsterRunStatus.STARTED): DagsterRunStatus.FAILURE,
        begun(stored, DagsterRunStatus.STARTING): DagsterRunStatus.FAILURE,
        begun(stored, DagsterRunStatus.CANCELING): DagsterRunStatus.CANCELED,
    }
    waits = queued(stored)
    assert places(stored) == 3
    assert set(end_killed(home)) == set(ends)
    assert {run: status(stored, run) for run in ends} == ends
    assert places(stored) == 0
    assert end_killed(home) == []
    assert status(stored, waits) is DagsterRunStatus.QUEUED, "it was asked for, and its turn comes"


def test_no_run_ends_while_a_process_of_that_dagster_lives(home: Path, stored: dg.DagsterInstance) -> None:
    run = begun(stored)
    with subprocess.Popen(
        [sys.executable, "-c", LIVE], env={**os.environ, "DAGSTER_HOME": str(home)}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as other:  # fmt: skip
        assert other.stdout is not None and other.stdout.readline() == "up\n"
        assert end_killed(home) == []
        assert status(stored, run) is DagsterRunStatus.STARTED
        other.send_signal(signal.SIGKILL)
    assert end_killed(home) == [run]


def test_a_place_that_a_killed_step_kept_is_given_up_by_dagster_itself(
    stored: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code server tells that a run's process was killed, but keeps the place of its step."""
    from types import SimpleNamespace

    from dagster._daemon.monitoring import concurrency

    run = stored.get_run_by_id(begun(stored))
    assert run is not None
    stored.report_run_failed(run)
    assert places(stored) == 1
    later = get_current_datetime() + timedelta(minutes=2)
    monkeypatch.setattr(concurrency, "get_current_datetime", lambda: later)
    log = logging.getLogger("test")
    [*concurrency.execute_concurrency_slots_iteration(SimpleNamespace(instance=stored), log)]
    assert places(stored) == 0
    assert stored.run_monitoring_enabled, "else nothing calls it"


STARTS = """
import signal, sys, time
from pathlib import Path
from dagster_project.serve import Server, start
signal.signal(signal.SIGINT, signal.default_int_handler)
sleeper = Server("Sleeper", (sys.executable, "-c", "import time; time.sleep(600)"), 0)
print(start([sleeper], Path.cwd(), {})["Sleeper"].pid, flush=True)
time.sleep(600)
"""


def test_the_servers_end_when_who_started_them_is_killed(tmp_path: Path) -> None:
    (tmp_path / ".headrace").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", STARTS], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as ui:
        assert ui.stdout is not None
        server = psutil.Process(int(ui.stdout.readline()))
        assert server.is_running()
        ui.kill()
    deadline = time.monotonic() + 300
    while server.is_running() and server.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "it lives on"
        time.sleep(0.05)


def test_both_are_seen_to_before_a_server_starts(
    tmp_path: Path, home: Path, stored: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """MLflow's server would make its database in place, and one killed meanwhile would leave half of it."""
    from pipelines import tracking_store

    made: list[Path] = []
    run = begun(stored)

    def start(*_: object) -> dict[str, subprocess.Popen[bytes]]:
        assert made == [tmp_path] and status(stored, run) is DagsterRunStatus.FAILURE
        raise KeyboardInterrupt

    monkeypatch.setattr(tracking_store, "_migrate", made.append)
    monkeypatch.setattr(serve, "start", start)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    ports = [free_port(), free_port()]
    assert serve.serve(tmp_path, *ports) == 0
    assert "Dagster runs that were killed, now marked as failed: 1" in capfd.readouterr().out


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind((serve.HOST, 0))
        return int(probe.getsockname()[1])
