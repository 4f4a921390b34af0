"""The threshold of a stated precision: the smallest that is sure enough, whatever the order."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import StageError
from pipelines.evergreen.threshold import Scored, at, choose, curve, precision_at, wilson

SCORES = st.sampled_from([n / 20 for n in range(21)])
# question -> label and the scores of its wordings; both labels are there.
QUESTIONS = st.lists(
    st.tuples(st.booleans(), st.lists(SCORES, min_size=1, max_size=4)), min_size=2, max_size=40
).filter(lambda told: len({e for e, _ in told}) == 2)


def scored(told: list[tuple[bool, list[float]]]) -> list[Scored]:
    return [Scored(f"q{n}", p, e) for n, (e, ps) in enumerate(told) for p in ps]


def counted(rows: list[Scored], threshold: float, prior: float) -> tuple[float, float, float]:
    """Precision, TPR and FPR by the definition, question by question."""
    shares: dict[bool, list[float]] = {True: [], False: []}
    for q in {r.question_id for r in rows}:
        own = [r for r in rows if r.question_id == q]
        shares[own[0].evergreen].append(sum(r.p >= threshold for r in own) / len(own))
    tpr, fpr = (sum(shares[e]) / len(shares[e]) for e in (True, False))
    kept = prior * tpr + (1 - prior) * fpr
    return (prior * tpr / kept if kept else 0.0), tpr, fpr


def test_wilson_intervals_are_those_of_the_books() -> None:
    # Wilson 1927 as in Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
    for hits, trials, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605)):
        assert wilson(hits / trials, trials, 0.025) == pytest.approx((low, high), abs=5e-5)
    assert wilson(0, 20, 0.025) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson(1 / 29, 29, 0.025) == pytest.approx((0.0061, 0.1718), abs=5e-5)
    assert wilson(0.3, 0, 0.025) == (0.0, 1.0)


def test_precision_moves_with_the_share_of_evergreen_questions() -> None:
    assert precision_at(0.5, 0.8, 0.2) == pytest.approx(0.8)
    assert precision_at(0.9, 0.8, 0.2) == pytest.approx(0.72 / 0.74)
    assert precision_at(0.9, 0.0, 0.0) == 0.0


@given(QUESTIONS, st.floats(0.05, 0.95))
def test_each_point_is_what_counting_gives(told: list[Any], prior: float) -> None:
    rows = scored(told)
    for point in curve(rows, prior, 0.9):
        precision, tpr, fpr = counted(rows, point.threshold, prior)
        assert (point.precision, point.kept, point.passed) == pytest.approx((precision, tpr, fpr))
        assert point.low <= point.precision + 1e-12
        assert at(rows, point.threshold, prior, 0.9) == point


@given(QUESTIONS, st.floats(0.05, 0.95), st.floats(0.3, 0.95))
def test_the_choice_is_the_smallest_threshold_that_is_sure_enough(
    told: list[Any], prior: float, wanted: float
) -> None:
    rows = scored(told)
    enough = [p for p in curve(rows, prior, 0.8) if p.low >= wanted]
    if not enough:
        with pytest.raises(StageError, match="no threshold has a precision of"):
            choose(rows, wanted, prior, 0.8)
        return
    chosen = choose(rows, wanted, prior, 0.8)
    assert chosen.threshold == min(p.threshold for p in enough)
    assert counted(rows, chosen.threshold, prior)[0] >= wanted
    more = [p for p in enough if p.low >= wanted + 0.02]
    assert not more or choose(rows, wanted + 0.02, prior, 0.8).threshold >= chosen.threshold


@given(QUESTIONS, st.randoms())
def test_order_and_more_wordings_with_the_same_scores_change_nothing(told: list[Any], drawn: Any) -> None:
    rows = scored(told)
    turned = [*rows, *rows]
    drawn.shuffle(turned)
    for a, b in zip(curve(turned, 0.5, 0.9), curve(rows, 0.5, 0.9), strict=True):
        assert vars(a) == pytest.approx(vars(b))
    half = turned[:]
    drawn.shuffle(half)
    assert list(curve(half, 0.5, 0.9)) == list(curve(turned, 0.5, 0.9))


def test_the_prior_of_the_rows_is_taken_where_none_is_stated() -> None:
    rows = [Scored(f"e{n}", 0.9, True) for n in range(30)] + [Scored(f"m{n}", 0.9, False) for n in range(10)]
    assert at(rows, 0.5, None, 0.9).precision == pytest.approx(0.75)
    assert at(rows, 0.5, 0.5, 0.9).precision == pytest.approx(0.5)
    assert (at(rows, 0.95, None, 0.9).precision, at(rows, 0.95, None, 0.9).kept) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "0 evergreen and 0 mutable"),
        ([Scored("a", 0.5, True)], "1 evergreen and 0 mutable"),
        ([Scored("a", 0.5, True), Scored("b", 1.5, False)], "question b has a score outside"),
        ([Scored("a", 0.5, True), Scored("b", float("nan"), False)], "question b has a score outside"),
        ([Scored("a", 0.5, True), Scored("a", 0.2, False)], "question a has a score outside"),
    ],
)
def test_scores_that_allow_no_choice_are_refused(rows: list[Scored], says: str) -> None:
    with pytest.raises(StageError, match=says):
        choose(rows, 0.9, 0.5, 0.9)


def test_the_stated_precision_holds_in_the_world_as_often_as_stated() -> None:
    """Scores drawn from known laws, so that the true precision at the chosen threshold is known."""
    # P is uniform on [.3, 1] for evergreen questions and on [0, .8] for mutable ones.
    failed = 0
    for seed in range(200):
        drawn = random.Random(seed)
        rows = [Scored(f"e{n}", drawn.uniform(0.3, 1.0), True) for n in range(300)]
        rows += [Scored(f"m{n}", drawn.uniform(0.0, 0.8), False) for n in range(100)]
        t = choose(rows, 0.9, 0.7, 0.9).threshold
        true = precision_at(0.7, min(1.0, (1 - t) / 0.7), max(0.0, (0.8 - t) / 0.8))
        failed += true < 0.9
    assert failed <= 20  # at most one in ten; the bound is cautious, so far fewer
