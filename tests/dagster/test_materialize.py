"""A materialisation is a `dvc repro` of its stage, and says what came of it."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
from brook_workspace import ALL, Brook, made, materializations, staleness


def test_materialising_everything_leaves_nothing_for_dvc_to_do(
    brook: Brook, instance: dg.DagsterInstance
) -> None:
    result = brook.materialize(instance)
    assert result.success
    assert made(result) == dict.fromkeys(ALL, True)
    assert brook.dvc("status").stdout.strip() == "Data and pipelines are up to date."
    assert set(staleness(brook.definitions(), instance).values()) == {"FRESH"}


def test_a_materialisation_tells_the_rows_of_its_stage(brook: Brook, instance: dg.DagsterInstance) -> None:
    result = brook.materialize(instance, keys=["brook/ingest"])
    [event] = materializations(result)
    counts = ("rows in", "accepted", "rejected", "other", "dagster/row_count", "tokens")
    told = {k: v.value for k, v in event.metadata.items()}
    assert {k: told[k] for k in counts} == {
        "rows in": 6, "accepted": 4, "rejected": 2, "other": 0, "dagster/row_count": 4, "tokens": 7,
    }  # fmt: skip
    assert told["metric/letters/all"] == 18
    assert "| river |" in str(told["preview"]) and "too\\_long" in str(told["reasons"])
    [md5] = [o["md5"] for o in brook.lock()["brook.ingest"]["outs"] if o["path"].endswith("rows.parquet")]
    assert (event.tags or {})["dagster/data_version"] == md5


def test_an_unchanged_stage_is_passed_by_and_reports_all_the_same(
    brook: Brook, instance: dg.DagsterInstance
) -> None:
    before = brook.materialize(instance)
    after = brook.materialize(instance)
    assert made(after) == dict.fromkeys(ALL, False)
    versions = [
        {m.asset_key: (m.tags or {})["dagster/data_version"] for m in materializations(r)}
        for r in (before, after)
    ]  # fmt: skip
    assert versions[0] == versions[1]


def test_a_plot_is_shown(brook: Brook, instance: dg.DagsterInstance) -> None:
    result = brook.materialize(instance)
    events = materializations(result)
    [page] = [e for e in events if e.asset_key.path == ["evaluation", "page"]]
    assert str(page.metadata["plot/plot"].value).startswith("![plot](data:image/svg+xml;base64,")


def test_force_runs_a_stage_that_nothing_touched(brook: Brook, instance: dg.DagsterInstance) -> None:
    brook.materialize(instance)
    forced = {"brook__ingest": {"config": {"force": True}}}
    result = brook.materialize(instance, keys=["brook/ingest"], ops=forced)
    assert made(result) == {"brook/ingest": True}


def test_a_parameter_reruns_what_depends_on_it_and_no_more(
    brook: Brook, instance: dg.DagsterInstance
) -> None:
    brook.materialize(instance)
    brook.set("brook.loud.tail", "?")
    stale = {k for k, v in staleness(brook.definitions(), instance).items() if v == "STALE"}
    assert stale == {"brook/loud"}
    ran = {k for k, ran in made(brook.materialize(instance)).items() if ran}
    assert ran == {"brook/loud", "brook/judge", "evaluation/page"}


def test_a_parameter_reruns_the_same_stages_from_a_shell(shell_made: Brook) -> None:
    shell_made.set("brook.loud.tail", "?")
    told = shell_made.dvc("repro").stdout
    ran = {line.split("'")[1] for line in told.splitlines() if line.startswith("Running stage")}
    assert ran == {"brook.loud", "brook.judge", "evaluation.page"}


def test_both_drivers_leave_the_same_lock(
    brook: Brook, _run_once: Path, instance: dg.DagsterInstance
) -> None:
    brook.materialize(instance, keys=["brook/ingest", "brook/loud"])
    assert brook.dvc("repro").returncode == 0
    assert brook.lock() == Brook(_run_once).lock()


def test_what_a_stage_prints_is_in_the_runs_log(brook: Brook, instance: dg.DagsterInstance) -> None:
    result = brook.materialize(instance, keys=["brook/ingest"])
    logged = [e.user_message for e in instance.all_logs(result.run_id)]
    assert "working on brook.ingest" in logged
