"""Replicas: a live one for every prompt, prefixes kept together while that is fair, nothing lost."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pipelines.llm.replicas import BOUND, FREE, PREFIX_CHARS, Replicas

prompts = st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=60, unique=True)
counts = st.integers(1, 8)


def all_up(count: int) -> Replicas:
    replicas = Replicas(count)
    for number in range(count):
        replicas.up(number)
    return replicas


def alone(replicas: Replicas, prompt: str) -> int | None:
    """Where a prompt goes when nothing else is in flight."""
    chosen = replicas.take(prompt)
    if chosen is not None:
        replicas.left(chosen)
    return chosen


@given(prompts, counts)
def test_a_prefix_goes_to_the_same_replica_whatever_follows_it(texts: list[str], count: int) -> None:
    replicas = all_up(count)
    for text in texts:
        prefix = (text * PREFIX_CHARS)[:PREFIX_CHARS]
        assert len({alone(replicas, prefix + question) for question in texts}) == 1


@given(prompts, st.integers(2, 8), st.data())
def test_a_death_moves_only_its_own_and_a_return_brings_only_them_back(
    texts: list[str], count: int, data: st.DataObject
) -> None:
    replicas = all_up(count)
    before = {text: alone(replicas, text) for text in texts}
    dead = data.draw(st.integers(0, count - 1))
    replicas.down(dead)
    after = {text: alone(replicas, text) for text in texts}
    assert dead not in after.values()
    assert all(after[text] == before[text] for text in texts if before[text] != dead)
    replicas.up(dead)
    assert {text: alone(replicas, text) for text in texts} == before


@given(prompts, st.integers(2, 8))
def test_samples_of_one_prompt_stay_together_within_the_bound_and_spread_beyond(
    texts: list[str], count: int
) -> None:
    replicas = all_up(count)
    home = alone(replicas, texts[0])
    taken = Counter(replicas.take(texts[0]) for _ in range(FREE))
    assert taken == {home: FREE}
    assert replicas.take(texts[0]) != home  # the next one would wait there while others idle
    for _ in range(40 * count):
        replicas.take(texts[0])
    assert max(replicas.loads) <= BOUND * sum(replicas.loads) / count + 1


def test_the_questions_of_one_template_are_spread_over_the_replicas() -> None:
    replicas = all_up(4)
    homes = Counter(alone(replicas, "An example.\n" * 30 + f"Question {n}") for n in range(400))
    assert set(homes) == {0, 1, 2, 3} and min(homes.values()) > 60


def test_nothing_leaves_a_replica_that_has_nothing() -> None:
    with pytest.raises(ValueError, match="replica 1 has nothing in flight"):
        all_up(2).left(1)


class Traffic(RuleBasedStateMachine):
    """Any order of requests, ends, deaths and returns; a copy of the counts is kept beside."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 4
        self.replicas = Replicas(self.count)
        self.up: set[int] = set()
        self.flying: list[int] = []

    @rule(number=st.integers(0, 3))
    def comes_up(self, number: int) -> None:
        self.replicas.up(number)
        self.up.add(number)

    @rule(number=st.integers(0, 3))
    def goes_down(self, number: int) -> None:
        self.replicas.down(number)
        self.up.discard(number)

    @rule(prompt=st.text(max_size=3))
    def a_request_comes(self, prompt: str) -> None:
        chosen = self.replicas.take(prompt)
        if not self.up:
            assert chosen is None
            return
        assert chosen in self.up
        live = [self.flying.count(n) for n in self.up]
        ours = self.flying.count(chosen)
        fair = max(FREE, BOUND * (sum(live) + 1) / len(live) + 1)
        assert ours < fair or ours == min(live)
        self.flying.append(chosen)

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def a_request_ends(self, data: st.DataObject) -> None:
        self.replicas.left(self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1))))

    @invariant()
    def nothing_is_lost(self) -> None:
        assert self.replicas.loads == [self.flying.count(n) for n in range(self.count)]
        assert list(self.replicas.live) == sorted(self.up)


TestTraffic = Traffic.TestCase
