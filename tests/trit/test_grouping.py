"""Groups by key, advantages, and the deferred reward."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.trit.deferred import Rollout, Standing, false_zero, likeness, standing
from pipelines.trit.grpo import Member, advantages, groups, mixed, whole


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([1, 1, 0.1, 0.1, 0, 0], [1.2857, 1.2857, -0.5413, -0.5413, -0.7443, -0.7443]),  # T3
        ([1, 0.1, 0.1, 0.1, 0.1, 0.1], [2.0412] + [-0.4082] * 5),
        ([1, 1, 1, 0], [0.5, 0.5, 0.5, -1.5]),  # T4
        ([1, 0, 0, 0], [1.5, -0.5, -0.5, -0.5]),
        ([1, 1, 0, 0], [0.8660, 0.8660, -0.8660, -0.8660]),
        ([1, 1, 1, 1], [0, 0, 0, 0]),
        ([0.1, 0.1, 0.1], [0, 0, 0]),
        ([1], [0]),  # a singleton teaches nothing
        ([], []),
    ],
)
def test_advantages_are_the_worked_ones(rewards: list[float], expected: list[float]) -> None:
    assert advantages(rewards) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    ("q0", "q1", "kept"),
    [
        ([1, 0, 1, 0], [1, 0, 1, 0], {"q0", "q1"}),  # grouped by stride both would be lost
        ([1, 1, 1, 1], [0, 0, 0, 0], set()),  # grouped by stride both would be kept
        ([1, 0, 1, 0], [1, 1, 1, 1], {"q0"}),
    ],
)
def test_groups_are_told_by_key_and_not_by_stride(q0: list[float], q1: list[float], kept: set[str]) -> None:
    members = [Member("q0", i, r) for i, r in enumerate(q0)]  # T6
    members += [Member("q1", i, r) for i, r in enumerate(q1)]
    found = groups(members)
    assert {key for key, group in found.items() if mixed([m.reward for m in group])} == kept
    assert all(whole([m.sample for m in group], 4) for group in found.values())


@given(
    st.dictionaries(st.text(max_size=3), st.lists(st.sampled_from([0.0, 0.1, 1.0]), max_size=6)),
    st.integers(),
)
def test_the_order_of_members_changes_no_group(given_: dict[str, list[float]], seed: int) -> None:
    members = [Member(key, i, r) for key, rewards in given_.items() for i, r in enumerate(rewards)]
    shuffled = members.copy()
    random.Random(seed).shuffle(shuffled)
    assert groups(members) == groups(shuffled)
    for group in groups(shuffled).values():
        assert sum(advantages([m.reward for m in group])) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("samples", [[0, 1], [0, 1, 2, 2], [0, 1, 3], [1, 2, 3], []])
def test_a_group_with_a_missing_or_doubled_member_is_not_whole(samples: list[int]) -> None:
    assert not whole(samples, 3)
    assert whole([2, 0, 1], 3)


def rollouts(*accs: int | None) -> list[Rollout]:
    return [Rollout("t", i, f"r{i}", acc, None) for i, acc in enumerate(accs)]


def test_one_right_rollout_rewards_the_translation() -> None:
    assert standing(rollouts(0, 0, 1, 0)) == Standing(0.25, 1.0, 4, 0)
    assert standing(rollouts(0, 0, 0, 0)) == Standing(0.0, 0.0, 4, 0)


def test_an_unverified_rollout_is_left_out_and_counted() -> None:
    assert standing(rollouts(1, None, 0, None)) == Standing(0.5, 1.0, 2, 2)
    assert standing(rollouts(None, None)) == Standing(None, None, 0, 2)


@pytest.mark.parametrize(("p", "chance"), [(1 / 6, 0.3349), (1 / 3, 0.0878), (0.5, 0.0156), (1 / 12, 0.5933)])
def test_a_faithful_translation_gets_zero_as_often_as_worked_out(p: float, chance: float) -> None:
    assert false_zero(p, 6) == pytest.approx(chance, abs=1e-4)  # T5


def test_a_rewarded_translation_with_a_wrong_word_is_seen_by_its_likeness() -> None:
    given = "Il y a 4 boîtes."
    assert likeness(given, given) == 1.0
    assert likeness("Il y a 4 cuillères.", given) == pytest.approx(10 / 12)
    assert likeness("Tom dort", given) == 0.0
    assert likeness(given, None) is None
    assert likeness("箱が4個", "箱が5個") == pytest.approx(6 / 8)
