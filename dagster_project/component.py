"""A component that makes one asset of each stage of dvc.yaml.

Law: the graph is declared once, in dvc.yaml; here nothing is added to it but
how it looks.
"""

import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg

from assets import checks
from dagster_project.act import Run, materialize
from dagster_project.judged import expected, is_gated, makes_rows
from dagster_project.versions import Graph, fingerprint, source_key
from pipelines.graph import Stage

POOL = "dvc"  # its limit is 1: one writer
MAX_KINDS = 3  # Dagster draws no more
FRESH = dg.FreshnessPolicy.time_window(fail_window=timedelta(days=30), warn_window=timedelta(days=8))


class DvcGraph(dg.Component, dg.Model, dg.Resolvable):
    """The graph of the workspace `root` as assets; relative to the Dagster project's folder."""

    root: str = "."

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        return graph_definitions(Graph.read((Path(context.path) / self.root).resolve()))


def graph_definitions(graph: Graph) -> dg.Definitions:
    """An asset a stage, and a node for each source, so that lineage starts at the raw files."""
    assets = [*(_asset(graph, s) for s in graph.stages), *(_source(graph, p) for p in graph.source_paths)]
    return dg.Definitions(
        assets=list(dg.map_asset_specs(lambda spec: dg.apply_freshness_policy(spec, FRESH), assets))
    )


def key_of(stage: Stage) -> dg.AssetKey:
    return dg.AssetKey(list(stage.key))


def _source(graph: Graph, path: str) -> dg.AssetsDefinition:
    spec = dg.AssetSpec(
        dg.AssetKey(list(source_key(path))),
        group_name="sources",
        kinds={"file"},
        description=f"What lies in `{path}`.",
        metadata={"path": path},
    )

    def observe_source() -> dg.ObserveResult:
        return dg.ObserveResult(spec.key, data_version=dg.DataVersion(fingerprint(graph.root / path)))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this decorator is in beta, once a source
        decorate = dg.multi_observable_source_asset(name="__".join(source_key(path)), specs=[spec])
    made: dg.AssetsDefinition = decorate(observe_source)
    return made


def _asset(graph: Graph, stage: Stage) -> dg.AssetsDefinition:
    key = key_of(stage)

    def run_stage(context: dg.AssetExecutionContext, config: Run) -> Iterator[Any]:
        yield from materialize(context, graph, stage, config)

    decorate = dg.asset(**_shown(graph, stage), check_specs=_checks(stage, key), pool=POOL)
    made: dg.AssetsDefinition = decorate(run_stage)
    return made


def _checks(stage: Stage, key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    return checks.specs(key, gated=is_gated(stage), makes_rows=makes_rows(stage), expected=expected(stage))


def _shown(graph: Graph, stage: Stage) -> dict[str, Any]:
    """How the asset looks, from the stage's `meta` and `desc` in dvc.yaml."""
    meta = dict(stage.meta)
    sources = [dg.AssetKey(list(source_key(p))) for p in graph.sources[stage.name]]
    owner = meta.get("owner")
    return {
        "key": key_of(stage),
        "deps": [*(key_of(graph.by_name[n]) for n in graph.above[stage.name]), *sources],
        "group_name": str(meta.get("group") or stage.key[0]),
        "kinds": set(["dvc", *map(str, meta.get("kinds") or [])][:MAX_KINDS]),
        "owners": [str(owner)] if owner else None,
        "description": stage.desc or None,
        "tags": {"language": stage.item} if stage.item else None,
        "code_version": graph.code_now(stage),
        "metadata": {
            "stage": stage.name,
            "command": stage.cmd,
            "makes": dg.MetadataValue.json(list(stage.outs)),
        },
    }
