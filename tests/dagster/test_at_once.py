"""Several drivers at once, and a run that is ended from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import dagster as dg
import psutil
import pytest
from brook_workspace import Brook, shell

from pipelines.graph.waiting import by_whom

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]
OURS = "from pathlib import Path; from pipelines import graph; graph.run(Path('.'), who='headrace run')"


def until(what: Callable[[], bool], seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "never happened"
        time.sleep(0.1)


def at_work(root: Path) -> list[int]:
    """Processes of stages of this workspace."""
    found = []
    for process in psutil.process_iter(["cmdline", "pid"]):
        try:
            command = process.info["cmdline"] or []
            if any("pipelines/work.py" in part for part in command) and process.cwd() == str(root):
                found.append(process.info["pid"])
        except psutil.Error:
            continue
    return found


def environment(brook: Brook) -> dict[str, str]:
    here = str(Path(__file__).parents[2])
    home = brook.root / ".headrace" / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    return {**shell(), "PYTHONPATH": here, "HEADRACE_ROOT": str(brook.root), "DAGSTER_HOME": str(home)}


def dagster_run(brook: Brook, *keys: str) -> subprocess.Popen[str]:
    """A Dagster run in a process of its own, as a run's worker is."""
    selection = " or ".join(f'key:"{k}"' for k in keys)
    command = [sys.executable, "-m", "dagster", "asset", "materialize", "-m", "dagster_project.definitions"]
    return subprocess.Popen(
        [*command, "--select", selection], cwd=brook.root, env=environment(brook), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_ending_a_run_ends_the_stages_processes_and_frees_the_locks(
    brook: Brook, sign: signal.Signals
) -> None:
    assert brook.dvc("repro", "brook.ingest").returncode == 0
    brook.set("brook.tell.waits_for", "never")
    run = dagster_run(brook, "brook/tell/fr")
    until(lambda: len(at_work(brook.root)) > 0)
    os.kill(run.pid, sign)
    output, _ = run.communicate(timeout=600)
    assert run.returncode != 0, output
    until(lambda: not at_work(brook.root), 60)
    assert "brook.tell@fr" not in brook.lock()
    brook.set("brook.tell.waits_for", "")
    assert brook.dvc("repro").returncode == 0


def test_three_drivers_at_once_break_nothing_and_ours_say_for_whom_they_wait(brook: Brook) -> None:
    assert brook.dvc("repro", "brook.ingest").returncode == 0
    brook.set("brook.tell.waits_for", "go")
    first = subprocess.Popen(
        [sys.executable, "-c", OURS], cwd=brook.root, env=environment(brook), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    until(lambda: len(at_work(brook.root)) > 0)
    second = dagster_run(brook, "brook/loud", "brook/judge")
    bare = brook.dvc("repro", "brook.tell@fr", "brook.tell@no")
    assert second.stdout is not None
    waits = any(f"waiting for headrace run (PID {first.pid})" in line for line in second.stdout)
    (brook.root / "go").touch()
    said, rest = first.communicate(timeout=600)[0], second.communicate(timeout=600)[0]
    assert waits, rest
    assert first.returncode == 0, said
    assert second.returncode == 0, rest
    assert bare.returncode != 0 and "is busy, it is being blocked by" in bare.stderr, bare.stderr
    assert brook.dvc("repro").returncode == 0
    assert brook.clean()


def test_ours_waits_for_a_bare_dvc(
    brook: Brook, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen(error: BaseException) -> str:
        (brook.root / "go").touch()
        return by_whom(error)

    for module in ("running", "stages"):
        monkeypatch.setattr(import_module(f"pipelines.graph.{module}"), "by_whom", seen)
    assert brook.dvc("repro", "brook.ingest").returncode == 0
    brook.set("brook.tell.waits_for", "go")
    job = brook.definitions().resolve_job_def("all")
    bare = subprocess.Popen(
        [sys.executable, "-m", "dvc", "repro", "brook.tell@fr"], cwd=brook.root, env=shell(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    until(lambda: len(at_work(brook.root)) > 0)
    result = job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey(["brook", "tell", "fr"])])
    assert bare.communicate(timeout=600)[0] and bare.returncode == 0
    assert result.success
    logged = [e.user_message for e in instance.all_logs(result.run_id)]
    assert any(m.startswith("waiting for a dvc command: ") and "PID" in m for m in logged), logged
    assert brook.dvc("status", "brook.tell@fr").stdout.strip() == "Data and pipelines are up to date."
