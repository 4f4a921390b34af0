"""U is the macro mean of what could be decided, whatever the order; ranks follow it."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.cbu.ranking import auc, best_is_right, human_win, mean, mean_win, recall
from pipelines.cbu.utility import (
    Candidate,
    Neighbor,
    Trials,
    Utility,
    effective_n,
    macro_mean,
    utility,
    wilson,
)
from pipelines.data.answers import Verdict

R, W, X = Verdict.RIGHT, Verdict.WRONG, Verdict.UNVERIFIED
OF = {1: R, 0: W, None: X}
Table = dict[tuple[str | None, str], list[int | None]]


def score(table: Table, groups: dict[str, str] | None = None) -> list[Utility]:
    """U of every candidate of a table of rollouts."""
    candidates = sorted({c for c, _ in table if c is not None})
    return utility(
        [Candidate(c, (groups or {}).get(c, "Q")) for c in candidates],
        lambda c: [Neighbor(n) for k, n in table if k == c.key],
        lambda c, n: table.get((c.key if c else None, n.key), []),
        lambda attempt, _: OF[attempt],
    )


def test_utility_is_the_mean_over_neighbors_of_their_means() -> None:
    assert score({("C", "a"): [1, 1, 0, 1], ("C", "b"): [0, 1, 0, 0]})[0].utility == 0.5
    unequal = score({("C", "a"): [1, 1, 1, 0], ("C", "b"): [1, 0]})[0]
    assert unequal.utility == 0.625  # macro, not 4/6
    assert unequal.n == 6


def test_an_error_among_the_rollouts_is_left_out_and_counted() -> None:
    one = score({("C", "a"): [1, 1, 1, 1, 1, 0, 0, None]})[0]
    assert one.utility == pytest.approx(5 / 7)
    assert (one.n, one.excluded) == (7, 1)


def test_a_neighbor_without_a_counted_rollout_leaves_no_score_and_no_rank() -> None:
    lost, whole = sorted(
        score({("C", "a"): [1], ("C", "b"): [None, None], ("D", "a"): [0], ("D", "b"): [0]}),
        key=lambda u: u.candidate,
    )
    assert (lost.utility, lost.low, lost.rank, lost.excluded) == (None, None, None, 2)
    assert (whole.utility, whole.rank) == (0.0, 1)


def test_lift_is_against_the_same_neighbors_without_a_candidate() -> None:
    table: Table = {("C", "a"): [1] * 5 + [0] * 3, (None, "a"): [1, 1, 0, 0]}
    one = score(table)[0]
    assert one.baseline == 0.5
    assert one.lift == pytest.approx(0.125)
    assert score({("C", "a"): [1]})[0].lift is None


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),
    [(45, 64, 0.5823, 0.8009), (4, 8, 0.2152, 0.7848), (6, 8, 0.4093, 0.9285), (0, 8, 0.0, 0.3244)],
)
def test_wilson_interval(right: int, n: int, low: float, high: float) -> None:
    assert wilson(right / n, n) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_an_interval_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        wilson(0.5, 0)


def test_equal_groups_count_all_their_rollouts_and_unequal_ones_fewer() -> None:
    assert effective_n([Trials("a", (1,) * 8), Trials("b", (0,) * 8)]) == 16
    assert effective_n([Trials("a", (1,) * 12), Trials("b", (0,) * 4)]) == pytest.approx(12)
    assert macro_mean([]) is None


VALUES = st.lists(st.sampled_from([0, 1, None]), min_size=1, max_size=6)


@given(
    st.dictionaries(st.tuples(st.sampled_from("CDEF"), st.sampled_from("abc")), VALUES, min_size=1),
    st.integers(0, 2**16),
)
def test_no_order_changes_a_score(table: Table, seed: int) -> None:
    mixed = list(table.items())
    random.Random(seed).shuffle(mixed)
    shuffled = {k: random.Random(seed).sample(v, len(v)) for k, v in mixed}
    plain = [(u.candidate, u.utility, u.low, u.n, u.excluded, u.rank) for u in score(table)]
    assert [(u.candidate, u.utility, u.low, u.n, u.excluded, u.rank) for u in score(shuffled)] == plain


@given(st.dictionaries(st.tuples(st.sampled_from("CDEF"), st.sampled_from("ab")), VALUES, min_size=1))
def test_a_score_is_the_exact_fraction_within_its_interval(table: Table) -> None:
    for one in score(table):
        lists = [[v for v in vs if v is not None] for (c, _), vs in table.items() if c == one.candidate]
        if not all(lists):
            assert one.utility is None
            continue
        exact = sum((Fraction(sum(vs), len(vs)) for vs in lists), Fraction(0)) / len(lists)
        assert one.utility == pytest.approx(float(exact))
        assert one.low is not None and one.high is not None
        assert 0 <= one.low <= float(exact) + 1e-12 and float(exact) - 1e-12 <= one.high <= 1


@given(st.dictionaries(st.sampled_from("ABCDEFG"), st.lists(st.sampled_from([0, 1]), min_size=2, max_size=4)))
def test_ranks_share_ties_and_stay_in_their_group(rollouts: dict[str, list[int]]) -> None:
    groups = {c: "first" if c < "D" else "second" for c in rollouts}
    scored = score({(c, "a"): list(v) for c, v in rollouts.items()}, groups)
    for one in scored:
        rivals = [o for o in scored if o.group == one.group]
        assert one.rank == 1 + sum((o.utility or 0) > (one.utility or 0) + 1e-12 for o in rivals)
    for group in set(groups.values()):
        assert min(o.rank or 0 for o in scored if o.group == group) == 1


def test_ranking_figures_of_a_mixed_pool() -> None:
    right, wrong = [0.75, 0.5, 0.5, 0.25], [0.5, 0.25, 0.25, 0.0, 0.75]
    assert auc(right, wrong) == pytest.approx(0.675)
    assert mean_win(right, wrong) == 1.0
    assert best_is_right(right, wrong) == 0.5
    assert recall(right, wrong) == pytest.approx(0.75)
    assert [human_win(h, wrong) for h in (0.35, 0.36, 0.34)] == [0.5, 1.0, 0.0]


def test_recall_shares_a_tie_across_the_cut() -> None:
    assert recall([1, 0.5, 0.5, 0.5], [1, 0.5, 0.5, 0.5, 0]) == pytest.approx(0.625)


def test_averaging_scores_first_is_not_averaging_ranks() -> None:
    right, wrong = (1.0, 0.0), (0.4, 0.4)
    assert best_is_right([sum(right) / 2], [sum(wrong) / 2]) == 1.0
    assert mean(best_is_right([r], [w]) for r, w in zip(right, wrong, strict=True)) == 0.5


def test_all_equal_scores_give_chance() -> None:
    right, wrong = [0.3] * 4, [0.3] * 5
    assert (auc(right, wrong), mean_win(right, wrong), human_win(0.3, wrong)) == (0.5, 0.5, 0.5)
    assert best_is_right(right, wrong) == pytest.approx(4 / 9)
    assert recall(right, wrong) == pytest.approx(5 / 9)


def test_a_pool_of_one_kind_has_no_figure() -> None:
    assert [f([1.0], []) for f in (auc, best_is_right, recall, mean_win)] == [None] * 4
    assert mean([None, None]) is None
