"""Figures of a binary classifier: worked numbers, and what they may not depend on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from pipelines.evaluation import metrics as m


def counts_of(labels: list[int], predicted: list[int]) -> np.ndarray:
    return m.cells(np.array(labels), np.array(predicted))


def test_weighted_f1_of_the_worked_example() -> None:
    counts = counts_of([1, 1, 1, 0], [1, 1, 0, 0])
    assert m.weighted_f1(counts) == pytest.approx(0.7666667, abs=1e-7)


@pytest.mark.parametrize(("answer", "figure"), [(1, 0.6370310), (0, 0.1031372)])
def test_weighted_f1_of_a_constant_answer_on_the_published_test_balance(answer: int, figure: float) -> None:
    counts = counts_of([1] * 947 + [0] * 323, [answer] * 1270)
    assert m.weighted_f1(counts) == pytest.approx(figure, abs=1e-7)


def test_precision_and_recall_name_the_class_they_are_of() -> None:
    told = m.classes(counts_of([1, 1, 1, 0, 0], [1, 1, 0, 0, 1]))
    assert told["evergreen"] == pytest.approx({"precision": 2 / 3, "recall": 2 / 3, "f1": 2 / 3, "rows": 3})
    assert told["mutable"] == pytest.approx({"precision": 1 / 2, "recall": 1 / 2, "f1": 1 / 2, "rows": 2})


def test_a_class_that_never_occurs_has_no_weight() -> None:
    assert m.weighted_f1(counts_of([1, 1], [1, 1])) == 1.0
    assert m.classes(counts_of([1, 1], [1, 1]))["mutable"] == {
        "precision": 0,
        "recall": 0,
        "f1": 0,
        "rows": 0,
    }


def test_brier_and_calibration_error_by_hand() -> None:
    labels, p = np.array([1, 0, 1, 0]), np.array([0.9, 0.2, 0.6, 0.4])
    assert m.brier(labels, p) == pytest.approx((0.01 + 0.04 + 0.16 + 0.16) / 4)
    found = m.bins(labels, p, 2)
    assert [(b.rows, b.mean_p, b.share) for b in found] == [
        (2, pytest.approx(0.3), 0.0),
        (2, pytest.approx(0.75), 1.0),
    ]
    assert m.calibration_error(found) == pytest.approx((2 * 0.3 + 2 * 0.25) / 4)


def test_rows_of_equal_p_share_a_bin() -> None:
    found = m.bins(np.array([1, 0, 1, 0, 1, 0]), np.full(6, 0.5), 10)
    assert [(b.rows, b.share) for b in found] == [(6, 0.5)]


def test_bins_hold_equal_mass_when_no_p_repeats() -> None:
    found = m.bins(np.zeros(100), np.arange(100) / 100, 10)
    assert [b.rows for b in found] == [10] * 10


def test_auroc_counts_ties_half_and_needs_both_classes() -> None:
    labels, surest_last = np.array([1, 1, 0, 1, 0]), -np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    assert m.auroc(labels, surest_last) == pytest.approx(0.8333333, abs=1e-7)
    assert m.auroc(np.array([1, 0]), np.array([0.5, 0.5])) == 0.5
    assert m.auroc(np.array([1, 1]), np.array([0.1, 0.2])) is None


ROWS = st.lists(st.tuples(st.booleans(), st.integers(0, 8).map(lambda k: k / 8)), min_size=1, max_size=40)


@settings(deadline=None)
@given(ROWS, st.randoms(use_true_random=False), st.integers(1, 12))
def test_no_figure_depends_on_the_order_of_rows(rows: list, random, count: int) -> None:
    shuffled = random.sample(rows, len(rows))

    def figures(of: list) -> tuple:
        labels, p = np.array([r[0] for r in of]), np.array([r[1] for r in of])
        counts = m.cells(labels, p >= 0.5)
        return (
            float(m.weighted_f1(counts)),
            m.brier(labels, p),
            m.calibration_error(m.bins(labels, p, count)),
            m.auroc(labels, p),
        )

    assert figures(rows) == figures(shuffled)


@settings(deadline=None)
@given(ROWS)
def test_weighted_f1_lies_in_the_unit_interval_and_agrees_with_scikit_learn(rows: list) -> None:
    labels = np.array([r[0] for r in rows])
    predicted = np.array([r[1] for r in rows]) >= 0.5
    expected = f1_score(labels, predicted, average="weighted", zero_division=0)
    assert m.weighted_f1(m.cells(labels, predicted)) == pytest.approx(expected)


def grid(questions: int, languages: int, wrong: set[int]) -> np.ndarray:
    question = np.repeat(np.arange(questions), languages)
    language = np.tile(np.arange(languages), questions)
    label = question % 4 != 0
    predicted = np.where(np.isin(question, list(wrong)), ~label, label)
    return m.Scored(question, language, label, predicted).counts()


def test_the_interval_draws_questions_so_that_translations_do_not_narrow_it() -> None:
    wrong = set(range(0, 200, 7))
    _, one = m.f1_intervals(grid(200, 1, wrong), 500, 0.95, 1)
    _, seven = m.f1_intervals(grid(200, 7, wrong), 500, 0.95, 1)
    assert vars(one) == pytest.approx(vars(seven))  # seven equal translations tell no more than one
    assert one.low < one.value < one.high
    assert one.value == pytest.approx(float(m.weighted_f1(grid(200, 1, wrong).sum(axis=(0, 1)))))


def test_the_interval_is_a_function_of_its_seed() -> None:
    counts = grid(50, 2, {1, 5, 9})
    assert m.f1_intervals(counts, 200, 0.9, 3) == m.f1_intervals(counts, 200, 0.9, 3)
    assert m.f1_intervals(counts, 200, 0.9, 3) != m.f1_intervals(counts, 200, 0.9, 4)


def test_a_question_without_a_wording_in_some_language_counts_where_it_has_one() -> None:
    question, language = np.array([0, 0, 1]), np.array([0, 1, 0])
    label = np.array([True, True, False])
    by_language, mean = m.f1_intervals(
        m.Scored(question, language, label, np.array([True, False, False])).counts(), 100, 0.95, 0
    )
    assert [i.value for i in by_language] == [1.0, 0.0]
    assert mean.value == 0.5


def test_the_paired_difference_of_a_system_with_itself_is_zero() -> None:
    counts = grid(40, 3, {2, 3})
    assert m.difference(counts, counts, 100, 0.95, 0) == m.Interval(0.0, 0.0, 0.0)


def test_the_paired_difference_of_perfect_and_all_wrong_is_one() -> None:
    told = m.difference(grid(40, 3, set()), grid(40, 3, set(range(40))), 100, 0.95, 0)
    assert told == m.Interval(1.0, 1.0, 1.0)
