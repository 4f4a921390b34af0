"""What a shell run made is told to Dagster with all versions, once."""

from __future__ import annotations

import dagster as dg
from brook_workspace import ALL, Brook, staleness

from dagster_project.report import report
from dagster_project.versions import Graph, fingerprint
from pipelines.pace import Figures
from pipelines.progress import Told, keep, outcomes_version

FRESH = dict.fromkeys(ALL, "FRESH")


def told(brook: Brook, instance: dg.DagsterInstance) -> list[str]:
    return report(instance, Graph.read(brook.root))


def test_after_a_shell_run_every_asset_is_fresh(shell_made: Brook, instance: dg.DagsterInstance) -> None:
    assert len(told(shell_made, instance)) == 6
    assert staleness(shell_made.definitions(), instance) == FRESH
    event = instance.get_latest_materialization_event(dg.AssetKey(["brook", "ingest"]))
    assert event is not None and event.asset_materialization is not None
    assert event.asset_materialization.metadata["origin"].value == "made by a shell run"
    assert event.asset_materialization.metadata["rows in"].value == 6


def test_the_figures_of_the_model_calls_that_made_it_are_told_with_it(
    shell_made: Brook, instance: dg.DagsterInstance
) -> None:
    for stage, version in (
        ("brook.ingest", ""),
        ("brook.loud", outcomes_version(shell_made.root, "brook/loud")),
    ):
        figures = Figures(100, 60, 40, 3, 1.5, 10.0, 7, 2).plain()
        keep(shell_made.root, Told(stage, 1, figures, ended=True, outcomes=version))
    told(shell_made, instance)
    shown = {}
    for name in ("ingest", "loud"):
        event = instance.get_latest_materialization_event(dg.AssetKey(["brook", name]))
        assert event is not None and event.asset_materialization is not None
        metadata = event.asset_materialization.metadata
        shown[name] = {k: v.value for k, v in metadata.items() if k.startswith("calls/")}
    assert shown["ingest"] == {}, "another run made these outs"
    assert shown["loud"] == {
        "calls/rows per second": 10.0, "calls/answers": 100, "calls/answers asked": 60,
        "calls/answers stored before": 40, "calls/answers failed": 3, "calls/answers over budget": 7,
        "calls/answers of unknown price": 2, "calls/stored share": 0.3636,
        "calls/spent in this run (USD)": 1.5, "calls/seconds of model calls": 10.0,
    }  # fmt: skip


def test_a_second_look_tells_nothing(shell_made: Brook, instance: dg.DagsterInstance) -> None:
    told(shell_made, instance)
    assert told(shell_made, instance) == []


def test_what_dagster_made_itself_is_not_told_again(brook: Brook, instance: dg.DagsterInstance) -> None:
    brook.materialize(instance)
    assert told(brook, instance) == []
    assert staleness(brook.definitions(), instance) == FRESH


def test_any_order_of_drivers_ends_fresh(brook: Brook, instance: dg.DagsterInstance) -> None:
    brook.dvc("repro", "--single-item", "brook.ingest")
    brook.materialize(instance, keys=["brook/loud", "brook/judge"])
    brook.dvc("repro")
    told(brook, instance)
    assert staleness(brook.definitions(), instance) == FRESH
    assert brook.clean()


def test_a_changed_source_makes_its_reader_stale(shell_made: Brook, instance: dg.DagsterInstance) -> None:
    told(shell_made, instance)
    shell_made.words.write_text("pebble\n" + shell_made.words.read_text())
    told(shell_made, instance)
    assert staleness(shell_made.definitions(), instance) == {**FRESH, "brook/ingest": "STALE"}


def test_an_input_made_anew_makes_its_readers_stale(shell_made: Brook, instance: dg.DagsterInstance) -> None:
    shell_made.words.write_text("pebble\n" + shell_made.words.read_text())
    shell_made.dvc("repro", "--single-item", "brook.ingest")
    told(shell_made, instance)
    readers = ("brook/loud", "brook/tell/fr", "brook/tell/no", "evaluation/page")
    assert staleness(shell_made.definitions(), instance) == {**FRESH, **dict.fromkeys(readers, "STALE")}


def test_an_edit_after_a_shell_run_makes_stale_what_the_old_code_made(
    shell_made: Brook, instance: dg.DagsterInstance
) -> None:
    shell_made.set("brook.loud.tail", "?")
    told(shell_made, instance)
    assert staleness(shell_made.definitions(), instance) == {**FRESH, "brook/loud": "STALE"}


def test_a_folder_is_hashed_as_dvc_hashes_it(brook: Brook) -> None:
    folder = brook.words.parent
    (folder / "more").mkdir()
    (folder / "more" / "ö.txt").write_text("élan\n")
    (folder / "Z.txt").write_text("")
    (folder / ".words.txt.71.tmp").write_text("what a killed process left")
    (brook.root / ".dvcignore").write_text(".*.tmp\n")
    brook.dvc("repro", "--single-item", "brook.ingest")
    deps = brook.lock()["brook.ingest"]["deps"]
    assert {"path": "data/raw/brook", "md5": fingerprint(folder)}.items() <= deps[0].items()
