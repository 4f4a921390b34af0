"""One call of `Client.answers`: what it wants, what is under way for it, what comes back.

It pulls requests into a bounded window, looks up a batch of them in the store at once, and sends the rest
on. Equal requests in the window are asked once. Leaving early cancels what is in flight; what was answered
is stored.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby, islice
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from pipelines.errors import ConfigError, EnvironmentFault
from pipelines.llm.answer import Answer
from pipelines.llm.backends.batch_ledger import out_of, refuse_out
from pipelines.llm.backends.replay import Replay, miss
from pipelines.llm.collector import collecting
from pipelines.llm.job import Job
from pipelines.llm.models import model as registered
from pipelines.llm.opening import BATCHED
from pipelines.llm.request import Named, Request
from pipelines.llm.stops import ClientClosed
from pipelines.llm.waiting import Waiting

if TYPE_CHECKING:
    from pipelines.llm.client import Client
    from pipelines.llm.job import Handed
    from pipelines.llm.store import Kept

WINDOW = 256  # requests between the caller's iterator and its answers, if concurrency needs no more
PIECE = 4096  # requests looked up at once, however large the window
LOOK_S = 0.1  # between two looks at what others spend and store, while a question waits for them


class Answering:
    """The call's own state, and what it uses of its client."""

    def __init__(self, client: Client) -> None:
        self._client, self._settings, self._backend = client, client.settings, client.backend
        self._store, self._catalog, self._spent = client.store, client.catalog, client.spent
        self._claims, self._budget = client.claims, client.budget
        self._batched = client.settings.backend in BATCHED
        self._wait = Waiting(client.claims, client.say, client.settings.stalled_s)
        self._waiting: dict[str, list[Request]] = {}  # asked and not handed out, by key
        self._elsewhere: dict[str, Named] = {}  # those of them that another asks
        self._look_at = 0.0
        self._done: SimpleQueue[Handed] = SimpleQueue()

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """See `Client.answers`."""
        source, window, more = iter(requests), self._window(), True
        try:
            while more or self._waiting:
                if more and len(self._waiting) <= window * 3 // 4:
                    batch = list(islice(source, min(PIECE, window - len(self._waiting))))
                    more = bool(batch)
                    yield from self._take(batch)
                    if not more:
                        self._flush()
                elif self._waiting:
                    yield from self._look_again()
                    yield from self._handed(self._next())
        finally:
            courier = self._client.started  # another thread may close it
            if courier is not None and (collecting() or courier.is_current()):  # nothing may be waited for
                courier.recall_later(self._done, self._leave)
            elif not sys.is_finalizing() and self._client.life.is_here:  # else no other thread runs
                if courier is not None:
                    courier.recall(self._done)
                self._leave()

    def _window(self) -> int:
        """Most requests taken and not answered: of a batch, as many as its files shall hold."""
        return self._settings.batch.window if self._batched else max(WINDOW, 4 * self._settings.concurrency)

    def _take(self, batch: Sequence[Request]) -> Iterator[Answer]:
        """Send what the store lacks, then yield what it has."""
        if self._client.life.closed:
            raise ClientClosed
        named, unreadable = self._catalog.name(batch)
        named, kept = self._catalog.look_up(named)
        fresh = {}
        for n in named:
            if n.key in kept:
                continue
            if n.key not in self._waiting:
                fresh[n.key] = n
            self._waiting.setdefault(n.key, []).append(n.request)
        found = self._send(fresh, kept) if fresh else {}
        for n in named:
            if n.key in kept:
                self._spent.stored += 1
                yield self._catalog.answer(n.request, n.key, kept[n.key], stored=True, identity=n.identity)
        yield from self._found(found)
        yield from unreadable

    def _look_again(self) -> Iterator[Answer]:
        """What another process asks: take what it stored, and ask what it gave up."""
        if not self._elsewhere:
            self._wait.look(())
        elif time.monotonic() >= self._look_at:
            began = time.monotonic()
            self._wait.look(self._elsewhere)
            others, self._elsewhere = self._elsewhere, {}
            found = self._send(others, {})
            ended = time.monotonic()
            self._look_at = ended + max(LOOK_S, 10 * (ended - began))  # a tenth of the time at most
            yield from self._found(found)

    def _found(self, found: Mapping[str, Kept]) -> Iterator[Answer]:
        for key, kept in found.items():
            for request in self._waiting.pop(key):
                self._spent.stored += 1
                yield self._catalog.answer(request, key, kept, stored=True)

    def _handed(self, handed: Handed) -> Iterator[Answer]:
        """What came, charged and given back, as answers."""
        if isinstance(handed, BaseException):
            raise handed
        self._settle(handed)
        if self._budget is not None:
            self._budget.flush_when_due()
        self._claims.give((key for key, _ in handed), self._done)
        for key, kept in handed:
            fresh = [self._catalog.answer(r, key, kept, stored=False) for r in self._waiting.pop(key)]
            self._spent.unpriced += fresh[0].unpriced
            yield from fresh

    # -- sending ------------------------------------------------------------------------------

    def _send(self, fresh: dict[str, Named], kept: dict[str, Kept]) -> dict[str, Kept]:
        """Ask what nobody else asks; returns what was stored since it was looked for."""
        if isinstance(self._backend, Replay):
            missing = list(fresh.values())
            raise miss(self._store, missing, kept, self._backend.others(missing[0]))
        self._store.require_room()
        ours, found = self._claim(fresh)
        jobs = [Job(n.key, n.canonical, n.identity, n.model, n.request, self._done) for n in ours]
        for job in jobs:
            if self._backend.llama and job.request.kind == "chat" and registered(job.model).style == "base":
                cure = "ask it by completion, or choose a chat model"
                raise ConfigError(f"{job.model} is a base model and cannot chat", cure=cure)
        if not self._batched:
            refuse_out(self._store.path, (job.key for job in jobs))
        if not jobs:
            return found
        if self._budget is None:
            self._client.courier().send(jobs)
            return found
        # What is out in a batch is held for, or paid, by whoever handed it in: it is but to be fetched.
        out = out_of(self._store.path, [job.key for job in jobs]) if self._batched else {}
        if fetched := [job for job in jobs if job.key in out]:
            self._client.courier().send(fetched)
        self._let(*self._budget.reserve([job for job in jobs if job.key not in out]))
        return found

    def _claim(self, fresh: dict[str, Named]) -> tuple[list[Named], dict[str, Kept]]:
        """What is ours to ask, and what was stored before we could claim it; the rest is asked elsewhere."""
        claimed = self._claims.take(fresh, self._done, self._wait.stalled)
        found = self._store.answers(fresh)
        self._claims.give(claimed & found.keys(), self._done)
        left = [n for key, n in fresh.items() if key not in found]
        self._elsewhere |= {n.key: n for n in left if n.key not in claimed}
        return [n for n in left if n.key in claimed], found

    def _let(self, within: list[Job], over: list[tuple[Job, str]]) -> None:
        """Send what the budget lets go, and end what is over it; of any call of this client."""
        from pipelines.llm.budget import over_budget

        for job, cap in over:
            self._claims.give([job.key], job.done)
            job.done.put([(job.key, over_budget(cap))])
        for _, jobs in groupby(within, key=lambda job: id(job.done)):
            self._client.courier().send(list(jobs))

    # -- waiting ------------------------------------------------------------------------------

    def _next(self) -> Handed:
        """What comes next. What waits for money is tried again with all that comes, and now and then;
        what others ask is looked for now and then: nothing came, then, for a while."""
        broke = self._budget is not None and self._budget.waiting
        if self._budget is not None and broke:
            self._let(*self._budget.again())
            self._flush()  # nothing else comes before we have waited
        elif self._budget is not None and self._elsewhere:
            self._budget.flush()  # whom we wait for may wait for what we no longer hold
        if self._elsewhere:
            self._flush()  # or for what a carrier gathers
        if not self._waiting:
            return []
        if not broke and not self._elsewhere:
            return self._done.get()
        with suppress(Empty):
            return self._done.get(timeout=LOOK_S)
        return []

    def _flush(self) -> None:
        if (courier := self._client.started) is not None:
            courier.flush()

    # -- the end ------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Settle what came and nobody read; the budget gives up on the rest, and the claims end."""
        self._claims.give_all(self._done)
        if self._budget is None:
            return
        while not self._done.empty():
            self._settle(self._done.get_nowait())
        self._budget.recall(self._done)
        with suppress(EnvironmentFault):  # `close` tries once more, and tells
            self._budget.flush_when_due()

    def _settle(self, handed: Handed) -> None:
        """Charge what came."""
        if self._budget is not None and not isinstance(handed, BaseException):
            for key, kept in handed:
                self._budget.settle(key, self._done, kept)
