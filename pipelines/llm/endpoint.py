"""One backend as the courier sees it: ask until there is a final reply.

Law: at most `concurrency` places are taken. A place is held from the first attempt's start, given
up while a retry waits, and kept by a final reply until the asker leaves it, after the commit. After
`stop` nothing more is sent; what would meet every request alike (a refused key, no funds, an
endpoint that is gone or refuses all) stops it. What is in flight by then goes on to its reply.

While the breaker is open the fault may be the endpoint's or the questions': those that failed before go
behind those that did not. A probe spends no retry if it is the first attempt of its question, or could not
be sent; else it does, so that a few questions which always fail come to an end (`outage.py`).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from pipelines.errors import HeadraceError
from pipelines.llm.admission import FAILURES, End, Ticket
from pipelines.llm.answer import Failure
from pipelines.llm.aside import Aside
from pipelines.llm.budget import over_budget
from pipelines.llm.job import Asked, Attempt
from pipelines.llm.media import MediaFault, has_media, read_media
from pipelines.llm.outage import Outage
from pipelines.llm.patience import Patience
from pipelines.llm.protocol import LIMIT, Reply, checked, prompt_of, read_vectors, request_body
from pipelines.llm.server import SERVERS, SLOTS
from pipelines.llm.siblings import Siblings
from pipelines.llm.stops import DOUBTFUL, FORBIDDEN
from pipelines.llm.store import Kept
from pipelines.llm.together import Together, sound_first, split
from pipelines.llm.transport import Transport, safe
from pipelines.llm.turns import Places
from pipelines.llm.turnstile import Turnstile, join, part

if TYPE_CHECKING:
    from pipelines.llm.budget import Budget
    from pipelines.llm.job import Job
    from pipelines.llm.settings import Settings

_NOTHING = Reply(Kept(""), left=False)  # of a sample whose choice a server did not give
FILES = 4  # read or written at once
STEADY = 0.5  # an endpoint that fails less than this share answers others well
_ENDS = {
    Failure.OVERLOADED: End.OVERLOADED,
    Failure.TIMEOUT: End.OVERLOADED,
    Failure.SERVER: End.ERRED,
    Failure.NETWORK: End.FAILED,
    Failure.BROKEN_BODY: End.ERRED,
    Failure.HTML: End.ERRED,
}


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


@dataclass(frozen=True, slots=True)
class _Question:
    """What is sent, and for whom. `body` is None where media make it too large to be kept."""

    kind: str
    model: str
    key: str
    prompt: str
    lane: str
    body: bytes | None
    jobs: tuple[Job, ...] = ()  # more than one where samples ride together
    vectors: int = 0  # expected of an embeddings reply


class Endpoint:
    """Asks one backend. Lives in one event loop."""

    def __init__(self, backend: Backend, settings: Settings, budget: Budget | None = None) -> None:
        self._backend, self._settings, self._budget = backend, settings, budget
        self._transport = Transport(backend, settings)
        # More than the embedded servers' slots would only wait there, against their time-out.
        cap = min(SERVERS * SLOTS, settings.concurrency) if backend.llama else settings.concurrency
        self._places = Places(max(1, cap))
        self._turnstiles: dict[str, Turnstile] = {}
        self._siblings = Siblings() if backend.llama else None
        most = 1 if backend.ours else settings.samples_per_call
        self._together = Together(self._ask_jobs, self.leave, most) if most > 1 else None
        self._files = Aside("headrace-files", FILES)
        self._stopped: BaseException | None = None
        self._outage = Outage(settings.outage_s, settings.patience_s)

    @property
    def in_flight(self) -> int:
        """Requests sent or about to be, and answers not yet committed."""
        return self._places.taken

    @property
    def limit(self) -> int:
        """Most of them at present."""
        admitted = sum(int(t.admission.limit) for t in self._turnstiles.values())
        return min(self._places.limit, admitted or self._places.limit)

    def stop(self, why: BaseException) -> None:
        """Send nothing more: who waits, or comes later, gets the first `why`."""
        if self._stopped is None:
            self._stopped = why
            self._places.fail(why)
            for turnstile in self._turnstiles.values():
                turnstile.turn_away(self)

    async def ask(self, job: Job) -> Asked:
        """The final reply to `job`; its place is held until `leave`. Raises what stops the run."""
        if self._together is not None and job.request.kind != "embedding":
            return await self._together.ask(job)
        return (await self._ask_jobs([job]))[0]

    async def _ask_jobs(self, jobs: Sequence[Job]) -> Sequence[Asked]:
        """The ends of samples of one question, asked in one call; each holds a place."""
        first, request = jobs[0], jobs[0].request
        body = None if has_media(request) else self._body(jobs, None)
        lane, prompt = request.purpose, prompt_of(request)
        question = _Question(request.kind, first.model, first.key, prompt, lane, body, tuple(jobs))
        if self._siblings is None:
            asked = await self._ask(question)
        else:
            async with self._siblings.turn(first.model + prompt) as follows:
                asked = await self._ask(question, first=follows)
        if len(jobs) == 1:
            return [asked]
        replies = split(asked.reply, request.kind, len(jobs))
        self._places.add(len(replies) - 1)
        return [replace(asked, reply=reply, rode=i > 0) for i, reply in enumerate(replies)]

    def leave(self) -> None:
        """Give back the place of a final reply."""
        self._places.give()

    async def embed(
        self, model: str, prompts: list[str], paid: Job | None = None
    ) -> tuple[list[list[float]], Reply]:
        """Vectors of one batch, in order; none, and the reply that says why, when it failed.

        `paid` stands for the batch in the budget.
        """
        body = orjson.dumps({"model": model, "input": prompts})
        asked = await self._ask(
            _Question(
                "embedding", model, "", prompts[0], "embedding", body, (paid,) if paid else (), len(prompts)
            )
        )
        self.leave()
        if asked.reply.kept.failure is not None:
            return [], asked.reply
        return read_vectors(asked.reply.body, len(prompts)), asked.reply

    async def close(self) -> None:
        for turnstile in self._turnstiles.values():
            part(turnstile, self)
        self._turnstiles.clear()
        self._files.close(wait=False)
        await self._transport.close()

    async def _ask(self, question: _Question, *, first: bool = False) -> Asked:
        try:
            return await self._until_final(question, first=first)
        except HeadraceError as error:
            self.stop(error)
            raise

    async def _until_final(self, question: _Question, *, first: bool) -> Asked:
        patience = Patience(self._settings.retries, self._settings.patience_s)
        history: list[Attempt] = []
        while True:
            ahead = first or (bool(history) and not self._broken)
            await self._places.take(question.lane, first=ahead)
            final = False
            try:
                try:
                    body = await self._bytes(question)
                except MediaFault as fault:
                    reply, seconds, wait_s = (
                        Reply(Kept("", failure=Failure.BAD_REQUEST, detail=str(fault))),
                        0.0,
                        None,
                    )
                else:
                    reply, seconds, wait_s = await self._attempt(question, body, patience, ahead, not history)
                history.append(Attempt(str(reply.kept.failure or "ok"), seconds, wait_s or 0.0))
                if wait_s is not None and (cap := await self._pay(question)):
                    reply, wait_s = Reply(over_budget(cap)), None
                final = wait_s is None
            finally:
                if not final:
                    self._places.give()
            if wait_s is None:
                return Asked(reply, tuple(history), seconds)
            await asyncio.sleep(wait_s)

    async def _attempt(
        self, question: _Question, body: bytes, patience: Patience, ahead: bool, fresh: bool
    ) -> tuple[Reply, float, float | None]:
        """One sending: the reply, its seconds, and those to wait before the next, None when it is final."""
        url, turnstile, ticket = await self._enter(question, ahead)
        began, reply, end = time.monotonic(), None, End.GONE
        if self._budget is not None:
            for job in question.jobs:
                self._budget.sent(job)
        try:
            reply = await self._transport.attempt(url, question.kind, question.model, body, question.key)
            if question.vectors:
                reply = checked(reply, question.vectors)
            elif len(question.jobs) > 1:
                reply = sound_first(reply, question.kind, len(question.jobs))
            end = _end(reply)
        except HeadraceError:
            end = End.GOOD  # it answered
            raise
        finally:
            self._backend.left(url, reply is None or reply.reached)
            if reply is None:
                turnstile.ended(ticket, end)
            else:
                usage = reply.kept.usage
                tokens = usage.prompt_tokens + usage.completion_tokens
                turnstile.ended(ticket, end, reply.limits, tokens)
        seconds = time.monotonic() - began
        if self._budget is not None and question.jobs:
            shares = split(reply, question.kind, len(question.jobs)) if len(question.jobs) > 1 else [reply]
            shares += [_NOTHING] * (len(question.jobs) - len(shares))
            for job, share in zip(question.jobs, shares, strict=True):
                self._budget.ended(job, share.kept, left=share.left)
        await self._heed(reply, url, question)
        self._outage.ended(reply, safe(url), time.monotonic())
        if ticket.probe and end not in FAILURES:
            self._outage.probe_answered()
        elif ticket.probe and self._outage.probe_failed(reply, safe(url), self._silent_s(url), first=fresh):
            return reply, seconds, 0.0  # the breaker lets it wait
        steady = turnstile.admission.failing < STEADY
        return reply, seconds, patience.wait_after(reply, random.random(), steady=steady)

    async def _heed(self, reply: Reply, url: str, question: _Question) -> None:
        """Raises what ends the run, but for what is this question's own."""
        if reply.stop is None:
            return
        if question.vectors or reply.status not in DOUBTFUL:  # said of a batch of texts, it is said of all
            raise reply.stop
        if self._outage.turned_away(question.prompt):
            named = reply.status != FORBIDDEN
            if not await self._transport.vouches(url, question.model, named=named):
                raise reply.stop
            self._outage.vouched = True

    async def _pay(self, question: _Question) -> str:
        """Before another attempt: pay for one that was lost. The cap that is in the way, or ""."""
        if self._budget is None:
            return ""
        for job in question.jobs:
            if self._budget.lost(job) and (cap := await self._files.call(self._budget.retry, job)):
                return cap
        return ""

    @property
    def _broken(self) -> bool:
        return any(t.admission.broken_since is not None for t in self._turnstiles.values())

    async def _enter(self, question: _Question, ahead: bool) -> tuple[str, Turnstile, Ticket]:
        """The address for the question, and the ticket to send it there."""
        while True:
            if self._stopped is not None:
                raise self._stopped.with_traceback(None)
            url = await self._backend.url(question.model, question.prompt)
            turnstile = self._turnstiles.get(url)
            if turnstile is None:
                turnstile = self._turnstiles[url] = join(url, self, self._places.limit)
            ticket = None
            try:
                ticket = await turnstile.enter(self, question.lane, first=ahead)
            finally:
                if ticket is None:
                    self._backend.left(url, True)
            if ticket is not None and self._stopped is None:
                return url, turnstile, ticket
            if ticket is not None:
                self._backend.left(url, True)
                turnstile.ended(ticket, End.GONE)

    def _silent_s(self, url: str) -> float:
        """For how long no address that was asked has answered, while the breaker of `url` is open."""
        return min(self._turnstiles[url].broken_s(), *(t.silent_s() for t in self._turnstiles.values()))

    async def _bytes(self, question: _Question) -> bytes:
        """The body; with media it is made for each sending, and not held while a retry waits."""
        if question.body is not None:
            return question.body
        media = await self._files.call(read_media, question.jobs[0].request)
        return self._body(question.jobs, media)

    def _body(self, jobs: Sequence[Job], media: dict[str, str] | None) -> bytes:
        job, unsaid = jobs[0], self._backend.unsaid
        stream = self._settings.stream and job.request.kind != "embedding"
        limit_as = LIMIT if self._backend.ours else self._settings.max_tokens_as
        return request_body(
            job.canonical, job.model, unsaid, media, stream=stream, n=len(jobs), max_tokens_as=limit_as
        )


def _end(reply: Reply) -> End:
    """What a reply says of the endpoint's health."""
    if reply.throttled:
        return End.REFUSED
    return _ENDS.get(reply.kept.failure, End.GOOD) if reply.kept.failure else End.GOOD
