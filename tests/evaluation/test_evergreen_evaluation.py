"""The figures of the evaluation stage on answers whose figures are known."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import polars as pl
import pytest

from pipelines.data.told import flat
from pipelines.errors import ConfigError
from pipelines.evaluation.evergreen import test_version as version_of_test
from pipelines.evaluation.evergreen import tracked
from pipelines.evaluation.evergreen_figures import Beside, Params, averaged, evaluate

PARAMS = Params(bootstrap=200)


def scored(
    evergreen: int, mutable: int, p_evergreen: dict[str, float], **others: dict[str, float]
) -> pl.DataFrame:
    """Test rows in English and French, with P by label; other columns take P of `p_evergreen`."""
    labels = ["evergreen"] * evergreen + ["mutable"] * mutable
    rows = [
        {
            "question_id": f"q{i:04}",
            "language": language,
            "question": f"How old is {i}?" if label == "mutable" and i % 3 == 0 else f"Who was {i}?",
            "label": label,
            "change_rate": None,
            "leaked": None,
            "p_evergreen": p_evergreen[label],
            **{
                column: others.get(column, p_evergreen)[label]
                for column in ("p_bag", "p_head", "p_contaminated")
            },
            "prediction": "evergreen" if p_evergreen[label] >= 0.5 else "mutable",
        }
        for i, label in enumerate(labels)
        for language in ("en", "fr")
    ]
    return pl.DataFrame(rows, schema_overrides={"change_rate": pl.String, "leaked": pl.String})


PERFECT = {"evergreen": 1.0, "mutable": 0.0}
ALWAYS = {"evergreen": 1.0, "mutable": 1.0}


def test_a_perfect_classifier_scores_one_and_is_calibrated() -> None:
    told = evaluate(scored(60, 20, PERFECT), PARAMS, 7)["classifier"]
    assert told["weighted_f1"]["mean"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert told["weighted_f1"]["fr"]["value"] == 1.0
    assert (told["ece"], told["brier"], told["auroc"]) == (0.0, 0.0, 1.0)


def test_the_constant_answer_stands_beside_with_the_published_figure() -> None:
    told = evaluate(scored(947, 323, PERFECT), PARAMS, 7)
    assert told["constant"]["weighted_f1"]["mean"]["value"] == 0.637031
    assert told["constant"]["answer"] == "evergreen"
    assert told["classifier"]["minus"]["constant"]["value"] == pytest.approx(1 - 0.637031, abs=1e-6)


def test_a_classifier_that_always_says_evergreen_is_the_constant_answer() -> None:
    told = evaluate(scored(60, 20, ALWAYS), PARAMS, 7)
    assert told["classifier"]["weighted_f1"] == told["constant"]["weighted_f1"]
    assert told["classifier"]["minus"]["constant"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert told["classifier"]["ece"] == 0.25
    assert told["classifier"]["brier"] == 0.25
    assert told["classifier"]["classes"]["mutable"]["recall"] == 0.0


def test_each_system_is_scored_by_its_own_column() -> None:
    told = evaluate(
        scored(60, 20, PERFECT, p_bag=ALWAYS, p_contaminated={"evergreen": 0.0, "mutable": 1.0}), PARAMS, 7
    )
    means = {name: told[name]["weighted_f1"]["mean"]["value"] for name in told if "weighted_f1" in told[name]}
    constant = round(0.75 * 2 * 60 / (2 * 60 + 20), 6)
    assert means == {
        "classifier": 1.0,
        "bag_of_ngrams": constant,
        "head_on_embeddings": 1.0,
        "without_decontamination": 0.0,
        "constant": constant,
        "without_templates": 1.0,
        "averaged_over_languages": 1.0,
    }


def test_a_template_is_left_out_in_every_language_by_its_english_wording() -> None:
    frame = scored(60, 21, ALWAYS)
    told = evaluate(frame, PARAMS, 7)["without_templates"]
    assert evaluate(frame, replace(PARAMS, templates=("How OLD",)), 7)["without_templates"] == told | {
        "templates": ["How OLD"]
    }
    assert told["questions_left_out"] == 7
    assert told["classes"]["mutable"]["rows"] == 2 * 14


def test_averaging_over_languages_gives_a_question_one_answer() -> None:
    frame = scored(1, 1, PERFECT).with_columns(
        p_evergreen=pl.Series([0.9, 0.2, 0.3, 0.6])  # means .55 and .45: both right
    )
    assert averaged(frame, PARAMS.scoring(7))["weighted_f1"]["mean"]["value"] == 1.0


def test_a_small_sample_is_called_what_it_is() -> None:
    small, large = evaluate(scored(30, 10, PERFECT), PARAMS, 7), evaluate(scored(150, 50, PERFECT), PARAMS, 7)
    assert small["sample"]["demo"] is True
    assert small["sample"]["what"].startswith("40 test questions: too few to speak of quality")
    assert large["sample"]["demo"] is False
    assert large["sample"] | {"what": ""} == {
        "questions": 200,
        "rows": 400,
        "languages": ["en", "fr"],
        "evergreen_share": 0.75,
        "demo": False,
        "what": "",
    }


def test_the_order_of_rows_changes_no_byte() -> None:
    frame = scored(30, 11, {"evergreen": 0.8, "mutable": 0.4}, p_head=ALWAYS)
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=3)
    assert json.dumps(evaluate(frame, PARAMS, 7)) == json.dumps(evaluate(shuffled, PARAMS, 7))


def test_the_version_of_the_test_rows_sees_labels_and_not_predictions() -> None:
    frame = scored(3, 2, PERFECT)
    assert version_of_test(frame) == version_of_test(scored(3, 2, ALWAYS).reverse())
    assert version_of_test(frame) != version_of_test(scored(2, 3, PERFECT))


def test_the_tracker_is_told_no_name_that_a_source_gave() -> None:
    frame = scored(30, 10, PERFECT).with_columns(split=pl.lit("test"), source=pl.lit("a//b & c?"))
    beside = Beside(frame, {"dev": frame, "pool_a//b & c?": frame})
    figures = evaluate(frame, PARAMS, 7, beside)
    assert figures["splits"]["test"]["by_source"]["a//b & c?"]["questions"] == 40
    names = flat(tracked(figures))
    assert "splits.dev.ece" in names
    assert not [n for n in names if "a//b" in n or n.startswith("forms")]
    assert all(re.fullmatch(r"[\w.-]+", n) for n in names)


def test_an_impossible_threshold_is_refused() -> None:
    with pytest.raises(ConfigError, match="threshold"):
        Params(threshold=1.0)


def test_what_training_saw_is_not_scored_as_a_further_split() -> None:
    with pytest.raises(ConfigError, match="'train'"):
        Params(further_splits=("dev", "train"))
