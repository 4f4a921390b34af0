"""Places and turnstiles: fair turns over stages, one admission for an address, nothing left behind."""

from __future__ import annotations

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import EnvironmentFault
from pipelines.llm.admission import BREAK_AFTER, End
from pipelines.llm.limits import Limits
from pipelines.llm.turns import Places, Turns
from pipelines.llm.turnstile import Turnstile, join, part


@given(st.lists(st.sampled_from("abc"), max_size=40))
def test_lanes_take_turns_and_keep_their_own_order(pushed: list[str]) -> None:
    turns: Turns[str, tuple[str, int]] = Turns()
    for number, lane in enumerate(pushed):
        turns.push(lane, (lane, number))
    popped = [turns.pop() for _ in range(len(turns))]
    assert sorted(popped) == sorted((lane, number) for number, lane in enumerate(pushed))
    for lane in "abc":
        own = [number for name, number in popped if name == lane]
        assert own == sorted(own)
        for place, number in enumerate(own):  # before its k-th item each other lane had at most k + 1
            before = [name for name, _ in popped[: popped.index((lane, number))] if name != lane]
            assert all(before.count(other) <= place + 1 for other in "abc")


def test_a_small_stage_is_not_kept_waiting_by_a_large_one() -> None:
    async def scenario() -> list[str]:
        places, order = Places(1), []
        await places.take("large")

        async def one(lane: str) -> None:
            await places.take(lane)
            order.append(lane)
            places.give()

        tasks = [asyncio.create_task(one("large")) for _ in range(20)]
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(one("small")))
        await asyncio.sleep(0)
        places.give()
        await asyncio.gather(*tasks)
        return order

    assert asyncio.run(scenario()).index("small") <= 1


@given(st.integers(1, 4), st.lists(st.sampled_from(["take", "give", "cancel"]), max_size=60))
def test_places_are_never_more_than_the_limit_and_none_is_lost(limit: int, events: list[str]) -> None:
    async def scenario() -> None:
        places, tasks = Places(limit), []
        for event in events:
            if event == "take":
                tasks.append(asyncio.create_task(places.take("lane")))
            elif event == "cancel" and tasks:
                tasks[-1].cancel()
            elif event == "give" and places.taken:
                places.give()
                held = [t for t in tasks if t.done() and not t.cancelled()]
                if held:
                    tasks.remove(held[0])
            for _ in range(3):  # whoever was let in, or cancelled, has its turn
                await asyncio.sleep(0)
            assert places.taken <= limit
        waiting = [t for t in tasks if not t.done()]
        assert not waiting or places.taken == limit
        for task in waiting:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert places.taken == sum(1 for t in tasks if not t.cancelled())

    asyncio.run(scenario())


def test_who_waits_for_a_place_or_comes_later_is_told_why_there_is_none() -> None:
    async def scenario() -> None:
        places = Places(1)
        await places.take("a")
        waiting = asyncio.create_task(places.take("a"))
        await asyncio.sleep(0)
        places.fail(EnvironmentFault("no disk"))
        for taken in (waiting, places.take("b")):
            with pytest.raises(EnvironmentFault, match="no disk"):
                await taken

    asyncio.run(scenario())


