"""Runs that a killed Dagster left open.

Law: a run is open only while a process works on it. Dagster does not look whether the process of a
run still lives: one killed with its servers (an empty battery, a container that ends) stays open, keeps
the one place that there is, and every later run waits for it for ever.
"""

from __future__ import annotations

import os
from pathlib import Path

import psutil

WHY = "Its process was killed. Materialise again: what was answered is stored."


def end_killed(home: Path) -> list[str]:
    """Ends the open runs of the Dagster whose DAGSTER_HOME this is and frees their places; their ids.

    Ends none while a process of that Dagster lives. What is queued stays queued.
    """
    if not (home / "history" / "runs.db").is_file() or _alive(home):
        return []
    import dagster as dg
    from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES, DagsterRunStatus, RunsFilter

    opened = [s for s in NOT_FINISHED_STATUSES if s is not DagsterRunStatus.QUEUED]
    with dg.DagsterInstance.from_config(str(home)) as instance:
        runs = instance.get_runs(RunsFilter(statuses=opened))
        for run in runs:
            if run.status is DagsterRunStatus.CANCELING:
                instance.report_run_canceled(run, WHY)
            else:
                instance.report_run_failed(run, WHY)
        for run_id in instance.event_log_storage.get_concurrency_run_ids():
            instance.event_log_storage.free_concurrency_slots_for_run(run_id)
    return [run.run_id for run in runs]


def _alive(home: Path) -> bool:
    """Whether a Python process with this DAGSTER_HOME is at work, other than this one and those above it."""
    mine = {os.getpid(), *(p.pid for p in psutil.Process().parents())}
    for process in psutil.process_iter():
        try:
            ours = process.environ().get("DAGSTER_HOME") == str(home) and process.pid not in mine
            if ours and Path(process.exe()).name.startswith("python"):
                return True
        except (psutil.Error, OSError):
            continue
    return False
