"""Whether an answer is right, with and without P(evergreen): same rows and seeds, one feature apart."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines import tracking
from pipelines.data.tables import write_parquet
from pipelines.errors import ConfigError, StageError
from pipelines.evaluation.metrics import auroc
from pipelines.evaluation.uncertainty import SCHEMA
from pipelines.step import Step
from pipelines.training import self_knowledge as sk
from pipelines.training.self_grids import FULL, GRIDS, THIN, size
from pipelines.training.self_models import Vote, _model, cut, distinct, fit_vote
from pipelines.training.self_trials import Repeat, Trial, paired, repeats

QUICK = {name: THIN[name] for name in ("logistic_regression", "k_nearest")}


def drawn(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Right or wrong, a doubt that says a little of it, and a P(evergreen) that says much."""
    rng = np.random.default_rng(seed)
    right = rng.random(n) < 0.4
    return right, rng.normal(size=n) - 0.5 * right, np.clip(0.5 * right + 0.6 * rng.random(n), 0, 1)


def test_the_full_grids_are_the_papers() -> None:
    assert {name: size(grid) for name, grid in FULL.items()} == {
        "logistic_regression": 3 * 2 * 3 * 3,
        "k_nearest": 6 * 2 * 2 * 3,
        "mlp": 5 * 2 * 2 * 4 * 2 * 2,
        "decision_tree": 5 * 5 * 2 * 2,
        "random_forest": 3 * 5 * 5 * 2 * 2 * 3,
        "gradient_boosting": 3 * 3 * 5 * 5,
        "catboost": 4 * 3 * 5 * 3,
    }
    for name, grid in THIN.items():
        assert grid.keys() <= FULL[name].keys(), name
        assert all(
            set(values) <= set(FULL[name][key]) for key, values in grid.items() if key != "class_weight"
        )


@pytest.mark.parametrize("name", sorted(FULL))
def test_each_of_the_seven_models_is_fitted_at_any_corner_of_its_grid(name: str) -> None:
    right, doubt, p = drawn(60)
    x, half = np.stack([doubt, p], axis=1), np.arange(60) < 40
    for corner in (0, -1):
        grid = {key: (values[corner],) for key, values in FULL[name].items()}
        vote = fit_vote(x, right, half, {name: grid}, seed=3)
        assert [t.name for t in vote.chosen] == [name] and not vote.left_out
        found = vote.predict(x)
        assert found.shape == (60,) and ((found >= 0) & (found <= 1)).all()


def test_the_best_two_by_validation_vote_with_the_mean_of_their_probabilities() -> None:
    right, doubt, p = drawn(160)
    x, subset = np.stack([doubt, p], axis=1), np.arange(160) < 100
    grids = {n: THIN[n] for n in ("logistic_regression", "k_nearest", "decision_tree")}
    vote = fit_vote(x, right, subset, grids, seed=3)
    every = {n: fit_vote(x, right, subset, {n: grids[n]}, seed=3) for n in grids}
    best = sorted(every, key=lambda n: -every[n].chosen[0].validation)[:2]
    assert [t.name for t in vote.chosen] == best
    mean = np.mean([every[n].predict(x) for n in best], axis=0)
    assert np.allclose(vote.predict(x), mean, atol=1e-12)
    validated = auroc(right[~subset], _on_subset(x, right, subset, vote))
    assert vote.chosen[0].validation == pytest.approx(validated)


def _on_subset(x: np.ndarray, right: np.ndarray, subset: np.ndarray, vote: Vote) -> np.ndarray:
    """The first voter fitted to the subset alone, on the rest: what chose it."""
    from sklearn.base import clone

    model = clone(vote.fitted[0]).fit(x[subset], right[subset])
    return np.asarray(model.predict_proba(x[~subset])[:, 1])


def test_equal_input_gives_equal_bits() -> None:
    right, doubt, p = drawn(50)
    x, all_rows = np.stack([doubt, p], axis=1), np.ones(50, bool)
    one, other = (fit_vote(x, right, all_rows, THIN, seed=5).predict(x) for _ in range(2))
    assert (one == other).all()


