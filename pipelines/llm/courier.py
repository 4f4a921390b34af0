"""Carries requests to the backend and answers to the store, in an event loop of its own thread.

Law: an answer keeps its place among the requests in flight until it is committed, and is handed
out only then. So a kill repeats at most `concurrency` requests, and nothing handed out is lost.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from pipelines.errors import EnvironmentFault, StageError
from pipelines.llm.store import KEPT_FAILURES, Kept, Record, Store

if TYPE_CHECKING:
    from pipelines.llm.client import Spent
    from pipelines.llm.endpoint import Backend, Endpoint
    from pipelines.llm.job import Asked, Job
    from pipelines.llm.settings import Settings

STOP_S = 30.0


@dataclass(slots=True)
class _Unwritten:
    record: Record
    written: asyncio.Future[Kept]


@dataclass
class Courier:
    """The loop, its thread, the transport and the writer. Started by the first job."""

    backend: Backend
    settings: Settings
    store: Store
    spent: Spent
    _unwritten: list[_Unwritten] = field(default_factory=list)
    _writing: bool = False

    def __post_init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="headrace-llm", daemon=True)
        self._thread.start()
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="headrace-store")
        self._endpoint: Endpoint | None = None
        self._tasks: dict[int, set[asyncio.Task[None]]] = {}

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
        self.run(self._cancel(id(done)))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Cancel what is under way, write what was answered, stop the server and the thread."""
        if self._loop.is_closed():
            return
        try:
            asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(STOP_S)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STOP_S)
            self._disk.shutdown()
            if not self._thread.is_alive():
                self._loop.close()

    def embed(self, model: str, prompts: list[str]) -> list[list[float]]:
        """Vectors of one batch from an embeddings endpoint, in order. Raises EnvironmentFault."""
        vectors, reply = self.run(self._embed(model, prompts))
        if not vectors:
            what = f"the endpoint gives no embeddings of {model}: {reply.kept.detail}"
            raise EnvironmentFault(what, cure="see the endpoint's own log, then run again")
        given: list[list[float]] = vectors
        return given

    async def _embed(self, model: str, prompts: list[str]) -> Any:
        return await (await self.endpoint()).embed(model, prompts)

    async def endpoint(self) -> Endpoint:
        """Where to ask, made in the loop when first needed."""
        if self._endpoint is None:
            from pipelines.llm.endpoint import Endpoint

            self._endpoint = Endpoint(self.backend, self.settings)
        return self._endpoint

    def _begin(self, jobs: list[Job]) -> None:
        for job in jobs:
            task = self._loop.create_task(self._deliver(job))
            tasks = self._tasks.setdefault(id(job.done), set())
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _cancel(self, owner: int) -> None:
        tasks = list(self._tasks.pop(owner, ()))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _shut(self) -> None:
        for owner in list(self._tasks):
            await self._cancel(owner)
        while self._writing:
            await asyncio.sleep(0.001)
        if self._endpoint is not None:
            await self._endpoint.close()
        await self.backend.close()

    async def _deliver(self, job: Job) -> None:
        try:
            job.done.put((job.key, await self._ask(job)))
        except asyncio.CancelledError:
            job.done.put(StageError("the model client was closed while requests were in flight"))
            raise
        except BaseException as error:  # handed to the caller's thread, which raises it
            job.done.put(error)

    async def _ask(self, job: Job) -> Kept:
        endpoint = await self.endpoint()
        asked = await endpoint.ask(job)
        try:
            return await self._keep(job, asked)
        finally:
            endpoint.leave()

    async def _keep(self, job: Job, asked: Asked) -> Kept:
        """Commit the answer; a passing failure is handed back uncommitted, to be asked again."""
        kept = asked.reply.kept
        if kept.failure is None or kept.failure in KEPT_FAILURES:
            kept = await asyncio.shield(self._write(_record(job, asked)))
        self.spent.count(asked.reply.kept, len(asked.history))
        return kept

    def _write(self, record: Record) -> asyncio.Future[Kept]:
        written: asyncio.Future[Kept] = self._loop.create_future()
        self._unwritten.append(_Unwritten(record, written))
        if not self._writing:
            self._writing = True
            self._writer = self._loop.create_task(self._write_all())
        return written

    async def _write_all(self) -> None:
        """Commit in groups: all that came while the group before was being committed."""
        while self._unwritten:
            group, self._unwritten = self._unwritten, []
            try:
                kept = await self._loop.run_in_executor(self._disk, self.store.put, [u.record for u in group])
            except BaseException as error:
                if self._endpoint is not None:
                    self._endpoint.stop(error)  # a paid answer could not be kept: buy no more
                for u in group:
                    if not u.written.done():
                        u.written.set_exception(error)
                    u.written.exception()  # a cancelled asker leaves it unread
                continue
            for u in group:
                if not u.written.done():
                    u.written.set_result(kept[u.record.key])
        self._writing = False


def _record(job: Job, asked: Asked) -> Record:
    return Record(
        key=job.key,
        kind=job.request.kind,
        model=job.model,
        identity=job.identity,
        request=job.canonical,
        kept=asked.reply.kept,
        body=asked.reply.body,
        latency_ms=round(asked.seconds * 1000),
        attempts=len(asked.history),
        row=job.request.row,
        purpose=job.request.purpose,
    )