def test_two_clients_in_two_threads_share_one_admission_and_take_turns() -> None:
    most, now, lock, order = [0], [0], threading.Lock(), []

    async def client(name: str) -> None:
        turnstile = join("http://shared", client_name := object(), 2)

        async def one() -> None:
            ticket = await turnstile.enter(client_name, name)
            assert ticket is not None
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
                order.append(name)
            await asyncio.sleep(0.002)
            with lock:
                now[0] -= 1
            turnstile.ended(ticket, End.GOOD)

        await asyncio.gather(*(one() for _ in range(40)))
        part(turnstile, client_name)

    threads = [threading.Thread(target=asyncio.run, args=(client(name),)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert most[0] == 2 and sorted(order) == ["a"] * 40 + ["b"] * 40
    both = order[order.index("b") if order[0] == "a" else order.index("a") :]
    shared = both[:20]
    assert 6 <= shared.count("a") <= 14


def test_what_was_learnt_of_an_address_goes_with_its_last_owner() -> None:
    async def scenario() -> None:
        first, second = object(), object()
        turnstile = join("http://learnt", first, 4)
        assert join("http://learnt", second, 8) is turnstile and turnstile.admission.cap == 8
        part(turnstile, second)
        assert turnstile.admission.cap == 4
        part(turnstile, first)
        fresh = join("http://learnt", first, 4)
        assert fresh is not turnstile
        part(fresh, first)

    asyncio.run(scenario())


def test_who_waits_when_the_breaker_opens_chooses_an_address_again() -> None:
    async def scenario() -> None:
        turnstile, owner = Turnstile("http://dead", BREAK_AFTER), object()
        tickets = [await turnstile.enter(owner, "a") for _ in range(BREAK_AFTER)]
        waiting = [asyncio.create_task(turnstile.enter(owner, "a")) for _ in range(BREAK_AFTER + 2)]
        await asyncio.sleep(0)
        for ticket in tickets:
            assert ticket is not None
            turnstile.ended(ticket, End.FAILED)
        let_in = await asyncio.gather(*waiting)  # all but the last failure freed a place
        assert [t is None for t in let_in] == [False] * (BREAK_AFTER - 1) + [True] * 3
        probe = await turnstile.enter(owner, "a")  # after the first pause, by the clock
        assert probe is not None and probe.probe
        turnstile.ended(probe, End.GOOD)
        assert turnstile.broken_s() == 0

    asyncio.run(scenario())


def test_a_pause_ends_by_the_clock_and_a_cancelled_waiter_takes_nothing_along() -> None:
    async def scenario() -> None:
        turnstile, owner = Turnstile("http://slow", 2), object()
        first = await turnstile.enter(owner, "a")
        assert first is not None
        turnstile.ended(first, End.GOOD, Limits(requests_left=0, reset_s=0.05))
        cancelled, *kept = (asyncio.create_task(turnstile.enter(owner, "a")) for _ in range(3))
        await asyncio.sleep(0)
        cancelled.cancel()
        tickets = await asyncio.gather(*kept)
        assert [t is not None for t in tickets] == [True, True]
        assert turnstile.admission.in_flight == 2
        later = asyncio.create_task(turnstile.enter(owner, "a"))
        await asyncio.sleep(0)
        turnstile.ended(tickets[0], End.GOOD)  # lets `later` in, which is cancelled in the same instant
        later.cancel()
        await asyncio.gather(later, return_exceptions=True)
        assert turnstile.admission.in_flight == 1

    asyncio.run(scenario())


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 9)), max_size=30))
def test_whoever_enters_leaves_or_is_cancelled_nothing_is_held_in_the_end(
    askers: list[tuple[str, int, int]],
) -> None:
    """Each asker: lane, turns of the loop that its request takes, and the turn that cancels it (0: none)."""

    async def scenario() -> None:
        turnstile, owner = Turnstile("http://any", 3), object()

        async def one(lane: str, turns: int) -> bool:
            ticket = await turnstile.enter(owner, lane)
            assert ticket is not None and turnstile.admission.in_flight <= 3
            end = End.GONE
            try:
                for _ in range(turns):
                    await asyncio.sleep(0)
                end = End.GOOD
            finally:
                turnstile.ended(ticket, end)
            return True

        tasks = [asyncio.create_task(one(lane, turns)) for lane, turns, _ in askers]
        for turn in range(1, 10):
            await asyncio.sleep(0)
            for task, (_, _, cancelled_at) in zip(tasks, askers, strict=True):
                if cancelled_at == turn:
                    task.cancel()
        ends = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        assert all(end is True or isinstance(end, asyncio.CancelledError) for end in ends)
        assert all(end is True for end, (_, _, at) in zip(ends, askers, strict=True) if not at)
        assert turnstile.admission.in_flight == 0 and len(turnstile._turns) == 0

    asyncio.run(scenario())
