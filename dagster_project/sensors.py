"""Sensors: on the sources, and on what was made outside Dagster.

Law: content decides, never a time stamp; the same content asks for one run and
is reported once, however often the sensor looks.
"""

from __future__ import annotations

import json
from typing import Any

import dagster as dg

from dagster_project.jobs import selection
from dagster_project.reload import reload_when_stale
from dagster_project.report import report
from dagster_project.versions import Graph, fingerprint, names_to_keys, source_key
from pipelines import graph as dvc
from pipelines.errors import HeadraceError

EVERY_S = 30
OBSERVATIONS = "observations"


def sensors(graph: Graph) -> list[dg.SensorDefinition]:
    """One sensor a source, and the one that reports."""
    return [*(on_source(graph, path) for path in graph.source_paths), reporter(graph)]


def on_source(graph: Graph, path: str) -> dg.SensorDefinition:
    """Runs what depends on a source when its content is not what was read last.

    Off by default for raw files, since their engines may call models that cost
    money; on for observations, whose fold calls none.
    """
    key = source_key(path)
    readers = graph.readers(path)
    below = names_to_keys(graph, graph.below(readers))
    on = key[0] == OBSERVATIONS

    @dg.sensor(
        name="on_" + "_".join(key),
        target=selection(below),
        minimum_interval_seconds=EVERY_S,
        default_status=dg.DefaultSensorStatus.RUNNING if on else dg.DefaultSensorStatus.STOPPED,
        description=f"Runs what depends on `{path}` when its content changes.",
    )
    def look(context: dg.SensorEvaluationContext) -> Any:
        now = fingerprint(graph.root / path)
        count, asked = _cursor(context.cursor)
        if not now:
            return dg.SkipReason(f"{path} is not there")
        if now == asked:
            return dg.SkipReason(f"{path} is unchanged")
        try:
            locked = dvc.lock(graph.root)
        except HeadraceError as e:  # cut short by a killed process
            return dg.SkipReason(str(e))
        missing = [n for r in readers for n in graph.above[r] if n not in locked]
        if missing:
            return dg.SkipReason(f"{missing[0]} was never made, which is needed too")
        context.update_cursor(json.dumps([count + 1, now]))
        if all(_read(locked, name, path) == now for name in readers):
            return dg.SkipReason(f"{path} was read as it is")
        return dg.RunRequest(
            run_key=f"{path} {count + 1} {now}",
            asset_selection=[dg.AssetKey(list(k)) for k in below],
            tags={"source": path},
        )

    return look


def reporter(graph: Graph) -> dg.SensorDefinition:
    """Tells Dagster what `headrace run` or `dvc repro` made. On by default: it only reports."""

    @dg.sensor(
        name="report_shell_runs",
        minimum_interval_seconds=EVERY_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reports what dvc.lock says was made outside Dagster, with all versions.",
    )
    def look(context: dg.SensorEvaluationContext) -> Any:
        reload_when_stale(graph, context.log)
        try:
            told = report(context.instance, graph)
        except HeadraceError as e:  # dvc.lock, cut short by a killed process
            return dg.SkipReason(str(e))
        return dg.SkipReason(f"reported {', '.join(told)}" if told else "nothing was made outside Dagster")

    return look


def _cursor(cursor: str | None) -> tuple[int, str]:
    """How often a run was asked for, and for which content last."""
    if not cursor:
        return 0, ""
    count, asked = json.loads(cursor)
    return int(count), str(asked)


def _read(locked: dict[str, Any], name: str, path: str) -> str | None:
    deps = locked.get(name, {}).get("deps", [])
    return next((d.get("md5") for d in deps if d["path"] == path), None)