def test_a_model_that_so_few_rows_cannot_fit_is_left_out_and_says_why() -> None:
    right = np.array([True, True, False, False, False])
    x = np.array([[0.1], [0.2], [0.8], [0.9], [0.7]])
    vote = fit_vote(
        x, right, np.ones(5, bool), {n: THIN[n] for n in ("k_nearest", "mlp", "decision_tree")}, 1
    )
    assert [t.name for t in vote.chosen] == ["decision_tree"]
    assert "neighbours" in vote.left_out["k_nearest"] and "too few" in vote.left_out["mlp"]
    with pytest.raises(StageError, match="2 right and 2 wrong"):
        fit_vote(x, np.array([True] + [False] * 4), np.ones(5, bool), THIN, 1)
    with pytest.raises(StageError, match="no model can be fitted"):
        fit_vote(x, right, np.ones(5, bool), {"k_nearest": THIN["k_nearest"]}, 1)


def test_one_value_for_all_rows_leaves_out_what_cannot_be_fitted_to_it() -> None:
    right = np.arange(60) % 3 == 0
    vote = fit_vote(np.ones((60, 1)), right, np.arange(60) < 40, THIN, 1)
    assert set(vote.left_out) == {"catboost"} and "constant" in vote.left_out["catboost"]
    assert len(vote.chosen) == 2 and np.ptp(vote.predict(np.ones((5, 1)))) == 0


@pytest.mark.parametrize("name", ["random_forest", "gradient_boosting"])
def test_the_first_trees_of_many_are_those_of_a_fit_to_so_few(name: str) -> None:
    """So a grid's points that differ in the count alone need one fit."""
    right, doubt, p = drawn(60)
    x = np.stack([doubt, p], axis=1)
    own = {"max_depth": 5, "max_features": "sqrt"}
    many = _model(name, {**own, "n_estimators": 50}, 7).fit(x, right)
    for count in (35, 25):
        few = _model(name, {**own, "n_estimators": count}, 7).fit(x, right)
        assert (cut(many, {"n_estimators": count}).predict_proba(x) == few.predict_proba(x)).all()


def test_a_point_that_is_an_earlier_one_is_not_tried_again() -> None:
    """Adam takes no schedule; class weights of 1 draw a forest's rows otherwise than none, and stay."""
    points = [
        {"solver": "adam", "learning_rate": "constant"},
        {"solver": "adam", "learning_rate": "adaptive"},
        {"solver": "sgd", "learning_rate": "constant"},
        {"solver": "sgd", "learning_rate": "adaptive"},
        {"class_weight": {0: 1, 1: 1}},
        {"class_weight": None},
    ]
    assert distinct(points) == [points[i] for i in (0, 2, 3, 4, 5)]


def test_a_grid_is_searched_as_the_library_searches_it() -> None:
    """The same best point as GridSearchCV over all points, each fitted anew."""
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    right, doubt, p = drawn(90)
    x = np.stack([doubt, p], axis=1)
    grid = {
        "n_estimators": (5, 10), "max_depth": (2, 3), "class_weight": ("balanced", {0: 1, 1: 1}, None)
    }  # fmt: skip
    search = GridSearchCV(
        _model("random_forest", {}, 3),
        {f"model__{k}": list(v) for k, v in grid.items()},
        scoring="roc_auc",
        cv=StratifiedKFold(3, shuffle=True, random_state=3),
    ).fit(x, right)
    found = fit_vote(x, right, np.ones(90, bool), {"random_forest": grid}, 3).chosen[0]
    assert found.validation == pytest.approx(search.best_score_, abs=1e-12)
    at = search.cv_results_["params"].index({f"model__{k}": v for k, v in found.values.items()})
    assert search.cv_results_["mean_test_score"][at] == pytest.approx(search.best_score_, abs=1e-12)


def splits(
    n: int, said: list[str | None] | None = None, order: np.ndarray | None = None, **how: int
) -> list[Repeat]:
    right = drawn(n)[0]
    ids = np.array([f"row{i}" for i in range(n)])
    order = np.arange(n) if order is None else order
    return repeats(
        list(ids[order]),
        right[order],
        [(said or [None] * n)[i] for i in order],
        np.ones(n, bool),
        **{"count": 3, "most": 20, "seed": 7, **how},
    )


