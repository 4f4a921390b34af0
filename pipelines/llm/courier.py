"""Carries requests to the backend and answers to the store, in an event loop of its own thread.

What stops a run (a refused key, no funds, a full disk) stops the sending at once; what is in flight
by then is paid for, so it has its time-out to come in and be kept, DRAIN_S where nothing answers any more.
While anything is under way others who wait for it see that we get on, however long one takes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import CancelledError, wait
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import uvloop

from pipelines.errors import EnvironmentFault, HeadraceError
from pipelines.llm.answer import Failure
from pipelines.llm.group_commit import Answered, Errand, GroupCommit
from pipelines.llm.prices import price_of
from pipelines.llm.stops import ClientClosed, EndpointGone, unfit
from pipelines.llm.store import Store
from pipelines.llm.uninterrupted import UNINTERRUPTED

if TYPE_CHECKING:
    from pipelines.llm.budget import Budget
    from pipelines.llm.claims import Claims
    from pipelines.llm.endpoint import Backend, Endpoint
    from pipelines.llm.job import Job
    from pipelines.llm.protocol import Reply
    from pipelines.llm.settings import Settings
    from pipelines.llm.tally import Spent

Keep = Callable[[list[list[float]]], None]
STOP_S = 30.0
HURRY_S = 3.0  # the same for a person who interrupts it
DRAIN_S = 10.0
LAST_S = 1.0  # for what goes on once all is closed
NOTICE_S = 3.0
LIFE_SIGNS = 4  # in the time after which others take us for stalled


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
    _errands: dict[int, Errand] = field(default_factory=dict)
    _leaving: set[asyncio.Task[None]] = field(default_factory=set)
    _storing: int = 0  # batches of vectors
    _embedding: set[asyncio.Task[Any]] = field(default_factory=set)
    _endpoint: Endpoint | None = None
    _stopped: bool = False  # the endpoint sends no more: the next errand gets a new one
    _worth_waiting: bool = True  # what is in flight can still be kept
    _drain_s: float = DRAIN_S

    def __post_init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._closed = False
        self._door = threading.RLock()  # what is handed to the loop comes before its end, or not at all
        self._thread = threading.Thread(target=self._live, name="headrace-llm", daemon=True)
        self._thread.start()
        self._keeping = GroupCommit(self.store, self.spent, self.claims, self._lose)
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
        with self._door:
            if self._closed:
                jobs[0].done.put(ClientClosed())
            else:
                self._loop.call_soon_threadsafe(self._begin, jobs)

    def flush(self) -> None:
        """No more jobs come for now: what a carrier gathers, it sends. This one gathers nothing."""

    def recall(self, done: SimpleQueue[Any]) -> None:
        """Cancel the jobs that report to `done` and wait until they are gone."""
        with suppress(ClientClosed):  # closed: they are gone
            self.run(self._recall(id(done)))

    def recall_later(self, done: SimpleQueue[Any], then: Callable[[], None]) -> None:
        """Do so without waiting, for who may hold what the loop waits for; `then` is called in the loop."""

        def begin() -> None:
            task = self._loop.create_task(self._recall(id(done)))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
            task.add_done_callback(lambda _: then())

        with self._door:
            if self._closed:
                then()
            else:
                self._loop.call_soon_threadsafe(begin)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the loop and wait for it. Raises ClientClosed where `close` comes first."""
        with self._door:
            if self._closed:
                work.close()
                raise ClientClosed()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise ClientClosed() from None

    def is_current(self) -> bool:
        """Whether the caller runs in a thread that others wait for: it may wait for nothing."""
        return threading.current_thread() is self._thread or self._keeping.disk.is_current()

    def close(self) -> None:
        """Cancel what is under way, write what was answered, stop the server and the thread.

        Whoever interrupts it waits for HURRY_S more; what is left then goes on beside what the process does.
        """
        with UNINTERRUPTED, self._door:
            closed, self._closed = self._closed, True
            if not closed:
                ending = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
                ending.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))
        if not closed:
            try:
                wait([ending], 2 * STOP_S)
            except BaseException:
                wait([ending], HURRY_S)
                raise
        self._thread.join(STOP_S)
        if not closed:
            ending.result(timeout=0)

    def _live(self) -> None:
        self._loop.run_forever()
        self._keeping.close()
        self._loop.close()

    def embed(self, model: str, prompts: list[str], keep: Keep) -> None:
        """Vectors of one batch from an embeddings endpoint, in order, to `keep`, which stores them.

        Raises EnvironmentFault, UnfitTexts, StageError where a cap leaves no room for them.
        """
        if self.budget is None:
            reply = self.run(self._embed(model, prompts, keep))
        else:
            with self.budget.paying(model, prompts) as paid:
                reply = self.run(self._embed(model, prompts, keep, paid))
                self.spent.cost_usd += self.budget.settle(paid.key, paid.done, reply.kept)
        known = reply.kept.usage.billed or price_of(self.settings.prices, model, ours=self.backend.ours)
        self.spent.unpriced += 0 if known else len(prompts)
        if reply.kept.failure in (Failure.BAD_REQUEST, Failure.FILTERED):
            raise unfit(model, prompts, reply.kept.detail)
        if reply.kept.failure is not None:
            what = f"the endpoint gives no embeddings of {model}: {reply.kept.detail}"
            raise EnvironmentFault(what, cure="see the endpoint's own log, then run again")

    async def _embed(self, model: str, prompts: list[str], keep: Keep, paid: Job | None = None) -> Reply:
        endpoint, task = self._asking(), asyncio.current_task()
        assert task is not None
        self._embedding.add(task)
        try:
            vectors, reply = await endpoint.embed(model, prompts, paid)
            self._embedding.discard(task)  # from now it is not cancelled, but waited for
            self._storing += 1
            try:
                if vectors:
                    await self._keeping.disk.call(keep, vectors)
            finally:
                self._storing -= 1
            return reply
        except HeadraceError as error:
            self._stop(endpoint, error)
            await self._begin_anew()
            raise
        finally:
            self._embedding.discard(task)

    def _asking(self) -> Endpoint:
        """Where to ask, made in the loop when first needed."""
        if self._endpoint is None:
            from pipelines.llm.endpoint import Endpoint

            self._endpoint = Endpoint(self.backend, self.settings, self.budget)
        return self._endpoint

    # -- asking -------------------------------------------------------------------------------

    def _begin(self, jobs: list[Job]) -> None:
        done = jobs[0].done
        errand = self._errands.setdefault(id(done), Errand(done))
        for job in jobs:
            errand.tasks.add(self._loop.create_task(self._carry(job, errand)))

    async def _carry(self, job: Job, errand: Errand) -> None:
        endpoint = None
        try:
            endpoint = self._asking()
            asked = await endpoint.ask(job)
            if self.budget is not None:
                asked = self.budget.priced(job.model, asked)
            self._keeping.keep(Answered(errand, endpoint, job, asked))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # handed to the caller's thread, which raises it
            self._stop(endpoint, error)
            if self.claims is not None:
                self.claims.give([job.key], errand.done)
            errand.fail(error)
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

    def _lose(self, group: list[Answered], error: BaseException) -> None:
        """A paid answer could not be kept: buy no more."""
        for answered in group:
            self._worth_waiting &= answered.endpoint is not self._endpoint
            self._stop(answered.endpoint, error)
            answered.errand.fail(error)

    async def _recall(self, owner: int) -> None:
        errand = self._errands.get(owner)
        if errand is not None:
            if errand.failed and self._worth_waiting:
                await self._drain(errand)
            await self._cancel(errand.tasks)
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

    async def _drain(self, errand: Errand) -> None:
        """Let come in what is in flight; who waits, for a place or before a retry, holds none."""
        began, said = self._loop.time(), False
        while errand.tasks and self.in_flight and (waited := self._loop.time() - began) < self._drain_s:
            if waited > NOTICE_S and not said:
                said = True
                self.say(f"stops, and waits for {self.in_flight} answers in flight: they are paid for")
            await asyncio.wait(errand.tasks, timeout=0.02)

    @staticmethod
    async def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
        tasks = list(tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _end(self) -> None:
        try:
            # A server that does not end in time ends with this process: its standard input does.
            with suppress(TimeoutError):
                await asyncio.wait_for(self._shut(), STOP_S)
        finally:
            # Whoever is interrupted waits no more, but what it began goes on: a recall, a server's start.
            if rest := asyncio.all_tasks() - {asyncio.current_task()}:
                _, late = await asyncio.wait(rest, timeout=LAST_S)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._cancel(late), LAST_S)

    async def _shut(self) -> None:
        closed = ClientClosed()
        for errand in list(self._errands.values()):
            if errand.tasks:
                errand.fail(closed)
            await self._cancel(errand.tasks)
        await self._cancel(self._embedding)
        while self._keeping.busy or self._storing:
            await asyncio.sleep(0.001)
        if self._endpoint is not None:
            await self._endpoint.close()
        await self.backend.close()
