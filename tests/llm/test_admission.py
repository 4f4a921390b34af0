"""The limit of one endpoint over time: within bounds whatever happens, cut by load, not by chance."""

from __future__ import annotations

import random
from collections import Counter, deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.llm.admission import BREAK_AFTER, OPEN_S, PAUSE_MOST_S, RISE_ROUNDS, Admission, End, Ticket
from pipelines.llm.limits import SILENT, Limits

told = st.sampled_from(
    [
        SILENT,
        Limits(retry_after_s=0.0),
        Limits(retry_after_s=0.7),
        Limits(retry_after_s=1e9),
        Limits(requests_left=0, reset_s=2.0),
        Limits(requests_left=5, reset_s=1.0),
        Limits(tokens_left=0, reset_s=1e9),
        Limits(tokens_left=1000, reset_s=0.1),
        Limits(requests_left=0),
    ]
)
steps = st.one_of(
    st.tuples(st.just("send"), st.floats(0, 3)),
    st.tuples(st.just("end"), st.sampled_from(End), st.integers(0, 1000), told),
)


def play(admission: Admission, events: list[tuple]) -> tuple[float, list[Ticket]]:
    """Run random events, checking the law after each; the time reached and what is still in flight."""
    now, out = 0.0, []
    for event in events:
        if event[0] == "send":
            now += event[1]
            ticket = admission.admit(now)
            if ticket is not None:
                out.append(ticket)
        elif out:
            _, end, which, limits = event
            admission.ended(out.pop(which % len(out)), end, now, limits, tokens=10)
        assert admission.floor <= admission.limit <= admission.cap
        assert admission.in_flight == len(out)
        assert len(out) <= admission.cap
        assert admission.sent >= len(out)
        assert admission.accepted <= 0.5
    return now, out


def calm(admission: Admission, now: float, out: list[Ticket], answers: int) -> tuple[float, int]:
    """Good answers only, to as many requests as may go: the time reached and how many were answered."""
    done = 0
    while done < answers:
        while (ticket := admission.admit(now)) is not None:
            out.append(ticket)
        if out:
            admission.ended(out.pop(0), End.GOOD, now)
            done += 1
        else:
            at = admission.opens_at(now)
            assert now < at <= now + PAUSE_MOST_S, "nothing in flight, and no time to wait for"
            now = at
    return now, done


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.lists(steps, max_size=300))
def test_whatever_happens_the_limit_keeps_its_bounds_and_the_counts_add_up(
    cap: int, floor: int, events: list[tuple]
) -> None:
    play(Admission(cap, floor=min(cap, floor)), events)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 40), st.lists(steps, max_size=200))
def test_after_any_storm_good_answers_bring_the_limit_back_to_the_cap(cap: int, events: list[tuple]) -> None:
    admission = Admission(cap)
    now, out = play(admission, events)
    now, _ = calm(admission, now, out, (RISE_ROUNDS + 8) * cap + 2 * BREAK_AFTER)
    assert admission.limit == cap and admission.broken_since is None


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 40), st.lists(steps, max_size=200))
def test_there_is_always_a_next_instant_to_send(cap: int, events: list[tuple]) -> None:
    admission = Admission(cap)
    now, out = play(admission, events)
    for ticket in out:
        admission.ended(ticket, End.GONE, now)
    at = admission.opens_at(now)
    assert at <= now + PAUSE_MOST_S and admission.admit(at) is not None


def fill(admission: Admission, now: float = 0.0) -> list[Ticket]:
    out = []
    while (ticket := admission.admit(now)) is not None:
        out.append(ticket)
    return out


def test_a_burst_of_refusals_is_one_halving() -> None:
    admission = Admission(64)
    for ticket in fill(admission):
        admission.ended(ticket, End.REFUSED, 0.0)
    assert admission.limit == 32


def test_an_endpoint_that_refuses_all_is_sent_one_at_a_time_as_late_as_it_told() -> None:
    admission, now = Admission(64), 0.0
    for _ in range(30):
        now = admission.opens_at(now)
        for ticket in fill(admission, now):
            admission.ended(ticket, End.REFUSED, now, Limits(retry_after_s=3.0))
    assert admission.limit == 1
    assert admission.paused_until == now + 3.0 and admission.admit(now + 2.9) is None
    assert admission.admit(now + 3.0) is not None


