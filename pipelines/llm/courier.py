"""Carries requests to the backend and answers to the store, in an event loop of its own thread.

Law: an answer keeps its place among the requests in flight until it is committed, and is handed
out only then. So a kill repeats at most `concurrency` requests, and nothing handed out is lost.
What stops a run (a refused key, no funds, a full disk) stops the sending at once; what is in flight
by then is paid for, so it has its time-out to come in and be kept, DRAIN_S where nothing answers any more.

Answers are committed and handed out in groups: all that came while the group before was written. While any
is under way others who wait for it see that we get on, however long one takes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import orjson
import uvloop

from pipelines.errors import EnvironmentFault, HeadraceError, StageError
from pipelines.llm.answer import Failure
from pipelines.llm.prices import price_of
from pipelines.llm.request import Media, Request
from pipelines.llm.stops import EndpointGone, unfit
from pipelines.llm.store import KEPT_FAILURES, Kept, Record, Store

if TYPE_CHECKING:
    from pipelines.llm.budget import Budget
    from pipelines.llm.claims import Claims
    from pipelines.llm.endpoint import Backend, Endpoint
    from pipelines.llm.job import Asked, Handed, Job
    from pipelines.llm.settings import Settings
    from pipelines.llm.tally import Spent

STOP_S = 30.0
DRAIN_S = 10.0
LAST_S = 1.0  # for what goes on once all is closed
NOTICE_S = 3.0
LIFE_SIGNS = 4  # in the time after which others take us for stalled


@dataclass(slots=True)
class _Errand:
    """What one caller of `Client.answers` has under way. `failed`: it was told so.

    `kept`: answers of it that wait for their commit.
    """

    done: SimpleQueue[Handed]
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    failed: bool = False
    kept: int = 0


@dataclass(frozen=True, slots=True)
class _Answered:
    """A final reply that waits for its commit, and holds its place at `endpoint` until then."""

    errand: _Errand
    endpoint: Endpoint
    job: Job
    asked: Asked


@dataclass
class Courier:
    """The loop, its thread, the endpoint and the writer. Started by the first job."""

    backend: Backend
    settings: Settings
    store: Store
    spent: Spent
    budget: Budget | None = None
    claims: Claims | None = None  # given back when a question's end is known, whoever reads it when
    say: Callable[[str], None] = lambda _: None  # to a person
    _errands: dict[int, _Errand] = field(default_factory=dict)
    _answered: list[_Answered] = field(default_factory=list)
    _writing: bool = False
    _leaving: set[asyncio.Task[None]] = field(default_factory=set)
    _endpoint: Endpoint | None = None
    _stopped: bool = False  # the endpoint sends no more: the next errand gets a new one
    _worth_waiting: bool = True  # what is in flight can still be kept
    _drain_s: float = DRAIN_S

    def __post_init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="headrace-llm", daemon=True)
        self._thread.start()
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="headrace-store")
        if self.claims is not None:
            self._loop.call_soon_threadsafe(self._show_life)

    @property
    def in_flight(self) -> int:
        """Requests sent and not yet committed."""
        return 0 if self._endpoint is None else self._endpoint.in_flight

    @property
    def limit(self) -> int:
        """Most requests in flight at present."""
        return 0 if self._endpoint is None else self._endpoint.limit

    def send(self, jobs: list[Job]) -> None:
        """Take jobs to be done; returns at once."""
        self._loop.call_soon_threadsafe(self._begin, jobs)

    def flush(self) -> None:
        """No more jobs come for now: what a carrier gathers, it sends. This one gathers nothing."""

    def recall(self, done: SimpleQueue[Any]) -> None:
        """Cancel the jobs that report to `done` and wait until they are gone."""
        self.run(self._recall(id(done)))

    def recall_later(self, done: SimpleQueue[Any], then: Callable[[], None]) -> None:
        """Do so without waiting, for who may hold what the loop waits for; `then` is called in the loop."""

        def begin() -> None:
            task = self._loop.create_task(self._recall(id(done)))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
            task.add_done_callback(lambda _: then())

        self._loop.call_soon_threadsafe(begin)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Cancel what is under way, write what was answered, stop the server and the thread."""
        if self._loop.is_closed():
            return
        try:
            # A server that does not end in time ends with this process: its standard input does.
            with suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(STOP_S)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STOP_S)
            self._disk.shutdown()
            if not self._thread.is_alive():
                self._loop.close()

    def embed(self, model: str, prompts: list[str]) -> list[list[float]]:
        """Vectors of one batch from an embeddings endpoint, in order.

        Raises EnvironmentFault, UnfitTexts, StageError where a cap leaves no room for them.
        """
        if self.budget is None:
            vectors, reply = self.run(self._embed(model, prompts))
        else:
            with self.budget.paying(model, prompts) as paid:
                vectors, reply = self.run(self._embed(model, prompts, paid))
                self.spent.cost_usd += self.budget.settle(paid.key, paid.done, reply.kept)
        known = reply.kept.usage.billed or price_of(self.settings.prices, model, ours=self.backend.ours)
        self.spent.unpriced += 0 if known else len(prompts)
        if not vectors and reply.kept.failure in (Failure.BAD_REQUEST, Failure.FILTERED):
            raise unfit(model, prompts, reply.kept.detail)
        if not vectors:
            what = f"the endpoint gives no embeddings of {model}: {reply.kept.detail}"
            raise EnvironmentFault(what, cure="see the endpoint's own log, then run again")
        given: list[list[float]] = vectors
        return given

    async def _embed(self, model: str, prompts: list[str], paid: Job | None = None) -> Any:
        endpoint = self._asking()
        try:
            return await endpoint.embed(model, prompts, paid)
        except HeadraceError as error:
            self._stop(endpoint, error)
            await self._begin_anew()
            raise

    def _asking(self) -> Endpoint:
        """Where to ask, made in the loop when first needed."""
        if self._endpoint is None:
            from pipelines.llm.endpoint import Endpoint

            self._endpoint = Endpoint(self.backend, self.settings, self.budget)
        return self._endpoint

    # -- asking -------------------------------------------------------------------------------

    def _begin(self, jobs: list[Job]) -> None:
        done = jobs[0].done
        errand = self._errands.setdefault(id(done), _Errand(done))
        for job in jobs:
            errand.tasks.add(self._loop.create_task(self._carry(job, errand)))

    async def _carry(self, job: Job, errand: _Errand) -> None:
        endpoint = None
        try:
            endpoint = self._asking()
            asked = await endpoint.ask(job)
            if self.budget is not None:
                asked = self.budget.priced(job.model, asked)
            self._answered.append(_Answered(errand, endpoint, job, asked))
            errand.kept += 1
            if not self._writing:
                self._writing = True
                self._writer = self._loop.create_task(self._write_all())
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # handed to the caller's thread, which raises it
            self._stop(endpoint, error)
            if self.claims is not None:
                self.claims.give([job.key], errand.done)
            self._fail(errand, error)
        finally:
            errand.tasks.discard(asyncio.current_task())

    def _show_life(self) -> None:
        """A loop that runs comes to the end of all that it asks: by time-outs, retries and patience."""
        if self.claims is not None and any(errand.tasks for errand in self._errands.values()):
            self.claims.beat()
        self._loop.call_later(self.settings.stalled_s / LIFE_SIGNS, self._show_life)

    def _stop(self, endpoint: Endpoint | None, error: BaseException) -> None:
        """Send nothing more by `endpoint`, unless another has taken its place."""
        if endpoint is not None and endpoint is self._endpoint and not self._stopped:
            self._stopped = True
            self._drain_s = DRAIN_S if isinstance(error, EndpointGone) else self.settings.timeout_s
            endpoint.stop(error)

    def _fail(self, errand: _Errand, error: BaseException) -> None:
        if not errand.failed:
            errand.failed = True
            errand.done.put(error)

    async def _recall(self, owner: int) -> None:
        errand = self._errands.get(owner)
        if errand is not None:
            if errand.failed and self._worth_waiting:
                await self._drain(errand)
            await self._cancel(errand)
            while errand.kept:  # what was answered is charged what it cost
                await asyncio.sleep(0.001)
            self._errands.pop(owner, None)
        await self._begin_anew()

    async def _begin_anew(self) -> None:
        """What ended one run does not end the next: it gets an endpoint of its own."""
        if self._stopped and not self._errands and self._endpoint is not None:
            stopped, self._endpoint = self._endpoint, None
            self._stopped, self._worth_waiting = False, True
            await stopped.close()

    async def _drain(self, errand: _Errand) -> None:
        """Let come in what is in flight; who waits, for a place or before a retry, holds none."""
        began, said = self._loop.time(), False
        while errand.tasks and self.in_flight and (waited := self._loop.time() - began) < self._drain_s:
            if waited > NOTICE_S and not said:
                said = True
                self.say(f"stops, and waits for {self.in_flight} answers in flight: they are paid for")
            await asyncio.wait(errand.tasks, timeout=0.02)

    @staticmethod
    async def _cancel(errand: _Errand) -> None:
        tasks = list(errand.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _shut(self) -> None:
        closed = StageError("the model client was closed while requests were in flight")
        for errand in list(self._errands.values()):
            if errand.tasks:
                self._fail(errand, closed)
            await self._cancel(errand)
        while self._writing:
            await asyncio.sleep(0.001)
        if self._endpoint is not None:
            await self._endpoint.close()
        await self.backend.close()
        await self._end_the_rest()

    @staticmethod
    async def _end_the_rest() -> None:
        """Whoever is interrupted waits no more, but what it began goes on: a recall, an embedding."""
        if rest := asyncio.all_tasks() - {asyncio.current_task()}:
            _, late = await asyncio.wait(rest, timeout=LAST_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

    # -- keeping ------------------------------------------------------------------------------

    async def _write_all(self) -> None:
        """Commit in groups; a passing failure is handed back uncommitted, to be asked again."""
        while self._answered:
            group, self._answered = self._answered, []
            try:
                records = [_record(a.job, a.asked) for a in group if _is_kept(a.asked)]
                kept: dict[str, Kept] = {}
                if records:
                    kept = await self._loop.run_in_executor(self._disk, self.store.put, records)
            except BaseException as error:
                for answered in group:
                    self._worth_waiting &= answered.endpoint is not self._endpoint
                    answered.errand.kept -= 1
                    self._stop(answered.endpoint, error)  # a paid answer could not be kept: buy no more
                    answered.endpoint.leave()
                    self._fail(answered.errand, error)
            else:
                self._hand_out(group, kept)
        self._writing = False

    def _hand_out(self, group: list[_Answered], kept: dict[str, Kept]) -> None:
        handed: dict[int, tuple[_Errand, list[tuple[str, Kept]]]] = {}
        for answered in group:
            key, reply = answered.job.key, answered.asked.reply
            answered.endpoint.leave()
            answered.errand.kept -= 1
            self.spent.count(reply.kept, 0 if answered.asked.rode else len(answered.asked.history))
            _, ends = handed.setdefault(id(answered.errand), (answered.errand, []))
            ends.append((key, kept.get(key, reply.kept)))
        for errand, ends in handed.values():
            if self.claims is not None:
                self.claims.give((key for key, _ in ends), errand.done)
            errand.done.put(ends)


def _is_kept(asked: Asked) -> bool:
    failure = asked.reply.kept.failure
    return failure is None or failure in KEPT_FAILURES


def _record(job: Job, asked: Asked) -> Record:
    request = job.request
    return Record(
        key=job.key,
        kind=request.kind,
        model=job.model,
        identity=job.identity,
        request=job.canonical,
        kept=asked.reply.kept,
        body=asked.reply.body,
        latency_ms=round(asked.seconds * 1000),
        attempts=len(asked.history),
        row=request.row,
        purpose=request.purpose,
        history=orjson.dumps(asked.history).decode(),
        media=media_refs(request),
    )


def media_refs(request: Request) -> str:
    """Where the parts lie that are no text, as JSON."""
    said = [part for _, content in request.messages if not isinstance(content, str) for part in content]
    parts = [{"sha256": p.sha256, "ref": p.ref} for p in said if isinstance(p, Media)]
    return orjson.dumps(parts).decode() if parts else "[]"
