"""Grouped cross-validation, row weights, and who stays out of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from pipelines.errors import ConfigError, StageError
from pipelines.evergreen.eg_e5.classifier import BagRecipe, Classifier, HeadRecipe
from pipelines.training import crossval, ensemble
from pipelines.training.crossval import Folds, OutOfFold, ablation, enough, figures, fold_of, out_of_fold
from pipelines.training.decontaminate import Wording
from pipelines.training.ensemble import Calibration, Recipe, Unlabelled, calibrated, train
from pipelines.training.examples import Examples, balanced

FOLDS = Folds(("synth",), 4, 0, 0.95, 7)


def wording(question: str, language: str, evergreen: bool, source: str = "real") -> Wording:
    return Wording(f"{question}/{language}", question, language, f"{question} {language}", evergreen, source)


def examples(real: int = 40, made: int = 10) -> Examples:
    """Each question in two languages; every second real one is evergreen; made ones are mutable."""
    rows = [wording(f"q{i}", x, i % 2 == 0) for i in range(real) for x in ("en", "fr")]
    rows += [wording(f"m{i}", x, False, "synth") for i in range(made) for x in ("en", "fr")]
    return Examples(rows, range(len(rows)), np.eye(len(rows)))  # no row is near another


def test_no_wording_of_a_scored_question_is_trained_on_and_every_real_one_is_scored_once() -> None:
    whole = examples()
    seen: list[set[str]] = []

    def fit(part: Examples) -> object:
        trained = {w.question_id for w in part.rows}

        def score(held: Examples) -> Mapping[str, np.ndarray]:
            ours = {w.question_id for w in held.rows}
            assert not ours & trained
            assert {w.source for w in held.rows} == {"real"}
            assert {w.question_id for w in whole.rows} - trained >= ours
            seen.append(ours)
            return {"place": held.vectors.argmax(axis=1).astype(float)}

        return score

    found = out_of_fold(whole, FOLDS, fit)  # type: ignore[arg-type]
    assert sorted(q for s in seen for q in s) == sorted(f"q{i}" for i in range(40))
    assert len(found.questions) == 80
    by_row = {w.row_id: float(i) for i, w in enumerate(whole.rows)}
    expected = [by_row[f"{q}/{x}"] for q, x in zip(found.questions, found.languages, strict=True)]
    assert found.margins["place"].tolist() == expected
    assert found.fold.tolist() == [fold_of(q, 7, 4) for q in found.questions]
    assert found.weights.sum() == 40


def test_what_equals_or_nearly_equals_a_held_question_is_not_trained_on_meanwhile() -> None:
    """As test is kept: q0 and q1 are near in French, q2 and q3 equal across languages."""
    whole = examples()
    rows, vectors = list(whole.rows), np.eye(len(whole.rows))
    rows[5] = replace(rows[5], question="one wording")
    rows[6] = replace(rows[6], question="One wording!")
    vectors[3] = 0.96 * vectors[1] + 0.28 * vectors[3]
    pairs = {"q0": "q1", "q1": "q0", "q2": "q3", "q3": "q2"}

    def fit(part: Examples) -> object:
        trained = {w.question_id for w in part.rows}

        def score(held: Examples) -> Mapping[str, np.ndarray]:
            ours = {w.question_id for w in held.rows}
            gone = {w.question_id for w in whole.rows if w.source == "real"} - trained - ours
            assert gone == {pairs[q] for q in ours & pairs.keys()} - ours
            return {"zero": np.zeros(len(held.rows))}

        return score

    out_of_fold(Examples(rows, whole.embedded, vectors), FOLDS, fit)  # type: ignore[arg-type]
    assert len({fold_of(q, 7, 4) for q in ("q0", "q1")} | {fold_of(q, 7, 4) for q in ("q2", "q3")}) > 1


def test_made_questions_in_the_held_fold_are_not_trained_on_either() -> None:
    whole, trained = examples(), []

    def fit(part: Examples) -> object:
        trained.append({w.question_id for w in part.rows})
        return lambda held: {"zero": np.zeros(len(held.rows))}

    out_of_fold(whole, FOLDS, fit)  # type: ignore[arg-type]
    for fold, ids in enumerate(trained):
        assert ids == {w.question_id for w in whole.rows if fold_of(w.question_id, 7, 4) != fold}


def test_so_many_wordings_of_a_question_are_scored_as_are_wanted() -> None:
    def fit(part: Examples) -> object:
        return lambda held: {"place": held.vectors.argmax(axis=1).astype(float)}

    whole = examples()
    found = out_of_fold(whole, replace(FOLDS, wordings=1), fit)  # type: ignore[arg-type]
    assert sorted(found.questions) == sorted(f"q{i}" for i in range(40))
    assert set(found.languages) == {"en", "fr"}
    by_row = {w.row_id: float(i) for i, w in enumerate(whole.rows)}
    expected = [by_row[f"{q}/{x}"] for q, x in zip(found.questions, found.languages, strict=True)]
    assert found.margins["place"].tolist() == expected


def test_the_fold_of_a_question_is_its_own_whatever_stands_beside_it() -> None:
    assert [fold_of(f"q{i}", 7, 4) for i in range(3)] == [fold_of(f"q{i}", 7, 4) for i in range(3)]
    assert {fold_of(f"q{i}", 7, 4) for i in range(50)} == {0, 1, 2, 3}
    assert [fold_of(f"q{i}", 7, 4) for i in range(50)] != [fold_of(f"q{i}", 8, 4) for i in range(50)]


def out(y: np.ndarray, **margins: np.ndarray) -> OutOfFold:
    ids = [f"q{i}" for i in range(len(y))]
    return OutOfFold(ids, ["en"] * len(y), y, np.arange(len(y)) % 4, margins)


def test_a_mix_is_judged_on_folds_that_it_was_not_fitted_to() -> None:
    """Labels of one fold are turned round: the fit of the others says the same as before of that fold."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 200)
    z = {"a": rng.normal(2.0 * y - 1.0), "b": rng.normal(size=200)}
    first = out(y, **z)
    turned = np.where(first.fold == 2, 1 - y, y)
    np.testing.assert_array_equal(out(turned, **z).judged()[first.fold == 2], first.judged()[first.fold == 2])
    assert not np.array_equal(out(turned, **z).judged(), first.judged())


