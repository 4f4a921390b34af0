"""The job that asks the world: one file of observations for a day, and what it came to."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import dagster as dg
import pytest

from dagster_project.jobs import refresh_job
from tests.evergreen.evergreen_rows import FILTER, filtered

FACTS = """question,language,answer,as_of
Who leads Corvane?,en,Ann,2026-02-01
Who leads Corvane?,en,Bo,2026-03-01
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with one mutable and one evergreen question, and a table of facts."""
    rows = [
        filtered("Who leads Corvane?", answer="Ann", as_of=date(2026, 1, 1)),
        filtered("Who wrote Emma?", answer="Jane Austen", label="evergreen"),
    ]
    folder = tmp_path / "data/evergreen/filter"
    for path in (folder, tmp_path / "data/observations/evergreen", tmp_path / "data/review/evergreen"):
        path.mkdir(parents=True)
    FILTER.frame(rows).write_parquet(folder / "rows.parquet")
    (tmp_path / "facts.csv").write_text(FACTS)
    (tmp_path / "params.yaml").write_text(
        "seed: 7\nevergreen: {refresh: {facts: facts.csv, audit_share: 0.0}}\n"
    )
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    return tmp_path


def asked(root: Path, instance: dg.DagsterInstance, day: str) -> dg.ExecuteInProcessResult:
    return refresh_job(root).execute_in_process(
        instance=instance,
        raise_on_error=False,
        run_config={"ops": {"ask_world": {"config": {"as_of": day}}}},
    )


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    """What a run that failed says of it."""
    assert not result.success
    [failure] = [e for e in result.all_events if e.is_step_failure]
    told = failure.step_failure_data.user_failure_data
    assert told is not None, "it ended in a traceback"
    return str(told.description)


def test_a_day_adds_one_file_and_tells_what_was_asked_and_saved(
    root: Path, instance: dg.DagsterInstance
) -> None:
    result = asked(root, instance, "2026-03-05")
    assert result.success
    [output] = [e.step_output_data for e in result.all_events if e.is_successful_output]
    told = {k: v.value for k, v in output.metadata.items()}
    assert {k: told[k] for k in ("due", "answered", "changed", "unanswered", "requests saved")} == {
        "due": 1, "answered": 1, "changed": 1, "unanswered": 0, "requests saved": 1,
    }  # fmt: skip
    [file] = (root / "data/observations/evergreen").glob("*.jsonl")
    assert told["added"] == file.relative_to(root).as_posix() and '"Bo"' in file.read_text()


def test_the_same_day_again_adds_nothing(root: Path, instance: dg.DagsterInstance) -> None:
    asked(root, instance, "2026-03-05")
    before = sorted((root / "data/observations/evergreen").iterdir())
    assert asked(root, instance, "2026-03-05").success
    assert sorted((root / "data/observations/evergreen").iterdir()) == before


def test_a_day_that_is_none_ends_the_job_with_words(root: Path, instance: dg.DagsterInstance) -> None:
    assert failure_of(asked(root, instance, "5 March")) == (
        "as_of: '5 March' is not a date (write it as YYYY-MM-DD)"
    )
    assert failure_of(asked(root, instance, "2999-03-05")).startswith("as_of: 2999-03-05 is still to come")


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ("seed: seven\n", "params.yaml: seed: must be int, is 'seven'"),
        ("evergreen: [1]\n", "params.yaml: evergreen: must be a mapping, is [1]"),
        ("llm: [1]\nevergreen: {refresh: {source: model}}\n", "params.yaml: llm: must be a mapping, is [1]"),
        ("evergreen: {refresh: {fast_day: 3}}\n", "unknown key 'fast_day' (did you mean 'fast_days'?)"),
        ("evergreen: {refresh: {fast_days: 0}}\n", "must be in [1, 36525]"),
        ("evergreen: {refresh: {facts: gone.csv}}\n", "gone.csv: no facts here"),
    ],
)
def test_bad_parameters_end_the_job_with_words(
    root: Path, instance: dg.DagsterInstance, params: str, says: str
) -> None:
    (root / "params.yaml").write_text(params)
    assert says in failure_of(asked(root, instance, "2026-03-05"))
    assert list((root / "data/observations/evergreen").iterdir()) == []


def test_a_day_of_which_a_part_failed_tells_what_the_others_came_to(
    root: Path, instance: dg.DagsterInstance
) -> None:
    (root / "world.py").write_text("def world(*_):\n    raise OSError('no route')\n")
    (root / "params.yaml").write_text(
        "evergreen: {refresh: {source: callable, callable: 'world:world', audit_share: 0.0}}\n"
    )
    result = asked(root, instance, "2026-03-05")
    assert "1 of 1 questions failed, first: source_failed OSError: no route" in failure_of(result)
    [failure] = [e for e in result.all_events if e.is_step_failure]
    told = failure.step_failure_data.user_failure_data
    assert told is not None
    assert {k: told.metadata[k].value for k in ("due", "failed", "requests saved", "added")} == {
        "due": 1, "failed": 1, "requests saved": 1, "added": "nothing",
    }  # fmt: skip
