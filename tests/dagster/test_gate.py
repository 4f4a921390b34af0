"""A gate that refuses stops both drivers, and Dagster shows which expectation failed."""

from __future__ import annotations

import dagster as dg
import pytest
from brook_workspace import Brook, made

from dagster_project.judged import check_results
from dagster_project.versions import Graph

GATE = dg.AssetCheckKey(dg.AssetKey(["brook", "judge"]), "gate")


def test_a_gate_that_refuses_fails_its_check_and_what_follows_does_not_run(
    brook: Brook, instance: dg.DagsterInstance
) -> None:
    brook.set("brook.judge.least", 9)
    result = brook.materialize(instance)
    assert not result.success
    assert set(made(result)) == {"brook/ingest", "brook/loud", "brook/tell/fr", "brook/tell/no"}
    [check] = [c for c in result.get_asset_check_evaluations() if c.asset_check_key == GATE]
    assert not check.passed and check.blocking
    assert check.description == "enough words (rows = 4)"
    [failure] = [e for e in result.all_events if e.is_step_failure]
    assert failure.step_failure_data.user_failure_data is not None
    assert "brook.judge failed" in str(failure.step_failure_data.user_failure_data.description)
    told = str(failure.step_failure_data.user_failure_data.metadata["last lines"].value)
    assert "the gate refused the rows" in told


def test_a_gate_that_refuses_stops_dvc(brook: Brook) -> None:
    brook.set("brook.judge.least", 9)
    ended = brook.dvc("repro")
    assert ended.returncode != 0
    assert "brook.judge" not in brook.lock() and "evaluation.page" not in brook.lock()


def test_a_refusal_in_a_shell_run_is_told_to_dagster_once(brook: Brook, instance: dg.DagsterInstance) -> None:
    from dagster_project.report import report

    brook.set("brook.judge.least", 9)
    brook.dvc("repro")
    graph = Graph.read(brook.root)
    assert "brook.judge (refused by its gate)" in report(instance, graph)
    record = instance.get_latest_asset_check_evaluation_record(GATE)
    assert record is not None and record.event is not None and record.event.dagster_event is not None
    assert not record.event.dagster_event.asset_check_evaluation_data.passed
    assert report(instance, graph) == []


def test_a_gate_that_passes_shows_each_expectation(brook: Brook, instance: dg.DagsterInstance) -> None:
    result = brook.materialize(instance)
    [check] = [c for c in result.get_asset_check_evaluations() if c.asset_check_key == GATE]
    assert check.passed and check.description == "1 expectations kept"
    assert "| rows | enough words | 3 |" in str(check.metadata["expectations"].value)


@pytest.mark.parametrize("name", ["rows.parquet", "rejected.parquet"])
def test_rows_that_vanish_are_found_by_an_independent_count(
    brook: Brook, instance: dg.DagsterInstance, name: str
) -> None:
    import polars as pl

    brook.materialize(instance, keys=["brook/ingest"])
    graph = Graph.read(brook.root)
    stage = graph.by_name["brook.ingest"]
    [right] = check_results(graph, stage)
    assert right.passed and right.description == "all counts agree"
    path = brook.root / "data/brook/ingest" / name
    short = pl.read_parquet(path).head(1)
    path.unlink()
    short.write_parquet(path)
    [wrong] = check_results(graph, stage)
    assert not wrong.passed
    assert str(wrong.description).startswith(f"{name}: ")