def test_the_figures_are_those_of_the_prior_that_is_assumed() -> None:
    """All said evergreen: weighted F1 is that of a constant, p x 2p / (1 + p)."""
    y = np.array([1] * 60 + [0] * 40)
    told = figures(out(y, a=np.zeros(100)), 0.75, 7)
    assert told["a"]["weighted_f1"]["value"] == pytest.approx(0.75 * 2 * 0.75 / 1.75, abs=1e-6)
    assert told["a"]["auroc"] == 0.5
    assert told["a"]["log_loss_at_even_odds"] == pytest.approx(np.log(2), abs=1e-3)


def test_an_ablation_is_compared_on_the_same_questions() -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 300)
    good, poor = rng.normal(4.0 * y - 2.0), rng.normal(size=300)
    told = ablation(out(y, a=good), out(y, a=poor), 0.5, 7)
    assert told["ours_minus_this"]["low"] > 0.2
    assert told["auroc"] == pytest.approx(0.5, abs=0.1)
    with pytest.raises(StageError, match="must leave the scored questions"):
        ablation(out(y, a=good), out(y[:-1], a=poor[:-1]), 0.5, 7)
    with pytest.raises(ConfigError, match="'real' is scored"):
        Calibration(ablate=("real",))


def test_weights_go_by_class_and_not_by_which_is_more_frequent() -> None:
    """1,829 evergreen : 1,658 mutable (facts 2.5); the published code swaps the two weights."""
    rows = [wording(f"e{i}", "en", True) for i in range(1829)]
    rows += [wording(f"m{i}", "en", False) for i in range(1658)]
    weights = balanced(rows, 1.0)
    assert (weights[0], weights[-1]) == (
        pytest.approx(0.9532531, abs=5e-8),
        pytest.approx(1.0515682, abs=5e-8),
    )
    turned = balanced(rows[::-1], 1.0)
    assert (turned[0], turned[-1]) == (weights[-1], weights[0])


def test_a_source_that_is_all_of_one_label_weighs_by_itself() -> None:
    rows = [wording(f"r{i}", "en", True) for i in range(100)] + [wording("m", "en", False, "synth")] * 4
    weights = balanced(rows, 0.5)
    assert weights[-1] / weights[0] == pytest.approx(5.0)  # (100 / 4) ** .5
    assert weights.mean() == pytest.approx(1.0)


def test_made_questions_do_not_make_a_calibration_possible() -> None:
    assert enough(examples(40), FOLDS, 20)
    assert not enough(examples(40), FOLDS, 21)
    few = Examples([wording(f"m{i}", "en", i % 2 == 0, "synth") for i in range(99)], [], np.empty((0, 1)))
    assert not enough(few, FOLDS, 1)


def test_a_class_whose_questions_lie_in_one_fold_calibrates_nothing() -> None:
    """What is fitted to the other folds would not see it."""
    names = [f"q{i}" for i in range(40)]
    lone = next(q for q in names if fold_of(q, 7, 4) == 0)
    other = next(q for q in names if fold_of(q, 7, 4) == 1)
    rest = [wording(q, "en", True) for q in names if q not in (lone, other)]
    for mutable, said in (([lone], False), ([lone, other], True)):
        rows = [*rest, *(wording(q, "en", False) for q in mutable)]
        assert enough(Examples(rows, [], np.empty((0, 1))), FOLDS, 1) is said


