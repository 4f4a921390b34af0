"""The gate of the evergreen engine refuses artifacts whose meaning is damaged."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

import polars as pl
import pytest
from evergreen_rows import FILTER, filtered, history, refresh_frame

from pipelines.data.tables import write_parquet
from pipelines.evergreen import refresh
from pipelines.evergreen.refreshing.history import Held
from pipelines.evergreen.refreshing.observations import FOLDER
from pipelines.evergreen.reviewing.review import FOLDER as REVIEWS
from pipelines.gates.evergreen import SUITE
from pipelines.gates.suite import judge
from pipelines.step import GateFailure, Step

A, B = date(2025, 1, 1), date(2025, 2, 1)
TWO = (Held("a", A, B, A, 1, None), Held("b", B, None, B, 1, None))
ONE = (Held("a", A, None, A, 1, None),)


@pytest.fixture
def sound() -> pl.DataFrame:
    rows = []
    for n in range(4):
        rows += history(filtered(f"mutable {n}"), *TWO)
        rows += history(filtered(f"evergreen {n}", label="evergreen"), *ONE)
    rows += history(filtered("moved", label="evergreen"), *TWO)  # marked for review
    rows += history(filtered("scored", split="test"), *ONE)
    rows += history(filtered("SCORED!", question_id="leak", leaks_into_test=True), *ONE)
    return refresh_frame(rows)


def first(question: str, version: int = 0) -> pl.Expr:
    return (pl.col("question") == question) & (pl.col("version") == version)


def put(column: str, where: pl.Expr, value: object) -> Callable[[pl.DataFrame], pl.DataFrame]:
    return lambda frame: frame.with_columns(
        pl.when(where).then(pl.lit(value, frame.schema[column])).otherwise(pl.col(column)).alias(column)
    )


DAMAGE = {
    "rows": lambda frame: frame.head(0),
    "questions_in_two_splits": put("split", first("mutable 1"), "test"),
    "unmarked_leaks": put("leaks_into_test", first("SCORED!"), False),
    "label_conflicts": put("question_key", first("mutable 0"), "evergreen0"),
    "labels_against_rates": put("change_rate", first("evergreen 2"), "fast"),
    "rarer_label_in_train": put("label", pl.lit(True), "mutable"),
    "overlaps": put("valid_to", first("mutable 0"), date(2025, 2, 2)),
    "gaps": put("valid_to", first("mutable 0"), date(2025, 1, 20)),
    "backward_intervals": put("valid_to", first("mutable 0"), date(2024, 12, 1)),
    "without_one_current_answer": put("valid_to", first("mutable 0", 1), date(2025, 3, 1)),
    "changes_to_the_same": put("answer", first("mutable 0"), "b"),
    "unflagged_changes": put("review", first("moved", 1), False),
    "impossible_probabilities": put("p_evergreen", first("evergreen 0"), 1.2),
    "parts_crossed": put("p_evergreen", first("evergreen 0"), 0.05),
    "part_is_label": put("part", pl.lit(True), "evergreen"),
}


def test_sound_histories_pass(sound: pl.DataFrame) -> None:
    verdict = judge(SUITE, sound)
    assert verdict.passed, verdict.failures()


@pytest.mark.parametrize("measure", sorted(DAMAGE))
def test_each_damage_fails_the_expectation_that_names_it(sound: pl.DataFrame, measure: str) -> None:
    value = SUITE.measures(DAMAGE[measure](sound))[measure]
    expect = next(e for e in SUITE.expectations if e.measure == measure)
    low, high = expect.low, expect.high
    assert (low is not None and value < low) or (high is not None and value > high)


def test_every_expectation_is_shown_to_fail() -> None:
    assert {e.measure for e in SUITE.expectations} == set(DAMAGE)


def test_great_expectations_judges_the_same(sound: pl.DataFrame) -> None:
    damaged = DAMAGE["unmarked_leaks"](DAMAGE["gaps"](sound))
    verdict = judge(SUITE, damaged)
    assert {c["measure"] for c in verdict.checks if not c["passed"]} == {"unmarked_leaks", "gaps"}


def test_the_stage_publishes_no_rows_that_its_gate_refuses(tmp_path: Path) -> None:
    rows = [filtered("Who leads?", split="test"), filtered("who leads", question_id="leak")]
    write_parquet(FILTER.frame(rows), tmp_path / "data/evergreen/filter/rows.parquet")
    for folder in (FOLDER, REVIEWS):
        (tmp_path / folder).mkdir(parents=True)
    step = Step("evergreen.refresh", None, tmp_path, 7)
    refresh.run(step, refresh.Params())
    with pytest.raises(GateFailure, match="unmarked_leaks = 1"):
        step.finish(refresh.SCHEMA, refresh.GATE)
    assert not (step.folder / "rows.parquet").exists()
    assert (step.folder / "outcomes.json").is_file()
