"""One backend as the courier sees it: ask until there is a final reply.

Law: at most `concurrency` places are taken. A place is held from the first attempt's start, given
up while a retry waits, and kept by a final reply until the asker leaves it, after the commit.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from pipelines.llm.answer import Failure
from pipelines.llm.job import Asked, Attempt
from pipelines.llm.patience import Patience
from pipelines.llm.protocol import Reply, read_vectors, request_body
from pipelines.llm.server import SLOTS
from pipelines.llm.store import Kept
from pipelines.llm.transport import Transport

if TYPE_CHECKING:
    from pipelines.llm.job import Job
    from pipelines.llm.settings import Settings


class Backend(Protocol):
    """Where answers come from.

    `identity` names a model in keys. `url` is the address for a prompt, and starts what must run;
    `left` says that a request to it ended, and whether its connection held. `llama`: it is a
    llama.cpp of ours. `ours`: it runs here by our doing, so it is reached without a proxy and is
    never shown a key. `unsaid`: the sampling that it would else choose by itself, said neutrally,
    for what is not in the key may not act.
    """

    llama: bool
    ours: bool
    unsaid: Mapping[str, Any]

    def identity(self, model: str) -> str: ...

    async def url(self, model: str, prompt: str = "") -> str: ...

    def left(self, url: str, alive: bool) -> None: ...

    async def close(self) -> None: ...


class Endpoint:
    """Asks one backend. Lives in one event loop."""

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self._backend, self._settings = backend, settings
        self._transport = Transport(backend, settings)
        # More than an embedded server's slots would only wait there, against their time-out.
        self.limit = min(SLOTS, settings.concurrency) if backend.llama else settings.concurrency
        self._places = asyncio.Semaphore(max(1, self.limit))
        self.in_flight = 0
        self._stopped: BaseException | None = None

    def stop(self, why: BaseException) -> None:
        """Send nothing more: who waits for a place gets `why`."""
        self._stopped = why

    async def ask(self, job: Job) -> Asked:
        """The final reply to `job`; its place is held until `leave`. Raises what stops the run."""
        body = request_body(job.canonical, job.model, self._backend.unsaid)
        request = job.request
        prompt = request.prompt or "\n".join(text for _, text in request.messages)
        return await self._until_final(request.kind, job.model, body, job.key, prompt)

    def leave(self) -> None:
        """Give back the place of a final reply."""
        self.in_flight -= 1
        self._places.release()

    async def embed(self, model: str, prompts: list[str]) -> tuple[list[list[float]], Reply]:
        """Vectors of one batch, in order; none, and the reply that says why, when it failed."""
        body = orjson.dumps({"model": model, "input": prompts})
        asked = await self._until_final("embedding", model, body, "", prompts[0], len(prompts))
        self.leave()
        if asked.reply.kept.failure is not None:
            return [], asked.reply
        return read_vectors(asked.reply.body, len(prompts)), asked.reply

    async def close(self) -> None:
        await self._transport.close()

    async def _until_final(
        self, kind: str, model: str, body: bytes, key: str, prompt: str, vectors: int = 0
    ) -> Asked:
        patience = Patience(self._settings.retries, self._settings.patience_s)
        history: list[Attempt] = []
        while True:
            await self._places.acquire()
            self.in_flight += 1
            final = False
            try:
                if self._stopped is not None:
                    raise self._stopped
                began = time.monotonic()
                reply = await self._transport.attempt(kind, model, body, key, prompt)
                if vectors:
                    reply = _checked(reply, vectors)
                seconds = time.monotonic() - began
                wait_s = patience.wait_after(reply, random.random())
                history.append(Attempt(str(reply.kept.failure or "ok"), seconds, wait_s or 0.0))
                final = wait_s is None
            finally:
                if not final:
                    self.leave()
            if wait_s is None:
                return Asked(reply, tuple(history), seconds)
            await asyncio.sleep(wait_s)


def _checked(reply: Reply, count: int) -> Reply:
    """A reply that lacks a vector is a broken body, to be asked again."""
    if reply.kept.failure is not None:
        return reply
    try:
        read_vectors(reply.body, count)
    except ValueError as error:
        return Reply(Kept("", failure=Failure.BROKEN_BODY, detail=str(error)))
    return reply
