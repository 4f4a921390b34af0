"""What Dagster shows of the project's own graph."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_project.definitions import build

ROOT = Path(__file__).parents[2]
SNAPSHOT = Path(__file__).parent / "snapshots" / "graph.json"


@pytest.fixture(scope="module")
def project() -> dg.Definitions:
    return build(ROOT)


def drawn(definitions: dg.Definitions) -> dict[str, Any]:
    """The whole graph as a person sees it; what every edit of code changes is left out."""
    graph = definitions.get_repository_def().asset_graph
    assets = {}
    for spec in definitions.resolve_all_asset_specs():
        key = spec.key.to_user_string()
        assets[key] = {
            "deps": sorted(d.asset_key.to_user_string() for d in spec.deps),
            "group": spec.group_name,
            "kinds": sorted(spec.kinds),
            "owners": list(spec.owners),
            "description": spec.description,
            "language": spec.tags.get("language"),
            "makes": spec.metadata["makes"].value if "makes" in spec.metadata else None,
            "checks": sorted(c.name for c in graph.asset_check_keys if c.asset_key == spec.key),
        }
    repository = definitions.get_repository_def()
    return {
        "assets": dict(sorted(assets.items())),
        "jobs": {
            j.name: sorted(k.to_user_string() for k in j.asset_layer.selected_asset_keys)
            for j in repository.get_all_jobs()
            if not j.name.startswith("__")
        },
        "schedules": {s.name: s.default_status.value for s in repository.schedule_defs},
        "sensors": {s.name: s.default_status.value for s in repository.sensor_defs},
    }


def test_the_whole_graph_is_as_the_snapshot_holds_it(project: dg.Definitions) -> None:
    """After a meant change: HEADRACE_SNAPSHOT=write pytest tests/dagster/test_loading.py"""
    seen = drawn(project)
    if os.environ.get("HEADRACE_SNAPSHOT") == "write":
        SNAPSHOT.write_text(json.dumps(seen, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert seen == json.loads(SNAPSHOT.read_text(encoding="utf-8"))


def test_the_definitions_can_be_loaded(project: dg.Definitions) -> None:
    dg.Definitions.validate_loadable(project)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ('key:"trit/feedback/fr"+', ["evaluation/answers", "evaluation/report", "trit/feedback/fr"]),
        ("tag:language=pt", ["trit/feedback/pt", "trit/reason/pt", "trit/translate/pt"]),
        ('key:"trit/translate/*"', ["trit/translate/fr", "trit/translate/pt"]),
        ('+key:"egoavu/filter"', ["egoavu/filter", "egoavu/ingest"]),
    ],
)
def test_a_selection_can_be_written_as_text(project: dg.Definitions, text: str, keys: list[str]) -> None:
    graph = project.get_repository_def().asset_graph
    found = dg.AssetSelection.from_string(text).resolve(graph)
    assert sorted(k.to_user_string() for k in found) == keys


def test_every_stage_is_one_asset_with_the_stages_above_it_as_inputs(project: dg.Definitions) -> None:
    from pipelines.graph import stages, upstream

    found = stages(ROOT)
    keys = {s.name: "/".join(s.key) for s in found}
    above = upstream(found)
    drawn_deps = {
        spec.key.to_user_string(): {d.asset_key.to_user_string() for d in spec.deps}
        for spec in project.resolve_all_asset_specs()
    }
    for stage in found:
        assert {keys[n] for n in above[stage.name]} <= drawn_deps[keys[stage.name]]
    sources = {k for k in drawn_deps if k not in keys.values()}
    names = ("evergreen", "egoavu", "trit", "cbu", "self_knowledge", "benchmarks", "encoders")
    raw = {f"raw/{name}" for name in names}
    assert sources == {*raw, "observations/evergreen", "review/evergreen"}


def test_every_step_with_a_gate_is_shown_with_a_blocking_check(project: dg.Definitions) -> None:
    import importlib

    from pipelines.graph import stages

    graph = project.get_repository_def().asset_graph
    for stage in stages(ROOT):
        step = importlib.import_module(f"pipelines.{stage.key[0]}.{stage.key[1]}")
        shown = [
            k for k in graph.asset_check_keys if k.asset_key.path == list(stage.key) and k.name == "gate"
        ]
        assert bool(getattr(step, "GATE", None)) == bool(shown), stage.name
        assert all(graph.get(k).blocking for k in shown)


def test_every_previewed_column_is_one_of_the_artifact() -> None:
    import importlib

    from assets.view import view_of

    for engine in ("evergreen", "egoavu", "trit", "cbu", "training", "evaluation"):
        for step, columns in view_of(engine).previews.items():
            schema = importlib.import_module(f"pipelines.{engine}.{step}").SCHEMA
            assert set(columns) <= set(schema.columns), f"{engine}.{step}"
