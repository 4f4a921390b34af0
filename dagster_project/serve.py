"""Dagster and MLflow on loopback, over one workspace.

Law: nothing listens beyond this machine, nothing is sent from it, and all that
the servers keep lies in `.headrace`. What a killed server left open or half made
stops no later one.
"""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from dagster_project.killed import end_killed
from dagster_project.reload import LOCATION
from pipelines.errors import EnvironmentFault
from pipelines.tracking_store import EXPERIMENT, prepared

HOST = "127.0.0.1"
WAIT_S = 600  # for a port; a server that ended is told at once
PR_SET_PDEATHSIG = 1
CONFIG = """# Written by `headrace ui`.
telemetry:
  enabled: false
nux:
  enabled: false
concurrency:
  pools:
    granularity: op
    default_limit: 1 # one writer to DVC
  runs:
    max_concurrent_runs: 1
run_monitoring:
  enabled: true
  poll_interval_seconds: 30
  start_timeout_seconds: 3600 # a busy machine is no failure
  free_slots_after_run_end_seconds: 60 # a step that was killed gives up its place
"""
WORKSPACE = f"""# Written by `headrace ui`.
load_from:
  - python_module:
      module_name: dagster_project.definitions
      location_name: {LOCATION}
"""


@dataclass(frozen=True)
class Server:
    """One server: how it is started, and where it answers."""

    name: str
    command: tuple[str, ...]
    port: int
    start: str = ""  # the page to begin with

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"


def servers(root: Path, port: int, mlflow_port: int) -> list[Server]:
    """Dagster's web page with its daemon, and MLflow's."""
    python = sys.executable
    listed = str(_home(root) / "workspace.yaml")
    dagster = (
        python, "-m", "dagster", "dev", "-w", listed, "-h", HOST, "-p", str(port), "--log-level", "warning",
    )  # fmt: skip
    store = f"sqlite:///{root / '.headrace' / 'mlflow.db'}"
    mlflow = (
        python, "-m", "mlflow", "ui", "--host", HOST, "--port", str(mlflow_port), "--workers", "1",
        "--backend-store-uri", store,
    )  # fmt: skip
    return [
        Server("Dagster", dagster, port, "/asset-groups"),
        Server("MLflow", mlflow, mlflow_port, _runs_page(root)),
    ]


def _runs_page(root: Path) -> str:
    """MLflow's table of our runs; of itself it opens the pages for traces, where there are none."""
    view = "workflowType=machine_learning"
    database = (root / ".headrace" / "mlflow.db").resolve()
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as db:
            found = db.execute(
                "SELECT experiment_id FROM experiments WHERE name = ?", (EXPERIMENT,)
            ).fetchone()
    except sqlite3.Error:  # none yet, or its tables are others by now
        found = None
    return f"/#/experiments/{found[0]}/runs?{view}" if found else f"/#/experiments?{view}"


def environment(root: Path, port: int) -> dict[str, str]:
    """The servers' environment; writes Dagster's configuration below the workspace."""
    home = _home(root)
    home.mkdir(parents=True, exist_ok=True)
    (home / "dagster.yaml").write_text(CONFIG, encoding="utf-8")
    (home / "workspace.yaml").write_text(WORKSPACE, encoding="utf-8")
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "HEADRACE_ROOT": str(root),
        "HEADRACE_DAGSTER_URL": f"http://{HOST}:{port}",
        "DAGSTER_HOME": str(home),
        "DAGSTER_DISABLE_TELEMETRY": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
    }


def serve(root: Path, port: int, mlflow_port: int) -> int:
    """Starts both, prints both addresses, ends both on Ctrl-C. Raises EnvironmentFault."""
    root = root.resolve()
    wanted = servers(root, port, mlflow_port)
    for one in wanted:
        _refuse_busy(one.name, one.port)
    for sign in (signal.SIGINT, signal.SIGTERM):  # both end it, also where a shell has SIGINT ignored
        signal.signal(sign, signal.default_int_handler)
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        env = environment(root, port)
        prepared(root)
        if ended_runs := end_killed(_home(root)):
            print(f"Dagster runs that were killed, now marked as failed: {len(ended_runs)}", flush=True)
        running |= start(wanted, root, env)
        until_up(wanted, running)
        for one in wanted:
            print(f"{one.name}: {one.url}{one.start}", flush=True)
        print("Ctrl-C ends both, in some seconds", flush=True)
        while all(p.poll() is None for p in running.values()):
            time.sleep(0.5)
        ended = next(name for name, p in running.items() if p.poll() is not None)
        raise EnvironmentFault(f"{ended} ended by itself", cure=f"see {_log(root, ended)}")
    except KeyboardInterrupt:
        return 0
    finally:
        stop(running)


def start(wanted: Sequence[Server], root: Path, env: Mapping[str, str]) -> dict[str, subprocess.Popen[bytes]]:
    """Starts each in a process group of its own, its output in .headrace/<name>.log.

    They are interrupted when this process ends, however it ends.
    """
    import ctypes

    kernel, running = ctypes.CDLL(None), {}
    for one in wanted:
        with open(_log(root, one.name), "wb") as log:
            running[one.name] = subprocess.Popen(
                one.command, cwd=root, env=dict(env), stdout=log, stderr=log, start_new_session=True,
                preexec_fn=lambda: kernel.prctl(PR_SET_PDEATHSIG, signal.SIGINT),  # noqa: PLW1509 - no threads yet
            )  # fmt: skip
    return running


def stop(running: Mapping[str, subprocess.Popen[bytes]]) -> None:
    """Ends the servers and whatever they started."""
    for sign, wait in ((signal.SIGINT, 15), (signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        for process in running.values():
            if process.poll() is None:
                _signal_group(process.pid, sign)
        deadline = time.monotonic() + wait
        while time.monotonic() < deadline and any(p.poll() is None for p in running.values()):
            time.sleep(0.1)
    for process in running.values():
        _signal_group(process.pid, signal.SIGKILL)


def _signal_group(pid: int, sign: signal.Signals) -> None:
    try:
        os.killpg(pid, sign)
    except ProcessLookupError:
        return


def _home(root: Path) -> Path:
    return root / ".headrace" / "dagster"


def _log(root: Path, name: str) -> Path:
    return root / ".headrace" / f"{name.lower()}.log"


def _refuse_busy(name: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as e:
            option = "--port" if name == "Dagster" else "--mlflow-port"
            raise EnvironmentFault(
                f"port {port} for {name} is busy", cure=f"choose another with {option}"
            ) from e


def until_up(wanted: Sequence[Server], running: Mapping[str, subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + WAIT_S
    for one in wanted:
        while True:
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex((HOST, one.port)) == 0:
                    break
            if running[one.name].poll() is not None or time.monotonic() > deadline:
                raise EnvironmentFault(f"{one.name} did not start", cure="see its log in .headrace")
            time.sleep(0.25)