def test_what_is_kept_out_of_fold_is_calibrated_as_the_model_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under covariate shift P has the share of the scored questions, under label shift the told one."""
    monkeypatch.setattr(crossval, "DRAWS", 10)
    rng = np.random.default_rng(4)
    y = (rng.uniform(size=3000) < 0.9).astype(int)
    found = out(y, a=3.0 * rng.normal(np.where(y == 1, 1.0, -1.0), 1.0))
    monkeypatch.setattr(ensemble, "out_of_fold", lambda *_: found)
    monkeypatch.setattr(ensemble, "enough", lambda *_: True)
    monkeypatch.setattr(ensemble, "fit_parts", lambda *_: Classifier(None, None))  # type: ignore[arg-type]
    monkeypatch.setattr(Classifier, "margins", lambda *_: {"a": found.margins["a"]})
    there = Unlabelled([f"t{i}" for i in range(3000)], [], [], np.empty((0, 1)))
    kept: list[np.ndarray] = []
    for calibration in (Calibration(), Calibration(shift="label", prior=0.5)):
        recipe = Recipe(BagRecipe(), HeadRecipe(), calibration, 0.5, 0.25, 0.5, 0.95)
        train(examples(), there, recipe, 7, None, lambda _, p: kept.append(p))
    assert kept[0].mean() == pytest.approx(y.mean(), abs=0.005)
    even = np.where(y == 1, 0.5 / (y == 1).sum(), 0.5 / (y == 0).sum())
    assert (kept[1] * even).sum() == pytest.approx(0.5, abs=0.01)


class Fixed:
    """Parts that say what they are told of the unlabelled questions."""

    def __init__(self, z: np.ndarray) -> None:
        self.z = z

    def margins(self, *_: object) -> dict[str, np.ndarray]:
        return {"a": self.z}


def shifted(share: float) -> tuple[OutOfFold, Fixed, Unlabelled, np.ndarray]:
    """Scored questions at 90 % evergreen, unlabelled ones at another share of classes that look alike."""
    rng = np.random.default_rng(2)
    y = (rng.uniform(size=4000) < 0.9).astype(int)
    found = out(y, a=3.0 * rng.normal(np.where(y == 1, 1.5, -1.5), 1.0))
    labels = rng.uniform(size=4000) < share
    z = 3.0 * rng.normal(np.where(labels, 1.5, -1.5), 1.0)
    there = Unlabelled([f"t{i}" for i in range(4000)], [""] * 4000, ["en"] * 4000, np.empty((4000, 1)))
    return found, Fixed(z), there, labels


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model's changes stand for the model; bounds are of no interest."""
    monkeypatch.setattr(crossval, "DRAWS", 10)
    monkeypatch.setattr(
        ensemble, "replace", lambda of, **new: new if isinstance(of, Fixed) else replace(of, **new)
    )


@pytest.mark.usefixtures("bare")
def test_under_label_shift_the_share_in_use_is_estimated_and_told_beside_that_of_train() -> None:
    found, model, there, labels = shifted(0.6)
    changed, told = calibrated(model, found, there, Calibration(shift="label"), 7)  # type: ignore[arg-type]
    assert told["prior"]["train"] == pytest.approx(0.9, abs=0.01)
    assert told["prior"]["used"] == pytest.approx(labels.mean(), abs=0.02)
    assert told["prior"]["how"] == "estimated on the unlabelled test questions"
    assert changed["mix"].prior == changed["alone"]["a"].prior == told["prior"]["used"]
    given = Calibration(shift="label", prior=0.7)
    _, told = calibrated(model, found, there, given, 7)  # type: ignore[arg-type]
    assert (told["prior"]["used"], told["prior"]["how"]) == (0.7, "told by params")
    few = Unlabelled(["t"], [""], ["en"], np.empty((1, 1)))
    _, told = calibrated(model, found, few, Calibration(shift="label"), 7)  # type: ignore[arg-type]
    assert told["prior"]["used"] == told["prior"]["train"]


@pytest.mark.usefixtures("bare")
def test_under_covariate_shift_p_is_that_of_train_and_the_share_follows_from_the_questions() -> None:
    """Other questions are met, nearer to the border; what a margin means stays as it was."""
    rng = np.random.default_rng(3)
    z = rng.normal(2.0, 2.0, 20_000)
    y = (rng.uniform(size=20_000) < 1 / (1 + np.exp(-z))).astype(int)
    there = rng.normal(0.5, 1.0, 20_000)
    truth = (1 / (1 + np.exp(-there))).mean()
    known = Unlabelled([f"t{i}" for i in range(20_000)], [""], ["en"], np.empty((1, 1)))
    changed, told = calibrated(Fixed(there), out(y, a=z), known, Calibration(), 7)  # type: ignore[arg-type]
    assert changed["mix"].weights["a"] == pytest.approx(1.0, abs=0.05)
    assert (changed["mix"].intercept, changed["mix"].prior) == (pytest.approx(0.0, abs=0.06), 0.5)
    assert told["prior"]["used"] == pytest.approx(truth, abs=0.01)
    assert told["prior"]["train"] == pytest.approx(y.mean())
    assert told["prior"]["how"] == "mean P of the unlabelled test questions"


def test_a_prior_is_told_with_label_shift_alone() -> None:
    for wrong in ({"prior": 0.7}, {"shift": "other"}):
        with pytest.raises(ConfigError, match="a prior goes with label"):
            Calibration(**wrong)  # type: ignore[arg-type]
