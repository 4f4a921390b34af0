"""Telling Dagster what was made outside it.

Law: what is told is what dvc.lock says; it is told once. A second telling of
the same tells nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import dagster as dg

from assets import checks
from dagster_project.judged import check_results, is_gated
from dagster_project.metadata import describe
from dagster_project.versions import Graph, fingerprint, provenance, source_key
from pipelines import graph as dvc
from pipelines.graph import Stage
from pipelines.step import read_outcomes

MADE_OUTSIDE = "made by a shell run"
TOLD = ("dagster/data_version", "dagster/code_version", "dagster/input_data_version/")


def report(instance: dg.DagsterInstance, graph: Graph) -> list[str]:
    """Reports each stage whose entry in dvc.lock Dagster does not know; returns their names."""
    observe_sources(instance, graph, graph.source_paths)
    locked = dvc.lock(graph.root)
    told = []
    for stage in graph.stages:
        tags = provenance(graph, stage, locked)
        if tags is not None and _versions(tags) != _versions(_known(instance, stage)):
            _materialization(instance, graph, stage, locked[stage.name], tags)
            told.append(stage.name)
        elif _report_refusal(instance, graph, stage):
            told.append(f"{stage.name} (refused by its gate)")
    return told


def observe_sources(instance: dg.DagsterInstance, graph: Graph, paths: Iterable[str]) -> list[str]:
    """Reports the content of each source whose version is not what Dagster saw last."""
    told = []
    for path in paths:
        key = dg.AssetKey(list(source_key(path)))
        version = fingerprint(graph.root / path)
        if version and version != _observed(instance, key):
            instance.report_runless_asset_event(
                dg.AssetObservation(
                    key,
                    tags={
                        "dagster/data_version": version,
                        "dagster/data_version_is_user_provided": "true",
                    },
                )
            )
            told.append(path)
    return told


def _materialization(
    instance: dg.DagsterInstance,
    graph: Graph,
    stage: Stage,
    entry: Mapping[str, Any],
    tags: Mapping[str, str],
) -> None:
    key = dg.AssetKey(list(stage.key))
    metadata = {**describe(graph.root, stage, entry), "origin": MADE_OUTSIDE}
    instance.report_runless_asset_event(dg.AssetMaterialization(key, metadata=metadata, tags=dict(tags)))
    for result in check_results(graph, stage):
        _evaluation(instance, key, result)


def _report_refusal(instance: dg.DagsterInstance, graph: Graph, stage: Stage) -> bool:
    """A gate that refused in a shell run leaves its verdict and no entry in dvc.lock."""
    outcomes = read_outcomes(graph.root, stage.folder) if is_gated(stage) else None
    verdict = None if outcomes is None else checks.gate(outcomes)
    if verdict is None or verdict.passed:
        return False
    key = dg.AssetKey(list(stage.key))
    last = instance.get_latest_asset_check_evaluation_record(dg.AssetCheckKey(key, checks.GATE))
    event = None if last is None or last.event is None else last.event.dagster_event
    seen = None if event is None else event.asset_check_evaluation_data
    if seen is not None and not seen.passed and seen.description == verdict.description:
        return False
    _evaluation(instance, key, verdict)
    return True


def _evaluation(instance: dg.DagsterInstance, key: dg.AssetKey, result: dg.AssetCheckResult) -> None:
    instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(
            asset_key=key,
            check_name=str(result.check_name),
            passed=result.passed,
            severity=result.severity,
            description=result.description,
            metadata=result.metadata,
        )
    )


def _known(instance: dg.DagsterInstance, stage: Stage) -> Mapping[str, str]:
    event = instance.get_latest_materialization_event(dg.AssetKey(list(stage.key)))
    found = None if event is None else event.asset_materialization
    return {} if found is None else dict(found.tags or {})


def _versions(tags: Mapping[str, str]) -> dict[str, str]:
    """Those tags that a version decides; a pointer to an event may differ."""
    return {
        k: v for k, v in tags.items() if k.startswith(TOLD) and k != "dagster/data_version_is_user_provided"
    }


def _observed(instance: dg.DagsterInstance, key: dg.AssetKey) -> str | None:
    records = instance.fetch_observations(key, limit=1).records
    observation = records[0].asset_observation if records else None
    return None if observation is None else (observation.tags or {}).get("dagster/data_version")