def served(admission: Admission, seconds: float, outcome, latency_s: float = 0.1) -> tuple[float, float]:
    """(answers a second, share refused) of an endpoint whose `outcome(in service)` takes `latency_s`."""
    now, ends, out, serving = 0.0, Counter(), deque(), 0
    while now < seconds:
        while (ticket := admission.admit(now)) is not None:
            end = outcome(serving)
            serving += end is End.GOOD
            out.append((now + latency_s, ticket, end))
        if not out:
            now = admission.opens_at(now)
            continue
        due, ticket, end = out.popleft()
        now = max(now, due)
        serving -= end is End.GOOD
        ends[end] += 1
        admission.ended(ticket, end, now)
    return ends[End.GOOD] / seconds, ends[End.REFUSED] / ends.total()


@pytest.mark.parametrize("cap", [16, 64, 256])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.4])
def test_random_refusals_do_not_slow_what_is_sent(cap: int, share: float) -> None:
    drawn = random.Random(5)
    rate, _ = served(Admission(cap), 60.0, lambda _: End.REFUSED if drawn.random() < share else End.GOOD)
    ideal = cap * (1 - share) / 0.1
    assert rate > 0.75 * ideal


@pytest.mark.parametrize("capacity", [4, 12, 40])
def test_refusals_by_load_bring_what_is_sent_near_to_what_can_be_served(capacity: int) -> None:
    admission = Admission(128)
    rate, refused = served(admission, 120.0, lambda busy: End.REFUSED if busy >= capacity else End.GOOD)
    assert rate > 0.6 * capacity / 0.1 and refused < 0.15


def test_a_breaker_opens_after_failures_in_a_row_and_lets_one_probe_through() -> None:
    admission = Admission(32)
    for ticket in fill(admission):
        admission.ended(ticket, End.FAILED, 1.0)
    assert admission.broken_since == 1.0 and admission.admit(1.0) is None
    assert admission.opens_at(1.0) == 1.0 + OPEN_S
    probe = admission.admit(1.5)
    assert probe is not None and probe.probe and admission.admit(1.5) is None
    admission.ended(probe, End.FAILED, 1.6)
    assert admission.opens_at(1.6) == 1.6 + 2 * OPEN_S
    second = admission.admit(3.0)
    assert second is not None
    admission.ended(second, End.GONE, 3.0)  # cancelled: it showed nothing
    third = admission.admit(3.0)
    assert third is not None
    admission.ended(third, End.GOOD, 3.1)
    assert admission.broken_since is None and admission.limit <= 2
    assert [t.probe for t in fill(admission, 3.1)] == [False] * int(admission.limit)


def test_failures_among_answers_never_open_the_breaker() -> None:
    admission = Admission(8)
    for _ in range(200):
        for end in [End.FAILED] * (BREAK_AFTER - 1) + [End.GOOD]:
            ticket = admission.admit(0.0)
            assert ticket is not None
            admission.ended(ticket, end, 0.0)
    assert admission.broken_since is None and admission.limit == 8


def test_no_more_is_sent_than_the_rate_limit_leaves_until_its_reset() -> None:
    admission = Admission(64)
    first = admission.admit(0.0)
    assert first is not None
    admission.ended(first, End.GOOD, 0.0, Limits(requests_left=3, reset_s=10.0))
    assert len(fill(admission, 1.0)) == 3
    assert admission.opens_at(1.0) == 10.0 and len(fill(admission, 10.0)) == 61


def test_tokens_left_allow_as_many_requests_as_the_last_ones_used() -> None:
    admission = Admission(64)
    first = admission.admit(0.0)
    assert first is not None
    admission.ended(first, End.GOOD, 0.0, Limits(requests_left=50, tokens_left=450, reset_s=6.0), tokens=100)
    assert len(fill(admission)) == 4


def test_answers_count_against_what_was_left_when_they_were_asked() -> None:
    admission = Admission(64)
    first, *others = fill(admission)[:11]
    admission.ended(first, End.GOOD, 0.0, Limits(requests_left=70, reset_s=5.0))
    for ticket in others:
        admission.ended(ticket, End.GOOD, 0.0)
    assert len(fill(admission)) == 70 - 63  # the 63 sent after the first are not yet in its count