def test_each_repeat_halves_the_rows_anew_and_tunes_within_train() -> None:
    found = splits(80)
    right = drawn(80)[0]
    assert len(found) == 3 and len({one.train.tobytes() for one in found}) == 3
    for one in found:
        assert (one.train ^ one.test).all()
        assert right[one.train].sum() == math.ceil(right.sum() / 2)
        assert (one.subset <= one.train).all() and 20 <= one.subset.sum() <= 21
    order = np.random.default_rng(1).permutation(80)
    for one, other in zip(found, splits(80, order=order), strict=True):
        assert (one.train[order] == other.train).all() and (one.subset[order] == other.subset).all()
        assert one.seed == other.seed


def test_rows_that_say_train_or_test_stay_there() -> None:
    said: list[str | None] = (["train"] * 30) + (["test"] * 30) + [None] * 20
    for one in splits(80, said):
        assert one.train.tolist() == [s == "train" for s in said]
        assert one.test.tolist() == [s == "test" for s in said]
    assert splits(80, ["test"] * 80)[0].train.sum() == 41  # nothing says train: halves of 27 and of 53
    assert splits(4) == []


def test_the_paired_difference_is_that_of_the_same_rows() -> None:
    right = np.array([True, False] * 20)
    better, worse = right * 1.0, np.where(np.arange(40) < 20, right, ~right) * 1.0
    vote = Vote([], [], {})
    test = np.ones(40, bool)
    a, b = [Trial(test, worse, vote)] * 2, [Trial(test, better, vote)] * 2
    told = paired(a, b, right, max_rejection=1.0, draws=200, confidence=0.95, seed=1)
    assert told["auroc"]["value"] == pytest.approx(0.5)
    assert 0.0 < told["auroc"]["low"] < 0.5 < told["auroc"]["high"] and told["auroc"]["better"] == 2
    same = paired(a, a, right, max_rejection=1.0, draws=50, confidence=0.95, seed=1)
    assert [same["prr"][k] for k in ("value", "low", "high", "better")] == [0.0, 0.0, 0.0, 0]


def row(dataset: str, key: str, **values: Any) -> dict[str, Any]:
    scores = values.pop("scores", {})
    plain = dict.fromkeys(SCHEMA.columns) | {
        "dataset": dataset, "key": key, "language": "en", "golds": [], "origin": "told", "samples": 0,
        "scores": [{"name": n, "value": v} for n, v in scores.items()],
    }  # fmt: skip
    return SCHEMA.row(**{**plain, **values})


def rows_of(n: int) -> list[dict[str, Any]]:
    """A set with all, one without P(evergreen), one too small, rows without a verdict or a signal."""
    right, doubt, p = drawn(n)
    rows = []
    for i in range(n):
        score = {"perplexity": float(doubt[i])}
        rows.append(row("whole", f"{i}", correct=bool(right[i]), p_evergreen=float(p[i]), scores=score))
        rows.append(row("no_p", f"{i}", correct=bool(right[i]), scores=score))
    rows += [row("small", f"{i}", correct=i == 0, scores={"perplexity": 1.0}) for i in range(3)]
    rows += [row("whole", "unjudged", p_evergreen=0.5), row("whole", "unsigned", correct=True)]
    return rows


def ended(
    root: Path, rows: list[dict[str, Any]], **params: Any
) -> tuple[dict[str, Any], dict[str, Any], pl.DataFrame]:
    write_parquet(SCHEMA.frame(rows), root / "data" / "evaluation" / "uncertainty" / "rows.parquet")
    step = Step("training.self_knowledge", None, root, 7)
    sk.run(step, sk.Params(**{"bootstrap": 60, **params}))
    step.finish(sk.SCHEMA)
    folder = root / "data" / "training" / "self_knowledge"
    metrics, outcomes = (json.loads((folder / f"{n}.json").read_text()) for n in ("metrics", "outcomes"))
    return metrics, outcomes, pl.read_parquet(folder / "rows.parquet")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "record", lambda *_: "")
    monkeypatch.setitem(GRIDS, "thin", QUICK)


