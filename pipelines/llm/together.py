"""Samples of one question in one call, where a seller charges the prompt each time and honours no seed.

Law: each sample has its own key, answer, body and share of the usage, and the shares add up to what
the seller counted: the prompt's evenly, the answers' by their length. `n` is part of no key, and no
seed is sent, for it could be but one sample's. Choices that a server did not give are asked for again.

Samples ride together that are asked in the same instant, as adjacent samples of a prompt are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import orjson

from pipelines.llm.answer import TRANSIENT, Usage
from pipelines.llm.job import Asked, Job
from pipelines.llm.protocol import Reply, read_reply, usage_of

Ask = Callable[[Sequence[Job]], Awaitable[Sequence[Asked]]]


_Member = tuple[Job, asyncio.Future[Asked | None]]


class Together:
    """Gathers jobs that differ in sample and seed alone, at most `most` in a call, and asks by `ask`.

    `ask` may answer fewer than it was given, the first ones, but at least one. Each answer holds a place;
    `leave` gives back that of one whose asker is gone.
    """

    def __init__(self, ask: Ask, leave: Callable[[], None], most: int) -> None:
        self._ask, self._leave, self._most = ask, leave, most
        self._open: dict[str, list[_Member]] = {}

    async def ask(self, job: Job) -> Asked:
        """The end of asking `job`, alone or with others. Raises what `ask` raises."""
        question = same_question(job)
        while True:
            mine: asyncio.Future[Asked | None] = asyncio.get_running_loop().create_future()
            group = self._open.get(question)
            if group is None:
                group = self._open[question] = [(job, mine)]
                try:
                    await asyncio.sleep(0)  # whoever was started with this one joins
                except asyncio.CancelledError:
                    self._settle(group, [None] * len(group))  # the others ask again
                    raise
                finally:
                    if self._open.get(question) is group:
                        del self._open[question]
                await self._call(group)
            else:
                group.append((job, mine))
                if len(group) >= self._most:
                    del self._open[question]
            try:
                asked = await mine
            except asyncio.CancelledError:
                if _answered(mine):  # in the very moment
                    self._leave()
                raise
            if asked is not None:
                return asked

    async def _call(self, group: list[_Member]) -> None:
        group.sort(key=lambda member: member[0].request.sample)
        riding = [(job, future) for job, future in group if not future.done()]
        try:
            ends: Sequence[Asked | None] = await self._ask([job for job, _ in riding])
        except asyncio.CancelledError:
            self._settle(riding, [None] * len(riding))  # the others are not cancelled: they ask again
            raise
        except BaseException as error:
            for _, future in riding:
                if not future.done():
                    future.set_exception(error)
            return
        self._settle(riding, [*ends, *[None] * (len(riding) - len(ends))])

    def _settle(self, riding: Sequence[_Member], ends: Sequence[Asked | None]) -> None:
        for (_, future), end in zip(riding, ends, strict=True):
            if not future.done():
                future.set_result(end)
            elif end is not None:
                self._leave()


def _answered(future: asyncio.Future[Asked | None]) -> bool:
    return future.done() and not future.cancelled() and not future.exception() and future.result() is not None


def same_question(job: Job) -> str:
    """What samples of one question have in common, with the model that is asked."""
    asked = orjson.loads(job.canonical)
    del asked["sample"], asked["seed"]
    return job.model + orjson.dumps(asked, option=orjson.OPT_SORT_KEYS).decode()


def split(reply: Reply, kind: str, count: int) -> list[Reply]:
    """One reply a sample, at most `count` and at least one; a failure of all is each one's.

    A choice that broke off is left out where another is sound, and the sound ones bear the whole bill.
    """
    try:
        body = orjson.loads(reply.body)
        told = [choice for choice in body["choices"] if isinstance(choice, dict)]
    except (ValueError, KeyError, TypeError):
        return _each(reply, count)
    placed = sorted((c["index"] if isinstance(c.get("index"), int) else n, n) for n, c in enumerate(told))
    choices = [told[n] for _, n in placed[:count]]
    texts = [(c, own.text) for c in choices if (own := _alone(body, c, kind).kept).failure not in TRANSIENT]
    if not texts:
        return _each(reply, count)
    usage = body.get("usage")
    if isinstance(usage, dict):  # as it is counted, with thoughts that the total alone may have
        counted = usage_of(body)
        usage = usage | {"prompt_tokens": counted.prompt_tokens}
        usage |= {"completion_tokens": counted.completion_tokens}
    usages = _shares(usage, [len(text) for _, text in texts])
    owned = [_alone(body, choice, kind, share) for (choice, _), share in zip(texts, usages, strict=True)]
    return [replace(reply, kept=own.kept, body=own.body) for own in owned]


def _each(reply: Reply, count: int) -> list[Reply]:
    """A failure of all as each one's, with its share of the bill."""
    used, even = reply.kept.usage, [1] * count
    shares = [
        Usage(
            _portion(used.prompt_tokens, i, even),
            _portion(used.completion_tokens, i, even),
            used.cost_usd / count,
            _portion(used.cached_tokens, i, even),
            used.billed,
        )
        for i in range(count)
    ]
    return [replace(reply, kept=replace(reply.kept, usage=share)) for share in shares]


def sound_first(reply: Reply, kind: str, count: int) -> Reply:
    """The reply to several samples as its first sound choice says it; as it is where none is."""
    if reply.kept.failure not in TRANSIENT:
        return reply
    first = split(reply, kind, count)[0]
    if first.kept.failure in TRANSIENT:
        return reply
    return replace(reply, kept=replace(first.kept, usage=reply.kept.usage))


def _alone(body: dict[str, Any], choice: Any, kind: str, usage: dict[str, Any] | None = None) -> Reply:
    """What would have come for one choice."""
    own = body | {"choices": [choice | {"index": 0}]} | ({"usage": usage} if usage else {})
    return read_reply(200, orjson.dumps(own), kind)


def _shares(usage: Any, lengths: Sequence[int]) -> list[dict[str, Any] | None]:
    """The usage of each choice; every number of it adds up to the whole's."""
    if not isinstance(usage, dict):
        return [None] * len(lengths)
    even = [1] * len(lengths)
    by_length = [length + 1 for length in lengths]  # an empty answer has its end at least
    return [_share(usage, i, even, by_length) for i in range(len(lengths))]


def _share(usage: dict[str, Any], i: int, even: Sequence[int], by_length: Sequence[int]) -> dict[str, Any]:
    own: dict[str, Any] = {}
    for name, value in usage.items():
        weights = by_length if name.startswith("completion") else even
        if isinstance(value, dict):
            own[name] = _share(value, i, weights, weights)
        elif isinstance(value, bool) or not isinstance(value, (int, float)):
            own[name] = value
        elif isinstance(value, int):
            own[name] = _portion(value, i, weights)
        else:
            own[name] = value * weights[i] / sum(weights)
    if "total_tokens" in own:
        own["total_tokens"] = own.get("prompt_tokens", 0) + own.get("completion_tokens", 0)
    return own


def _portion(value: int, i: int, weights: Sequence[int]) -> int:
    """The i-th of whole numbers in proportion to `weights` that add up to `value`."""
    bounds = [0, *(value * total // sum(weights) for total in accumulate(weights))]
    return bounds[i + 1] - bounds[i]
