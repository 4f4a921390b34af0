"""The gate passes what the engine makes and stops each kind of damaged meaning."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest
from egoavu_workspace import Workspace

from pipelines.gates.egoavu import QUESTIONS, event_key, measures
from pipelines.gates.suite import judge
from pipelines.step import GateFailure

Damage = Callable[[pl.DataFrame], pl.DataFrame]


def skewed_letters(rows: pl.DataFrame) -> pl.DataFrame:
    """Six right options moved to C, each with its text: nothing else is wrong."""
    at = (
        rows.with_row_index()
        .filter((pl.col("task") == "TR") & (pl.col("answer") == "A"))["index"]
        .to_list()[:6]
    )
    made = rows.to_dicts()
    for n in at:
        for column in ("options", "option_nodes", "option_events"):
            made[n][column][0], made[n][column][2] = made[n][column][2], made[n][column][0]
        made[n]["answer"] = "C"
    return pl.DataFrame(made, schema=rows.schema)


def skewed_yes_no(rows: pl.DataFrame) -> pl.DataFrame:
    one = rows.filter((pl.col("task") == "AVH") & (pl.col("answer") == "yes"))["row_id"][0]
    return rows.with_columns(answer=pl.when(pl.col("row_id") == one).then(pl.lit("no")).otherwise("answer"))


def unbalanced_halves(rows: pl.DataFrame) -> pl.DataFrame:
    """All yes in train, all no in bench, for one modality: even over all, and yet a split tells."""
    return rows.filter(
        ~((pl.col("task") == "AVH") & (pl.col("modality") == "action") & (pl.col("answer") == "yes"))
    )


def no_evidence(rows: pl.DataFrame) -> pl.DataFrame:
    made = rows.to_dicts()
    made[3]["evidence"] = []
    return pl.DataFrame(made, schema=rows.schema)


def blank_evidence(rows: pl.DataFrame) -> pl.DataFrame:
    made = rows.to_dicts()
    made[3]["evidence"] = [""]
    return pl.DataFrame(made, schema=rows.schema)


def in_a_choice(change: Callable[[dict[str, list[str]], int], None]) -> Damage:
    def damage(rows: pl.DataFrame) -> pl.DataFrame:
        made = rows.to_dicts()
        row = next(r for r in made if r["task"] == "TR")
        change(row, "ABCD".index(row["answer"]))
        return pl.DataFrame(made, schema=rows.schema)

    return damage


def repeat(row: dict[str, list[str]], right: int) -> None:
    for column in ("options", "option_nodes", "option_events"):
        row[column][(right + 1) % 4] = row[column][right]


def invent(row: dict[str, list[str]], right: int) -> None:
    row["options"][(right + 1) % 4] = "fly a kite"


def borrow(row: dict[str, list[str]], right: int) -> None:
    """A true event, with its key, but of another video."""
    at = (right + 1) % 4
    row["options"][at] = "milk the goat"
    row["option_events"][at] = event_key("another-video", str(row["modality"]), "milk the goat")


def leak(rows: pl.DataFrame) -> pl.DataFrame:
    one = rows.filter(pl.col("split") == "bench")["row_id"][0]
    return rows.with_columns(split=pl.when(pl.col("row_id") == one).then(pl.lit("train")).otherwise("split"))


@pytest.mark.parametrize(
    ("damage", "measure"),
    [
        (skewed_letters, "letter_skew"),
        (skewed_yes_no, "yes_no_skew"),
        (unbalanced_halves, "yes_no_skew"),
        (no_evidence, "rows_without_evidence"),
        (blank_evidence, "rows_without_evidence"),
        (in_a_choice(repeat), "repeated_options"),
        (in_a_choice(invent), "options_not_in_video"),
        (in_a_choice(borrow), "options_not_in_video"),
        (leak, "videos_in_both_splits"),
        (leak, "wearers_in_both_splits"),
        (lambda rows: rows.clear(), "rows"),
    ],
)
def test_damaged_meaning_is_seen_by_its_measure(demo: Workspace, damage: Damage, measure: str) -> None:
    rows = demo.rows("questions")
    bounds = {e.measure: e for e in QUESTIONS.expectations}[measure]

    def within(value: float) -> bool:
        return (bounds.low is None or value >= bounds.low) and (bounds.high is None or value <= bounds.high)

    assert within(measures(rows)[measure])
    assert not within(measures(damage(rows))[measure])


def test_the_judge_passes_the_engine_and_names_what_is_skewed(demo: Workspace) -> None:
    rows = demo.rows("questions")
    assert demo.outcomes("questions")["gate"]["passed"] is True
    verdict = judge(QUESTIONS, skewed_letters(rows))
    assert not verdict.passed
    assert [c["measure"] for c in verdict.checks if not c["passed"]] == ["letter_skew"]
    assert "a quarter" in verdict.failures()


@pytest.mark.parametrize("n", range(1, 9))
def test_a_small_set_passes_when_it_is_as_even_as_it_can_be(demo: Workspace, n: int) -> None:
    choice = demo.rows("questions").filter((pl.col("task") == "TR") & (pl.col("kind") == "after"))
    one = choice.filter((pl.col("modality") == "action") & (pl.col("split") == "train")).head(n)
    letters = [("A", "B", "C", "D")[i % 4] for i in range(len(one))]
    assert measures(one.with_columns(answer=pl.Series(letters)))["letter_skew"] == 0
    assert measures(one.with_columns(answer=pl.lit("C")))["letter_skew"] == n - (1 if n % 4 else 0)


def test_a_stage_whose_gate_fails_publishes_no_rows(
    workspace: Callable[..., Workspace], demo: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipelines.egoavu import questions

    monkeypatch.setattr(questions, "deal", lambda found, seed, places: {key: 2 for _, key in found})
    w = workspace(demo.raw)
    with pytest.raises(GateFailure, match="a quarter"):
        w.run()
    folder = w.root / "data" / "egoavu" / "questions"
    assert w.outcomes("questions")["gate"]["passed"] is False
    assert not (folder / "rows.parquet").exists()
    assert (w.root / ".headrace" / "held" / "egoavu" / "questions" / "rows.parquet").is_file()