def test_a_set_is_told_with_and_without_p_evergreen_and_their_difference(quick: None, tmp_path: Path) -> None:
    metrics, outcomes, predicted = ended(tmp_path, rows_of(80))
    whole, no_p, small = (metrics["sets"][n] for n in ("whole", "no_p", "small"))
    told = whole["estimates"]["perplexity"]
    assert told["with"]["auroc"] > told["without"]["auroc"]
    apart = told["with_minus_without"]["auroc"]
    assert apart["low"] < apart["value"] < apart["high"] and apart["better"] == 3
    assert apart["value"] == pytest.approx(told["with"]["auroc"] - told["without"]["auroc"], abs=2e-6)
    assert 0.3 < told["with"]["base_rate"] < 0.5 and told["with"]["prr_rejected"] == 39
    assert "with" not in no_p["estimates"]["perplexity"] and "p_evergreen" not in no_p
    assert small["why_not"] and not small["estimates"]["perplexity"].get("without")
    assert metrics["best_uses_p_evergreen"] == {"won": 3, "of": 3}
    assert outcomes["items"] == 80 * 2 + 5 and outcomes["accepted"] == 160
    assert outcomes["reasons"] == {
        "rejected(no_signal)": 1, "rejected(not_judged)": 1, "rejected(too_few)": 3,
    }  # fmt: skip
    for features in (sk.WITHOUT, sk.WITH, sk.ALONE):
        mine = predicted.filter((pl.col("dataset") == "whole") & (pl.col("features") == features))
        assert mine.group_by("repeat").len()["len"].to_list() == [39, 39, 39]
    arm = predicted.filter((pl.col("dataset") == "whole") & (pl.col("features") == sk.WITH))
    each = [
        auroc(one["correct"].to_numpy(), one["p_correct"].to_numpy()) for _, one in arm.group_by("repeat")
    ]
    assert told["with"]["auroc"] == pytest.approx(np.mean(np.array(each, float)), abs=1e-6)


def test_the_estimate_as_it_is_stands_beside_the_arms(quick: None, tmp_path: Path) -> None:
    right, doubt, _ = drawn(80)
    metrics, _, _ = ended(tmp_path, rows_of(80), repeats=1)
    alone = metrics["sets"]["no_p"]["estimates"]["perplexity"]["as_it_is"]
    assert alone["auroc"] == pytest.approx(auroc(right, -doubt), abs=1e-6)
    assert (alone["rows"], alone["prr_rejected"]) == (80, 80)


def test_a_row_added_to_one_set_changes_no_other(quick: None, tmp_path: Path) -> None:
    rows = rows_of(40)
    before, _, _ = ended(tmp_path, rows, repeats=1)
    after, _, _ = ended(tmp_path, [*rows, row("new", "x", correct=True, p_evergreen=0.1)], repeats=1)
    assert after["sets"]["whole"] == before["sets"]["whole"]


def test_wins_count_the_figures_in_which_an_arm_with_p_evergreen_is_best() -> None:
    def one(without: float | None, having: float | None, alone: float) -> dict[str, Any]:
        figures = {
            n: dict.fromkeys(("auroc", "auprc", "prr"), v)
            for n, v in (("without", without), ("with", having))
        }
        return {"estimates": {"e": figures}, "p_evergreen": dict.fromkeys(("auroc", "auprc", "prr"), alone)}

    told = {
        "a": one(0.6, 0.7, 0.5),
        "b": one(0.6, 0.5, 0.7),
        "c": one(0.6, 0.5, 0.5),
        "d": one(None, 0.5, 0.5),
    }
    assert sk.wins(told) == {"won": 6, "of": 9}


def test_wrong_parameters_are_one_line() -> None:
    for wrong in ({"grid": "thick"}, {"repeats": 0}, {"confidence": 1.0}):
        with pytest.raises(ConfigError):
            sk.Params(**wrong)  # type: ignore[arg-type]
