"""From log odds to a probability that means what it says, and the prior without a label."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import StageError
from pipelines.evergreen.eg_e5.calibration import Mix, estimate_prior, fit_mix, log_odds, margins_of, sigmoid


def drawn(share: float, rows: int, seed: int, apart: float = 1.5) -> tuple[np.ndarray, np.ndarray]:
    """Labels at a share of evergreen, and log odds at even odds that are right: normals 2 x `apart` apart."""
    rng = np.random.default_rng(seed)
    y = (rng.uniform(size=rows) < share).astype(int)
    x = rng.normal(np.where(y == 1, apart, -apart), 1.0)
    return y, 2 * apart * x


def test_a_prior_moves_the_log_odds_by_its_own() -> None:
    mix = Mix({"a": 1.0}, 0.0, 0.8)
    np.testing.assert_allclose(mix.predict({"a": np.array([0.0, -log_odds(0.8)])}), [0.8, 0.5])


def test_the_fit_undoes_a_wrong_scale_and_shift() -> None:
    y, z = drawn(0.9, 40_000, 1)
    mix = fit_mix({"a": 0.4 * z - 1.0}, y, np.ones(len(y)))
    assert mix.weights["a"] == pytest.approx(2.5, rel=0.05)
    assert mix.intercept == pytest.approx(2.5, rel=0.05)


def test_the_share_of_the_classes_in_train_does_not_enter_the_fit() -> None:
    fits = [fit_mix({"a": z}, y, np.ones(len(y))) for y, z in (drawn(0.5, 40_000, 1), drawn(0.9, 40_000, 2))]
    assert fits[0].intercept == pytest.approx(fits[1].intercept, abs=0.1)
    assert fits[0].prior == fits[1].prior == 0.5


def test_counting_questions_as_they_come_leaves_their_share_in_the_intercept() -> None:
    y, z = drawn(0.9, 40_000, 1)
    mix = fit_mix({"a": z}, y, np.full(len(y), 3.0), even=False)
    assert mix.intercept == pytest.approx(log_odds(0.9), abs=0.1)
    assert mix.predict({"a": z}).mean() == pytest.approx(y.mean(), abs=1e-4)


def test_a_part_that_only_repeats_another_with_noise_never_weighs_less_than_nothing() -> None:
    rng = np.random.default_rng(3)
    y, z = drawn(0.7, 2000, 3)
    mix = fit_mix({"a": z, "b": rng.normal(size=len(z)) - 0.2 * z}, y, np.ones(len(y)))
    assert set(mix.weights) == {"a"} or all(w >= 0 for w in mix.weights.values())
    assert mix.weights["a"] > 0.8


@pytest.mark.parametrize("share", [0.9, 0.75, 0.33])
def test_the_prior_is_found_without_labels_where_the_classes_look_as_in_train(share: float) -> None:
    y, z = drawn(0.5, 20_000, 4)
    mix = fit_mix({"a": z}, y, np.ones(len(y)))
    there, unlabelled = drawn(share, 20_000, 5)
    found = estimate_prior(mix.margins({"a": unlabelled}))
    assert found == pytest.approx(there.mean(), abs=0.015)
    p = Mix(mix.weights, mix.intercept, found).predict({"a": unlabelled})
    assert p.mean() == pytest.approx(found, abs=1e-6)  # the fixed point of the estimate


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(-8, 8), min_size=1, max_size=40), st.randoms())
def test_the_order_of_the_questions_changes_no_bit_of_the_prior(values: list[float], rng: object) -> None:
    shuffled = list(values)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert estimate_prior(np.array(values)) == estimate_prior(np.array(shuffled))


def test_a_question_in_many_wordings_counts_once() -> None:
    one = estimate_prior(np.array([2.0, -1.0]))
    many = estimate_prior(np.array([2.0, 2.0, 2.0, -1.0]), np.array([1 / 3, 1 / 3, 1 / 3, 1.0]))
    assert many == pytest.approx(one, abs=1e-9)


def test_no_questions_have_no_share() -> None:
    with pytest.raises(StageError, match="among none"):
        estimate_prior(np.empty(0))


def test_one_label_alone_is_refused_by_name() -> None:
    with pytest.raises(StageError, match="has only: mutable"):
        fit_mix({"a": np.zeros(3)}, np.zeros(3, int), np.ones(3))


def test_log_odds_and_probabilities_are_each_others_inverse_and_finite_at_the_ends() -> None:
    p = np.array([0.0, 1e-5, 0.5, 0.9, 1.0])
    np.testing.assert_allclose(sigmoid(margins_of(p))[1:-1], p[1:-1], rtol=1e-9)
    assert np.isfinite(margins_of(p)).all()
    assert log_odds(0.5) == 0.0 and np.isfinite([log_odds(0.0), log_odds(1.0)]).all()
