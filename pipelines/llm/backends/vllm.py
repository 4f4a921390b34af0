"""vLLM: servers that are started and stopped here, or running ones that are joined.

Law: a request goes to a live replica, chosen by its prompt (`replicas.py`). A replica that fails is
left out at once, so its requests move, and it comes back once it answers again. A run stops only
when no replica is left. Nothing is started before the first question that the store cannot answer.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipelines.llm.backends.openai import address
from pipelines.llm.backends.vllm_model import Source, source
from pipelines.llm.backends.vllm_replica import Joined, Member, Prepared, Started
from pipelines.llm.replicas import Replicas

if TYPE_CHECKING:
    from pipelines.llm.settings import Settings

# A server takes these from the model's own generation_config.json, unless they are said.
UNSAID: Mapping[str, Any] = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}


class Fleet:
    """The replicas of one model: who lives, who is being raised, who is gone for good."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._replicas = Replicas(len(members))
        self._raising: dict[int, asyncio.Task[None]] = {}
        self._gone: dict[int, Exception] = {}
        self._at: dict[str, int] = {}

    async def url(self, prompt: str) -> str:
        """The address of a live replica for this prompt. Raises why, when none is left."""
        while True:
            for number, member in enumerate(self._members):
                if number in self._replicas.live and not member.alive:
                    self._replicas.down(number)
                self._raise(number)
            chosen = self._replicas.take(prompt)
            if chosen is not None:
                url = self._members[chosen].url
                self._at[url] = chosen
                return url
            if not self._raising:
                raise self._gone[min(self._gone)]
            await asyncio.wait(self._raising.values(), return_when=asyncio.FIRST_COMPLETED)

    def left(self, url: str, alive: bool) -> bool:
        """A request to `url` ended; whether it was one of this model's."""
        number = self._at.get(url)
        if number is None:
            return False
        self._replicas.left(number)
        if not alive and url == self._members[number].url:  # not one that has moved since
            self._replicas.down(number)
            self._raise(number)
        return True

    async def close(self) -> None:
        raising = list(self._raising.values())
        for task in raising:
            task.cancel()
        await asyncio.gather(*raising, return_exceptions=True)
        await asyncio.gather(*(m.stop() for m in self._members))

    def _raise(self, number: int) -> None:
        """See to it that a replica which is down comes up, unless it is gone for good."""
        if number in self._replicas.live or number in self._raising or number in self._gone:
            return
        self._raising[number] = asyncio.get_running_loop().create_task(self._bring_up(number))

    async def _bring_up(self, number: int) -> None:
        try:
            await self._members[number].ready()
            self._replicas.up(number)
        except Exception as fault:  # whatever it is, it is told when no replica is left
            self._gone[number] = fault
            if len(self._gone) < len(self._members):
                print(f"  vllm: goes on without a replica: {fault}", file=sys.stderr)
        finally:
            del self._raising[number]


class Vllm:
    """The backend: a fleet for each model that is asked; joined replicas serve all that are asked."""

    llama = False
    unsaid = UNSAID

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._told = settings.vllm.checked()
        self.ours = not self._told.urls
        self._sources: dict[str, Source] = {}
        self._fleets: dict[str, Fleet] = {}
        for url in self._told.urls:
            address(url, "llm.vllm.urls")

    def identity(self, model: str) -> str:
        return self._source(model).identity

    async def url(self, model: str, prompt: str = "") -> str:
        """The address of a live replica of the model for this prompt. Raises HeadraceError."""
        served = "" if self._told.urls else model
        if served not in self._fleets:
            self._fleets[served] = Fleet(self._members(model))
        return await self._fleets[served].url(prompt)

    def left(self, url: str, alive: bool) -> None:
        for fleet in self._fleets.values():
            if fleet.left(url, alive):
                return

    async def close(self) -> None:
        await asyncio.gather(*(fleet.close() for fleet in self._fleets.values()))
        self._fleets.clear()

    def _source(self, model: str) -> Source:
        if model not in self._sources:
            self._sources[model] = source(model, self._told)
        return self._sources[model]

    def _members(self, model: str) -> list[Member]:
        if self._told.urls:
            return [Joined(url, model, self._settings) for url in self._told.urls]
        prepared = Prepared(self._source(model), self._settings)
        return [Started(model, n, prepared, self._settings) for n in range(self._told.replicas)]
