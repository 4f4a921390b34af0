"""Scores by stratum on rows whose figures are known, and the joins that tell a row's stratum."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from pipelines.evaluation.beside import form_table, graded_rates, leaked
from pipelines.evaluation.strata import (
    base_rates,
    by_change_rate,
    by_form,
    decontamination,
    errors_by_kind,
    split_figures,
)
from pipelines.evaluation.systems import Scoring, described, systems

HOW = Scoring(threshold=0.5, bootstrap=200, confidence=0.95, bins=10, seed=1)
COLUMNS = {
    "row_id": pl.String, "question_id": pl.String, "language": pl.String, "question": pl.String,
    "label": pl.String, "change_rate": pl.String, "leaked": pl.String, "split": pl.String,
    "source": pl.String, "p_evergreen": pl.Float64, "p_bag": pl.Float64, "p_contaminated": pl.Float64,
}  # fmt: skip


def frame(*rows: dict[str, Any]) -> pl.DataFrame:
    """Rows of English test questions; what is not said of one is as here."""
    usual = {"language": "en", "label": "evergreen", "split": "test", "source": "real", "p_evergreen": 0.9}
    told = []
    for n, row in enumerate(rows):
        values = dict.fromkeys(COLUMNS) | usual | {"row_id": f"r{n}", "question_id": f"q{n}"} | row
        for column in ("p_bag", "p_contaminated"):
            values[column] = values["p_evergreen"] if values[column] is None else values[column]
        told.append(values)
    return pl.DataFrame(told, schema=COLUMNS, orient="row")


LARGEST, AGE, DIED = "What is the largest lake?", "How old is Tom Hanks?", "When did Ann Bell die?"


def test_errors_stand_by_kind_and_a_false_positive_is_a_mutable_question_taken_for_evergreen() -> None:
    rows = described(
        frame(
            {"question": LARGEST, "label": "mutable", "p_evergreen": 0.8},
            {"question": LARGEST, "label": "evergreen", "p_evergreen": 0.2},
            {"question": LARGEST, "label": "evergreen", "p_evergreen": 0.3},
            {"question": AGE, "label": "mutable", "p_evergreen": 0.1},
            {"question": DIED, "label": "evergreen", "p_evergreen": 0.5},
            {"question": "What is salt?", "label": "evergreen", "p_evergreen": 0.4},
        )
    )
    found = errors_by_kind(rows, HOW)
    largest = found["superlative"]
    assert (largest["questions"], largest["false_positives"], largest["false_negatives"]) == (3, 1, 2)
    assert (largest["false_positive_rate"], largest["false_negative_rate"]) == (1.0, 1.0)
    assert largest["negatives_per_positive"] == 2.0
    assert largest["evergreen_share"] == pytest.approx(2 / 3)
    assert (found["living_person"]["false_positives"], found["living_person"]["weighted_f1"]) == (0, 1.0)
    assert found["dead_person"]["false_negatives"] == 0  # P at the threshold is evergreen
    assert found["none"]["false_negatives"] == 1
    assert found["recent_year"] == {"questions": 0, "rows": 0}
    assert (found["any"]["false_positives"], found["any"]["false_negatives"]) == (1, 3)


def test_a_question_without_an_english_wording_has_no_form_and_no_kind() -> None:
    rows = described(frame({"language": "fr", "question": "Quel est le plus grand lac ?"}))
    assert rows.select("lead", "tense").row(0) == ("no_english_wording", "no_english_wording")
    assert rows["kinds"].to_list() == [[]]


def test_the_english_wording_tells_the_kind_of_all_wordings() -> None:
    rows = described(
        frame(
            {"question_id": "q", "language": "fr", "question": "Quel est le plus grand lac ?"},
            {"question_id": "q", "question": LARGEST},
        )
    )
    assert rows["kinds"].to_list() == [["superlative"]] * 2
    assert rows["lead"].to_list() == ["what", "what"]


def test_scores_within_a_form_stand_beside_its_own_constant_answer() -> None:
    rows = described(
        frame(
            *({"question": AGE, "label": "mutable", "p_evergreen": 0.1, "p_bag": 0.9} for _ in range(3)),
            {"question": AGE, "label": "evergreen", "p_evergreen": 0.9, "p_bag": 0.9},
            {"question": DIED, "p_evergreen": 0.9},
        )
    )
    told = by_form(rows, HOW)
    old = told["lead"]["how_old"]
    assert (old["questions"], old["evergreen_share"]) == (4, 0.25)
    assert old["weighted_f1"]["classifier"] == 1.0
    assert old["weighted_f1"]["constant"] == pytest.approx(0.75 * 6 / 7)
    assert old["weighted_f1"]["bag_of_ngrams"] == pytest.approx(0.25 * 2 / 5)
    assert (
        sum(s["rows"] for s in told["lead"].values()) == sum(s["rows"] for s in told["tense"].values()) == 5
    )


def test_the_auroc_within_forms_forgets_what_the_form_alone_tells() -> None:
    rows = described(
        frame(
            {"question": AGE, "label": "mutable", "p_evergreen": 0.1},
            {"question": AGE, "label": "evergreen", "p_evergreen": 0.1},
            {"question": DIED, "label": "evergreen", "p_evergreen": 0.9},
            {"question": DIED, "label": "mutable", "p_evergreen": 0.9},
        )
    )
    assert by_form(rows, HOW)["auroc_within"]["classifier"] == 0.5


def test_p_by_change_rate_counts_a_question_once_over_its_languages() -> None:
    rows = frame(
        {"question_id": "a", "change_rate": "never", "p_evergreen": 0.9},
        {"question_id": "a", "language": "fr", "change_rate": "never", "p_evergreen": 0.7},
        {"question_id": "b", "label": "mutable", "change_rate": "slow", "p_evergreen": 0.6},
        {"question_id": "c", "label": "mutable", "change_rate": "fast", "p_evergreen": 0.1},
        {"question_id": "d", "label": "mutable", "change_rate": "fast", "p_evergreen": 0.3},
        {"question_id": "e", "label": "mutable", "p_evergreen": 0.3},
    )
    told = by_change_rate(rows, HOW)
    assert (told["questions"], told["of"]) == (4, 5)
    assert told["never"]["mean_p"] == {"value": 0.8, "low": 0.8, "high": 0.8}
    assert told["fast"]["questions"] == 2
    assert told["fast"]["mean_p"] == {"value": 0.2, "low": 0.1, "high": 0.3}
    assert told["slow"]["called_evergreen"] == {"value": 1.0, "low": 0.206549, "high": 1.0}  # Wilson, 1 of 1
    assert told["auroc_never_over_slow"] == told["auroc_never_over_fast"] == told["auroc_slow_over_fast"] == 1


def test_the_base_rates_of_the_published_splits_stand_beside_calibration() -> None:
    """1,799 : 209 real and 30 : 1,449 synthetic questions in train (EverGreenQA, released data)."""
    counts = (("real", "evergreen", 1799), ("real", "mutable", 209))
    counts += (("synth", "evergreen", 30), ("synth", "mutable", 1449))
    rows = frame(
        *(
            {"split": "train", "source": source, "label": label, "question_id": f"{source}{label}{n}"}
            for source, label, count in counts
            for n in range(count)
        )
    )
    told = base_rates(rows)["train"]
    assert (told["questions"], round(told["evergreen_share"], 3)) == (3487, 0.525)
    assert round(told["by_source"]["real"]["evergreen_share"], 3) == 0.896
    assert round(told["by_source"]["synth"]["evergreen_share"], 3) == 0.020


def test_a_split_tells_its_calibration_base_rate_and_constant_answer() -> None:
    told = split_figures(
        frame(
            {"p_evergreen": 0.75},
            {"p_evergreen": 0.75},
            {"p_evergreen": 0.75},
            {"label": "mutable", "p_evergreen": 0.75},
        ),
        HOW,
    )
    assert (told["ece"], told["evergreen_share"], told["mean_p"]) == (0.0, 0.75, 0.75)
    assert told["brier"] == pytest.approx(0.1875)
    assert told["weighted_f1"] == told["constant"] == pytest.approx(0.75 * 6 / 7)


def test_full_and_decontaminated_figures_stand_side_by_side() -> None:
    rows = frame(
        {"p_evergreen": 0.9, "p_contaminated": 0.1},
        {"label": "mutable", "p_evergreen": 0.1, "p_contaminated": 0.9},
        {"leaked": "equal", "p_evergreen": 0.1, "p_contaminated": 0.9},
        {"leaked": "near", "label": "mutable", "p_evergreen": 0.9, "p_contaminated": 0.1},
    )
    told = decontamination(rows, HOW)
    assert told["leaked_questions"] == {"equal": 1, "near": 1}
    figures = {
        model: [told[model][part]["value"] for part in ("whole", "without_leaked", "leaked_alone")]
        for model in ("trained_without_leaks", "trained_with_leaks")
    }
    assert figures == {"trained_without_leaks": [0.5, 1.0, 0.0], "trained_with_leaks": [0.5, 0.0, 1.0]}


def test_a_further_part_of_the_classifier_is_a_system_and_an_absent_one_is_none() -> None:
    rows = frame({}).with_columns(p_new=pl.lit(0.4), p_encoder=pl.lit(None, pl.Float64))
    assert systems(rows) == {
        "classifier": "p_evergreen",
        "bag_of_ngrams": "p_bag",
        "without_decontamination": "p_contaminated",
        "new": "p_new",
    }


def test_a_graded_rate_is_joined_by_an_equal_wording_of_the_same_language() -> None:
    dev = frame(
        {"question_id": "dev", "question": "Who rules Oslo ?", "label": "mutable", "change_rate": "unknown"},
        {"question_id": "dev", "language": "fr", "question": "Qui ?", "label": "mutable"},
        {"question_id": "other", "language": "fr", "question": "who rules oslo", "label": "mutable"},
        {"question_id": "own", "question": "x", "label": "evergreen", "change_rate": "never"},
    )
    fresh = frame({"question": "Who rules OSLO?", "label": "mutable", "change_rate": "slow"})
    assert graded_rates(dev, fresh) == {"dev": "slow", "own": "never"}


def test_rates_that_contradict_each_other_or_the_label_grade_nothing() -> None:
    dev = frame(
        {"question_id": "a", "question": "A?", "label": "mutable"}, {"question_id": "b", "question": "B"}
    )
    fresh = frame(
        {"question": "A", "change_rate": "slow"},
        {"question": "a", "change_rate": "fast"},
        {"question": "B", "change_rate": "fast"},
    )
    assert graded_rates(dev, fresh) == {}


def test_a_test_question_that_train_says_too_is_leaked_and_one_that_training_left_out_for_is_near() -> None:
    rows = frame(
        {"row_id": "t1", "question_id": "a", "question": "Who wrote Emma?"},
        {"row_id": "t2", "question_id": "b", "question": "Who wrote Faust?"},
        {"row_id": "t3", "question_id": "c", "language": "fr", "question": "WHO WROTE EMMA"},
        {"row_id": "r1", "question_id": "x", "question": "who wrote emma", "split": "train"},
        {"row_id": "r2", "question_id": "y", "question": "Who penned Faust?", "split": "train"},
    )
    left_out = pl.DataFrame({"parents": [["r1", "t1"], ["r2", "t2"], []]})
    assert leaked(rows, left_out) == {"a": "equal", "b": "near"}


def test_the_blindest_baseline_is_the_share_of_its_form_in_train() -> None:
    train = frame(
        *({"question": AGE, "label": "mutable"} for _ in range(3)),
        {"question": DIED, "label": "evergreen"},
    )
    share = form_table(train)
    assert share("how_old", "present") == pytest.approx((0 + 0.25) / 4)
    assert share("when", "past") == pytest.approx((1 + 0.25) / 2)
    assert share("why", "future") == 0.25
