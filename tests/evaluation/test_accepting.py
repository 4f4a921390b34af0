"""The accept/precision curve: worked numbers, and what it may not depend on."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.evaluation.accept_plot import POINTS, plot
from pipelines.evaluation.accepting import SHARES, curve, intervals
from pipelines.evaluation.unit_square import LEFT, SIDE, TOP

LABELS = np.array([1, 1, 0, 1, 0])
P = np.array([0.9, 0.8, 0.7, 0.6, 0.1])
ROWS = st.lists(st.tuples(st.booleans(), st.integers(0, 6).map(lambda k: k / 6)), min_size=1, max_size=40)


def of(rows: list) -> tuple[np.ndarray, np.ndarray]:
    return np.array([r[0] for r in rows]), np.array([r[1] for r in rows])


def test_the_surest_evergreen_rows_come_first_and_the_last_point_is_the_base_rate() -> None:
    found = curve(LABELS, P)
    assert found.shares.tolist() == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert found.precisions.tolist() == pytest.approx([1, 1, 2 / 3, 3 / 4, 3 / 5])


def test_the_curve_of_mutable_starts_from_the_lowest_p() -> None:
    found = curve(LABELS, P, mutable=True)
    assert found.precisions.tolist() == pytest.approx([1, 1 / 2, 2 / 3, 2 / 4, 2 / 5])


def test_rows_of_equal_p_are_accepted_together_and_a_share_within_them_is_their_mean() -> None:
    found = curve(np.array([1, 1, 0, 0]), np.array([0.9, 0.5, 0.5, 0.5]))
    assert found.shares.tolist() == [0.25, 1.0]
    assert found.precision_at(0.5) == pytest.approx((1 + 1 / 3) / 2)  # the certain row, a third of one more


def test_the_largest_share_of_a_precision_may_lie_behind_a_dip() -> None:
    found = curve(LABELS, P)
    assert found.share_at(0.7) == pytest.approx(0.8)
    assert found.share_at(0.76) == pytest.approx(0.4)
    assert curve(np.array([0, 1]), np.array([0.9, 0.1])).share_at(0.9) == 0.0


@settings(deadline=None)
@given(ROWS, st.randoms(use_true_random=False), st.booleans())
def test_the_order_of_rows_changes_nothing_though_p_ties(rows: list, random, mutable: bool) -> None:
    one, other = (curve(*of(r), mutable=mutable) for r in (rows, random.sample(rows, len(rows))))
    assert one.accepted.tolist() == other.accepted.tolist()
    assert one.right.tolist() == other.right.tolist()


@settings(deadline=None)
@given(ROWS)
def test_both_curves_end_at_the_base_rates_of_their_verdicts(rows: list) -> None:
    labels, p = of(rows)
    assert curve(labels, p).precision_at(1.0) == pytest.approx(labels.mean())
    assert curve(labels, p, mutable=True).precision_at(1.0) == pytest.approx(1 - labels.mean())


@settings(deadline=None)
@given(ROWS, st.floats(0.01, 1.0))
def test_turning_labels_and_p_round_turns_the_verdicts_round(rows: list, share: float) -> None:
    labels, p = of(rows)
    turned = curve(~labels, 1 - p, mutable=True)
    assert curve(labels, p).precision_at(share) == pytest.approx(turned.precision_at(share))


def test_a_constant_p_has_the_base_rate_at_every_share() -> None:
    found = curve(np.array([1, 1, 1, 0]), np.full(4, 0.3))
    assert [found.precision_at(s) for s in SHARES] == pytest.approx([0.75] * 10)


def test_the_bounds_are_of_questions_so_that_translations_do_not_narrow_them() -> None:
    rng = np.random.default_rng(3)
    labels = rng.random(120) < 0.7
    p = np.round(np.clip(labels * 0.3 + rng.random(120) * 0.7, 0, 1), 2)
    one = intervals(labels, p, np.arange(120), 300, 0.95, 1)
    seven = intervals(np.repeat(labels, 7), np.repeat(p, 7), np.repeat(np.arange(120), 7), 300, 0.95, 1)
    for share in SHARES:
        assert vars(one[share]) == pytest.approx(vars(seven[share]))
        assert one[share].low <= one[share].value <= one[share].high
    assert one[0.5].low < one[0.5].high


def test_a_draw_without_some_questions_keeps_its_bounds_finite() -> None:
    found = intervals(np.array([True, False]), np.array([0.9, 0.2]), np.array([0, 1]), 200, 0.95, 0)
    assert found[1.0].value == 0.5
    assert (found[1.0].low, found[1.0].high) == (0.0, 1.0)


def test_a_curve_is_drawn_through_its_points_over_a_dotted_base_rate() -> None:
    root = ET.fromstring(plot("a < b", "note", {"evergreen": curve(LABELS, P)}))
    line = next(root.iter("{http://www.w3.org/2000/svg}polyline"))
    first, last = line.get("points", "").split(" ")[0], line.get("points", "").split(" ")[-1]
    assert first == f"{LEFT + SIDE * 0.2:.1f},{TOP:.1f}"
    assert last == f"{LEFT + SIDE:.1f},{TOP + SIDE * 0.4:.1f}"
    dotted = next(p for p in root.iter("{http://www.w3.org/2000/svg}path") if p.get("stroke-dasharray"))
    assert dotted.get("d") == f"M{LEFT:.1f} {TOP + SIDE * 0.4:.1f}H{LEFT + SIDE:.1f}"


def test_a_long_curve_is_drawn_by_a_bounded_number_of_points() -> None:
    many = curve(np.arange(5000) % 3 > 0, np.arange(5000) / 5000)
    root = ET.fromstring(plot("t", "n", {"evergreen": many}))
    assert len(next(root.iter("{http://www.w3.org/2000/svg}polyline")).get("points", "").split(" ")) == POINTS
