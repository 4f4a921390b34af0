"""Calls beside an event loop: in their order, with what they raise, and none left waiting."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from pipelines.llm.aside import Aside


def test_calls_are_made_in_their_order_by_one_thread_which_ends() -> None:
    aside, made = Aside("one"), []

    def call(number: int) -> threading.Thread:
        made.append(number)
        return threading.current_thread()

    async def all_() -> set[threading.Thread]:
        return set(await asyncio.gather(*(aside.call(call, n) for n in range(50))))

    (thread,) = asyncio.run(all_())
    assert made == list(range(50)) and thread is not threading.current_thread() and not aside.is_current()
    aside.close(wait=True)
    assert not thread.is_alive()


def test_what_a_call_raises_its_caller_gets_and_the_next_is_made() -> None:
    def fails() -> None:
        raise OSError("no room")

    async def both() -> str:
        aside = Aside("one")
        with pytest.raises(OSError, match="no room"):
            await aside.call(fails)
        said = await aside.call(str, 7)
        aside.close(wait=False)
        return said

    assert asyncio.run(both()) == "7"


def test_one_whose_caller_is_cancelled_before_its_turn_is_not_made() -> None:
    made = []

    async def run() -> None:
        aside = Aside("one")
        first = asyncio.create_task(aside.call(time.sleep, 0.2))
        second = asyncio.create_task(aside.call(made.append, 2))
        await asyncio.sleep(0.05)
        second.cancel()
        await first
        aside.close(wait=True)

    asyncio.run(run())
    assert made == []


def test_a_call_after_the_end_is_made_all_the_same() -> None:
    async def run() -> str:
        aside = Aside("one", 4)
        await aside.call(str, 1)
        aside.close(wait=True)
        return await aside.call(str, 2)

    assert asyncio.run(run()) == "2"
