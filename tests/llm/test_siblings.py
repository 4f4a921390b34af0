"""Samples of one question one after the other, questions beside each other."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.llm.siblings import Siblings


@given(st.lists(st.sampled_from("abc"), max_size=30))
def test_one_sample_of_a_question_is_asked_at_a_time_and_in_order(keys: list[str]) -> None:
    async def scenario() -> None:
        siblings, under_way, order = Siblings(), set(), []

        async def ask(number: int, key: str) -> None:
            async with siblings.turn(key) as follows:
                assert key not in under_way
                assert follows == (key in keys[:number])
                under_way.add(key)
                order.append((key, number))
                for _ in range(number % 3 + 1):
                    await asyncio.sleep(0)
                under_way.remove(key)

        tasks = [asyncio.create_task(ask(*member)) for member in enumerate(keys)]
        await asyncio.sleep(0)
        assert len(under_way) == len(set(keys))
        await asyncio.gather(*tasks)
        for key in "abc":
            own = [number for name, number in order if name == key]
            assert own == sorted(own)
        assert siblings.empty

    asyncio.run(scenario())


def test_a_sample_that_fails_or_is_given_up_lets_the_next_one_ask() -> None:
    async def scenario() -> None:
        siblings = Siblings()

        async def ask(seconds: float) -> str:
            async with siblings.turn("question"):
                await asyncio.sleep(seconds)
                raise ValueError

        held, waits, last = (asyncio.create_task(ask(s)) for s in (60, 60, 0))
        await asyncio.sleep(0)
        waits.cancel()
        held.cancel()
        with pytest.raises(ValueError):
            await last
        await asyncio.gather(held, waits, return_exceptions=True)
        assert siblings.empty

    asyncio.run(scenario())
