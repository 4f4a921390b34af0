"""AUPRC, PRR, AUROC, McFadden and Pearson give the worked numbers, whatever the order of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.evaluation.explained import log_likelihood, mcfadden, null_likelihood, pearson, regress
from pipelines.evaluation.metrics import auroc
from pipelines.evaluation.selective import auprc, prr, selection

Y = np.array([1, 1, 0, 1, 0])
U = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
rows = st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=1, max_size=25)


def test_prr_sets_the_rejection_curve_between_random_and_the_oracle() -> None:
    assert prr(Y, U).value == pytest.approx((0.8033333333 - 0.6) / (0.87 - 0.6))
    assert prr(Y, U).value == pytest.approx(0.7530864, abs=1e-7)
    assert prr(Y, -U).value == pytest.approx(-0.7901235, abs=1e-7)
    four = np.array([1, 0, 1, 0])
    assert prr(four, np.arange(1, 5)).value == pytest.approx((0.6666667 - 0.5) / (0.7916667 - 0.5), abs=1e-6)
    assert prr(four, np.arange(1, 5)).value == pytest.approx(0.5714286, abs=1e-7)


def test_prr_tells_its_cap() -> None:
    capped = prr(np.array([1, 0, 1, 0]), np.arange(1, 5), max_rejection=0.5)
    assert (capped.value, capped.rejected) == (pytest.approx(1.0), 2)
    assert prr(Y, U).rejected == 5
    assert prr(Y, U, max_rejection=0.1).value is None  # nothing may be rejected


def test_prr_scales_graded_quality() -> None:
    assert prr(Y * 4.0 + 3.0, U) == prr(Y, U)


@pytest.mark.parametrize("y", [np.ones(4), np.zeros(4)])
def test_all_right_or_all_wrong_is_undefined(y: np.ndarray) -> None:
    told = selection(y, np.arange(4.0)).plain()
    assert told == {
        "rows": 4, "base_rate": y[0], "auroc": None, "auprc": None, "prr": None, "prr_rejected": 4,
    }  # fmt: skip
    assert selection(np.empty(0), np.empty(0)).base_rate is None


def test_auroc_and_average_precision_of_the_worked_rows() -> None:
    assert auroc(Y, -U) == pytest.approx(0.8333333, abs=1e-7)
    assert auprc(Y, -U) == pytest.approx(0.9166667, abs=1e-7)
    assert selection(Y, -U).base_rate == pytest.approx(0.6)


def test_one_value_for_all_rows_is_worth_nothing() -> None:
    same = np.zeros(5)
    assert auprc(Y, same) == pytest.approx(0.6)  # the base rate
    assert prr(Y, same).value == pytest.approx(0.0)
    assert auroc(Y, same) == 0.5


@settings(deadline=None, max_examples=60)
@given(rows, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_changes_nothing(given_rows: list[tuple[bool, int]], random: Any) -> None:
    y, u = (np.array(part) for part in zip(*given_rows, strict=True))
    order = list(range(len(y)))
    random.shuffle(order)
    one, other = selection(y, -u).plain(), selection(y[order], -u[order]).plain()
    assert one == pytest.approx(other)
    if one["prr"] is not None:
        assert one["prr"] <= 1.0 + 1e-9
        assert prr(y, ~y).value == pytest.approx(1.0)  # the oracle


@settings(deadline=None, max_examples=60)
@given(rows.filter(lambda r: len({y for y, _ in r}) == 2))
def test_average_precision_is_scikit_learns(given_rows: list[tuple[bool, int]]) -> None:
    from sklearn.metrics import average_precision_score

    y, u = (np.array(part) for part in zip(*given_rows, strict=True))
    assert auprc(y, -u) == pytest.approx(average_precision_score(y, -u))


def test_mcfadden_of_given_probabilities() -> None:
    y, p = np.array([1, 1, 0, 0]), np.array([0.8, 0.6, 0.4, 0.2])
    assert log_likelihood(y, p) == pytest.approx(-1.4679384, abs=1e-7)
    assert null_likelihood(y) == pytest.approx(-2.7725887, abs=1e-7)
    assert mcfadden(y, p) == pytest.approx(0.4705532, abs=1e-7)
    assert mcfadden(np.ones(4), p) is None


def test_a_binary_signal_is_fitted_without_a_penalty() -> None:
    found = regress(np.array([1, 1, 1, 0, 1, 0, 0, 0]), np.array([1, 1, 1, 1, 0, 0, 0, 0]))
    assert found is not None
    assert (found.intercept, found.slope) == pytest.approx((-1.0986123, 2.1972246), abs=1e-6)
    assert (found.log_likelihood, found.null) == pytest.approx((-4.4986812, -5.5451774), abs=1e-7)
    assert found.r2 == pytest.approx(0.1887219, abs=1e-7)


def test_a_graded_signal_is_fitted_without_a_penalty() -> None:
    found = regress(np.array([0, 0, 1, 0, 1, 1]), np.arange(1, 7))
    assert found is not None
    assert (found.intercept, found.slope) == pytest.approx((-4.2491, 1.2140), abs=1e-4)
    assert found.r2 == pytest.approx(0.4041701, abs=1e-7)


def test_classes_that_do_not_overlap_are_said_to_have_no_finite_fit() -> None:
    found = regress(np.array([0, 0, 1, 1]), np.array([1.0, 2.0, 3.0, 4.0]))
    assert found is not None and found.separated and found.r2 == 1.0
    falling = regress(np.array([1, 1, 0, 0]), np.array([1.0, 2.0, 3.0, 4.0]))
    assert falling is not None and falling.separated and falling.slope < 0


def test_one_class_or_a_constant_signal_has_no_fit_and_no_correlation() -> None:
    assert regress(np.ones(3), np.arange(3)) is None
    assert regress(np.array([0, 1, 1]), np.full(3, 0.1)) is None
    assert pearson(np.ones(3), np.arange(3)) is None
    assert pearson(np.array([0, 1, 1]), np.full(3, 7.0)) is None


@settings(deadline=None, max_examples=60)
@given(rows.filter(lambda r: len({y for y, _ in r}) == 2), st.floats(0.01, 100.0), st.floats(-50.0, 50.0))
def test_the_scale_of_a_signal_changes_neither_r2_nor_r(
    given_rows: list[tuple[bool, int]], scale: float, shift: float
) -> None:
    y, x = (np.array(part) for part in zip(*given_rows, strict=True))
    one, other = regress(y, x), regress(y, scale * x + shift)
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert 0.0 - 1e-9 <= one.r2 <= 1.0
        assert one.r2 == pytest.approx(other.r2, abs=1e-5)
        assert pearson(y, x) == pytest.approx(pearson(y, scale * x + shift), abs=1e-6)


def test_pearson_of_the_worked_rows() -> None:
    assert pearson(np.array([1, 1, 1, 0]), np.array([0, 0, 1, 1])) == pytest.approx(-0.5773503, abs=1e-7)
