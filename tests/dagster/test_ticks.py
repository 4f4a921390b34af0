"""The schedule and the sensors, through Dagster's own evaluation of a tick."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
from brook_workspace import ALL, Brook, staleness

READERS = {"brook/ingest", "brook/loud", "brook/tell/fr", "brook/tell/no", "brook/judge", "evaluation/page"}


def tick(
    brook: Brook, instance: dg.DagsterInstance, name: str, cursor: str | None = None
) -> tuple[list[dg.RunRequest], str | None, str]:
    """One evaluation: what is asked for, the new cursor, what is said."""
    repository = brook.definitions().get_repository_def()
    sensor = repository.get_sensor_def(name)
    with dg.build_sensor_context(instance=instance, cursor=cursor, repository_def=repository) as context:
        told = sensor.evaluate_tick(context)
    return list(told.run_requests or []), told.cursor, told.skip_message or ""


def asked(requests: list[dg.RunRequest]) -> set[str]:
    return {k.to_user_string() for r in requests for k in r.asset_selection or []}


def test_the_reporter_tells_of_a_shell_run_and_the_next_tick_tells_nothing(
    shell_made: Brook, instance: dg.DagsterInstance
) -> None:
    _, _, first = tick(shell_made, instance, "report_shell_runs")
    assert first.startswith("reported brook.ingest, ")
    assert staleness(shell_made.definitions(), instance) == dict.fromkeys(ALL, "FRESH")
    _, _, second = tick(shell_made, instance, "report_shell_runs")
    assert second == "nothing was made outside Dagster"


def test_new_raw_content_asks_once_for_what_depends_on_it(
    shell_made: Brook, instance: dg.DagsterInstance
) -> None:
    requests, cursor, said = tick(shell_made, instance, "on_raw_brook")
    assert requests == [] and said == "data/raw/brook was read as it is"
    shell_made.words.write_text("pebble\n" + shell_made.words.read_text())
    requests, cursor, _ = tick(shell_made, instance, "on_raw_brook", cursor)
    assert len(requests) == 1 and asked(requests) == READERS
    again, cursor, said = tick(shell_made, instance, "on_raw_brook", cursor)
    assert again == [] and said == "data/raw/brook is unchanged"


def test_a_touched_file_of_the_same_content_asks_for_nothing(
    shell_made: Brook, instance: dg.DagsterInstance
) -> None:
    _, cursor, _ = tick(shell_made, instance, "on_raw_brook")
    shell_made.words.write_bytes(shell_made.words.read_bytes())
    shell_made.words.touch()
    requests, _, said = tick(shell_made, instance, "on_raw_brook", cursor)
    assert requests == [] and said == "data/raw/brook is unchanged"


def test_content_that_comes_back_is_asked_for_again(shell_made: Brook, instance: dg.DagsterInstance) -> None:
    first = shell_made.words.read_text()
    _, cursor, _ = tick(shell_made, instance, "on_raw_brook")
    keys = []
    for content in ("pebble\n" + first, "pebbles\n" + first, "pebble\n" + first):
        shell_made.words.write_text(content)
        requests, cursor, _ = tick(shell_made, instance, "on_raw_brook", cursor)
        keys += [r.run_key for r in requests]
    assert len(set(keys)) == 3


def test_a_source_sensor_waits_for_what_its_readers_need_too(
    brook: Brook, instance: dg.DagsterInstance
) -> None:
    graph = (brook.root / "dvc.yaml").read_text()
    (brook.root / "data" / "observations" / "brook").mkdir(parents=True)
    (brook.root / "data" / "observations" / "brook" / "1.txt").write_text("seen\n")
    before, needs, after = graph.rpartition("      - data/brook/loud/rows.parquet\n")  # those of the judge
    (brook.root / "dvc.yaml").write_text(f"{before}{needs}      - data/observations/brook\n{after}")
    requests, cursor, said = tick(brook, instance, "on_observations_brook")
    assert requests == [] and cursor is None and said == "brook.loud was never made, which is needed too"
    assert brook.dvc("repro", "brook.loud").returncode == 0
    requests, _, _ = tick(brook, instance, "on_observations_brook", cursor)
    assert asked(requests) == {"brook/judge", "evaluation/page"}


@pytest.mark.parametrize("name", ["on_raw_brook", "report_shell_runs"])
def test_a_sensor_skips_a_dvc_lock_that_was_cut_short_and_says_what_mends_it(
    shell_made: Brook, instance: dg.DagsterInstance, name: str
) -> None:
    path = shell_made.root / "dvc.lock"
    text = path.read_text()
    path.write_text(text[: text.rindex("md5: ")])
    assert tick(shell_made, instance, name) == ([], None, "dvc.lock: is cut short (headrace run mends it)")


def test_the_run_that_a_sensor_asks_for_can_be_made(shell_made: Brook, instance: dg.DagsterInstance) -> None:
    _, cursor, _ = tick(shell_made, instance, "on_raw_brook")
    shell_made.words.write_text("pebble\n" + shell_made.words.read_text())
    [request], _, _ = tick(shell_made, instance, "on_raw_brook", cursor)
    keys = [k.to_user_string() for k in request.asset_selection or []]
    assert shell_made.materialize(instance, keys=keys).success
    assert shell_made.clean()
    assert staleness(shell_made.definitions(), instance) == dict.fromkeys(ALL, "FRESH")


def test_an_edit_since_loading_is_noticed(
    shell_made: Brook, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dagster_project import reload
    from dagster_project.versions import Graph

    monkeypatch.delenv(reload.URL, raising=False)
    graph = Graph.read(shell_made.root)
    reload.remember(graph)
    log = dg.get_dagster_logger()
    assert not reload.reload_when_stale(graph, log)
    shell_made.set("brook.loud.tail", "?")
    assert reload.reload_when_stale(graph, log)


class TestTheDailyRefresh:
    """Over the project's own graph and its own act of asking."""

    def run(self, root: Path, instance: dg.DagsterInstance, day: datetime) -> dg.ExecuteInProcessResult:
        from dagster_project.definitions import build

        repository = build(root).get_repository_def()
        schedule = repository.get_schedule_def("daily_refresh")
        with dg.build_schedule_context(
            instance=instance, scheduled_execution_time=day, repository_def=repository
        ) as context:
            [request] = schedule.evaluate_tick(context).run_requests or []
        assert request.run_key == day.date().isoformat()
        job = repository.get_job("refresh")
        return job.execute_in_process(instance=instance, run_config=request.run_config)

    @pytest.fixture
    def asked_workspace(self, tmp_path: Path) -> Path:
        from pipelines import graph
        from pipelines.cli import main

        target = tmp_path / "workspace"
        assert main(["init", str(target)]) == 0
        graph.run(target, ["evergreen.refresh"], who="a test")
        return target

    @pytest.mark.slow
    def test_a_due_tick_adds_one_file_of_observations_and_the_next_adds_none(
        self, asked_workspace: Path, instance: dg.DagsterInstance
    ) -> None:
        folder = asked_workspace / "data" / "observations" / "evergreen"
        before = set(folder.iterdir())
        day = datetime(2026, 5, 4, 6, tzinfo=UTC)
        assert self.run(asked_workspace, instance, day).success
        [added] = set(folder.iterdir()) - before
        assert added.name.startswith("2026-05-04")
        assert self.run(asked_workspace, instance, day).success
        assert set(folder.iterdir()) == before | {added}
