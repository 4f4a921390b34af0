"""Samples of one question in one call: own keys and bodies, and a usage that adds up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from queue import SimpleQueue

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from questions import question

from pipelines.errors import EnvironmentFault
from pipelines.llm.answer import Failure
from pipelines.llm.job import Asked, Attempt, Job
from pipelines.llm.protocol import Reply, read_reply
from pipelines.llm.request import named_request
from pipelines.llm.store import Kept
from pipelines.llm.together import Together, same_question, sound_first, split

USAGE = {
    "prompt_tokens": 101,
    "completion_tokens": 17,
    "total_tokens": 118,
    "cost": 0.25,
    "prompt_tokens_details": {"cached_tokens": 64},
    "completion_tokens_details": {"reasoning_tokens": 5},
}


def job(number: int, sample: int) -> Job:
    named = named_request(question(number, sample=sample), "m", "name:m")
    return Job(named.key, named.canonical, named.identity, named.model, named.request, SimpleQueue())


def body(texts: list[str], usage: dict | None = USAGE) -> bytes:
    choices = [{"index": i, "text": text, "finish_reason": "stop"} for i, text in enumerate(texts)]
    return orjson.dumps({"id": "x", "choices": choices[::-1], "usage": usage})


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=20), min_size=1, max_size=9))
def test_the_shares_of_the_usage_add_up_and_each_body_reads_as_its_own_answer(texts: list[str]) -> None:
    replies = split(read_reply(200, body(texts), "completion"), "completion", len(texts))
    assert [r.kept.text for r in replies] == [text if text.strip() else "" for text in texts]
    usages = [r.kept.usage for r in replies]
    assert sum(u.prompt_tokens for u in usages) == 101
    assert sum(u.completion_tokens for u in usages) == 17
    assert sum(u.cached_tokens for u in usages) == 64
    assert sum(u.cost_usd for u in usages) == pytest.approx(0.25)
    assert max(u.prompt_tokens for u in usages) - min(u.prompt_tokens for u in usages) <= 1
    for reply in replies:
        own = orjson.loads(reply.body)
        assert len(own["choices"]) == 1 and read_reply(200, reply.body, "completion").kept == reply.kept
        assert (
            own["usage"]["total_tokens"] == own["usage"]["prompt_tokens"] + own["usage"]["completion_tokens"]
        )


def test_each_choice_has_its_own_outcome() -> None:
    told = orjson.loads(body(["a", " ", "cut"]))
    told["choices"][0]["finish_reason"] = "length"  # they came in reverse
    replies = split(read_reply(200, orjson.dumps(told), "completion"), "completion", 3)
    assert [r.kept.failure for r in replies] == [None, Failure.EMPTY, Failure.LENGTH]


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": None, "completion_tokens": 5, "total_tokens": 15},
        {"prompt_tokens": "10", "completion_tokens": "5", "total_tokens": "15"},
        {"prompt_tokens": 10.0, "completion_tokens": 5, "total_tokens": None},
    ],
)
def test_a_usage_is_shared_out_as_it_is_read(usage: dict) -> None:
    reply = read_reply(200, body(["a", "b"], usage), "completion")
    own = [r.kept.usage for r in split(reply, "completion", 2)]
    assert sum(u.prompt_tokens for u in own) == reply.kept.usage.prompt_tokens
    assert sum(u.completion_tokens for u in own) == reply.kept.usage.completion_tokens


@pytest.mark.parametrize("first", [{"text": 5}, {}, {"text": "half", "finish_reason": "error"}])
def test_the_bill_adds_up_also_where_a_choice_cannot_be_read(first: dict) -> None:
    good, broken = {"index": 1, "text": "4", "finish_reason": "stop"}, {"index": 0} | first
    one = read_reply(200, orjson.dumps({"choices": [broken, good], "usage": USAGE}), "completion")
    assert [r.kept.usage.completion_tokens for r in split(one, "completion", 2)] == [17]
    none = read_reply(200, orjson.dumps({"choices": [broken] * 2, "usage": USAGE}), "completion")
    ends = split(none, "completion", 2)
    assert {r.kept.failure for r in ends} == {Failure.BROKEN_BODY}
    assert sum(r.kept.usage.prompt_tokens for r in ends) == 101


def test_who_is_cancelled_before_the_others_joined_leaves_nobody_waiting() -> None:
    async def ask(jobs: Sequence[Job]) -> list[Asked]:
        return [Asked(Reply(Kept("4")), (), 0.0) for _ in jobs]

    async def scenario() -> list[Asked]:
        together = Together(ask, lambda: None, 4)
        leader = asyncio.ensure_future(together.ask(job(1, 0)))
        await asyncio.sleep(0)
        leader.cancel()
        later = [asyncio.ensure_future(together.ask(job(1, k))) for k in (1, 2)]
        return await asyncio.wait_for(asyncio.gather(*later), 5)

    assert len(asyncio.run(scenario())) == 2


def test_a_choice_that_broke_off_is_left_out_and_the_sound_ones_bear_the_whole_bill() -> None:
    choices = [
        {"index": 0, "text": "half", "finish_reason": "error"},
        {"index": 1, "text": "4", "finish_reason": "stop"},
        {"index": 2, "text": "5", "finish_reason": "stop"},
    ]
    reply = read_reply(200, orjson.dumps({"choices": choices, "usage": USAGE}), "completion")
    assert reply.kept.failure is Failure.BROKEN_BODY
    whole = sound_first(reply, "completion", 3)
    assert whole.kept.failure is None and whole.kept.usage.completion_tokens == 17
    own = split(whole, "completion", 3)
    assert [r.kept.text for r in own] == ["4", "5"]
    assert sum(r.kept.usage.prompt_tokens for r in own) == 101
    assert sum(r.kept.usage.completion_tokens for r in own) == 17
    none = read_reply(200, orjson.dumps({"choices": choices[:1], "usage": USAGE}), "completion")
    assert sound_first(none, "completion", 3) is none
    assert [r.kept.failure for r in split(none, "completion", 3)] == [Failure.BROKEN_BODY] * 3


@pytest.mark.parametrize("index", [None, 0, "1"])
def test_choices_whose_index_is_untold_are_those_of_the_samples_in_their_order(
    index: int | str | None,
) -> None:
    told = {} if index is None else {"index": index}
    choices = [told | {"text": str(n), "finish_reason": "stop"} for n in range(3)]
    replies = split(read_reply(200, orjson.dumps({"choices": choices}), "completion"), "completion", 3)
    assert [r.kept.text for r in replies] == ["0", "1", "2"]


@given(st.recursive(st.none() | st.booleans() | st.text(max_size=5), lambda v: st.lists(v, max_size=3)))
def test_no_body_whatever_leaves_all_samples_without_a_reply(choices: object) -> None:
    for body in ({"choices": choices}, {"choices": [choices, {"text": "4"}]}, choices):
        reply = read_reply(200, orjson.dumps(body), "completion")
        assert 1 <= len(split(sound_first(reply, "completion", 3), "completion", 3)) <= 3


def test_a_failure_of_the_call_is_that_of_each_sample() -> None:
    replies = split(read_reply(400, b'{"error": "too long"}', "completion"), "completion", 3)
    assert [r.kept.failure for r in replies] == [Failure.BAD_REQUEST] * 3


def test_only_samples_of_one_question_are_the_same_question() -> None:
    assert same_question(job(1, 0)) == same_question(job(1, 5)) != same_question(job(2, 0))


def ask_all(jobs: list[Job], most: int, gives: int) -> tuple[list[list[int]], list[Asked], int]:
    """Ask all at once of a server that gives at most `gives` choices: its calls, the ends, places held."""
    calls: list[list[int]] = []
    held = 0

    async def ask(riding):  # type: ignore[no-untyped-def]
        nonlocal held
        calls.append([j.request.sample for j in riding])
        await asyncio.sleep(0.001)
        held += min(gives, len(riding))
        return [Asked(Reply(Kept(j.key)), (Attempt("ok", 0.0),), 0.0) for j in riding[:gives]]

    async def scenario() -> list[Asked]:
        together = Together(ask, lambda: None, most)
        return await asyncio.gather(*(together.ask(j) for j in jobs))

    return calls, asyncio.run(scenario()), held


def test_adjacent_samples_ride_together_and_each_gets_its_own_answer() -> None:
    jobs = [job(n, k) for n in range(3) for k in range(5)]
    calls, ends, held = ask_all(jobs, most=4, gives=99)
    assert sorted(calls) == [[0, 1, 2, 3]] * 3 + [[4]] * 3
    assert [end.reply.kept.text for end in ends] == [j.key for j in jobs] and held == 15


def test_choices_that_were_not_given_are_asked_for_again() -> None:
    calls, ends, held = ask_all([job(1, k) for k in range(4)], most=8, gives=1)
    assert calls == [[0, 1, 2, 3], [1, 2, 3], [2, 3], [3]] and held == 4
    assert len({end.reply.kept.text for end in ends}) == 4


@pytest.mark.parametrize("gone", [0, 2])
def test_whoever_is_cancelled_takes_nobody_along_and_leaves_no_place_behind(gone: int) -> None:
    async def scenario() -> tuple[Counter[str], int]:
        places = 0

        async def ask(riding):  # type: ignore[no-untyped-def]
            nonlocal places
            await asyncio.sleep(0.01)
            places += len(riding)
            return [Asked(Reply(Kept(j.key)), (), 0.0) for j in riding]

        def leave() -> None:
            nonlocal places
            places -= 1

        together = Together(ask, leave, 8)
        tasks = [asyncio.create_task(together.ask(job(1, k))) for k in range(4)]
        await asyncio.sleep(0.005)
        tasks[gone].cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        return Counter(type(end).__name__ for end in ends), places

    ends, places = asyncio.run(scenario())
    assert ends == {"Asked": 3, "CancelledError": 1} and places == 3


def test_what_stops_the_run_is_told_to_each() -> None:
    async def scenario() -> list[BaseException | Asked]:
        async def ask(riding):  # type: ignore[no-untyped-def]
            raise EnvironmentFault("no funds")

        together = Together(ask, lambda: None, 8)
        return await asyncio.gather(*(together.ask(job(1, k)) for k in range(3)), return_exceptions=True)

    assert [str(end) for end in asyncio.run(scenario())] == ["no funds"] * 3
