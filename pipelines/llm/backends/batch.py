"""Carries requests in batches: gathers them, hands them in, watches, and hands out what comes back.

Law: as the courier's: an answer is handed out only after its commit. Besides, whoever leaves early
leaves the batches at work and recorded; a later run finds its questions in them. What a batch left
over (expired, cancelled, lines that failed for a passing cause) goes on by `rest`, once the batch
has ended and not before. One that its maker has no room for is handed in again when another has ended, or
after a wait, for `patience_s`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from queue import SimpleQueue
from typing import TYPE_CHECKING

from pipelines.errors import ConfigError
from pipelines.llm.answer import Failure
from pipelines.llm.backends.batch_desk import Desk
from pipelines.llm.backends.batch_ledger import Batch, Ledger, ledger_path
from pipelines.llm.backends.batch_office import Office
from pipelines.llm.backends.batch_taking import attend
from pipelines.llm.backends.batch_watch import FULL, Seen, Watch
from pipelines.llm.budget import over_budget
from pipelines.llm.patience import Patience
from pipelines.llm.stops import ClientClosed
from pipelines.llm.store import Kept

if TYPE_CHECKING:
    from pipelines.llm.budget import Budget
    from pipelines.llm.courier import Courier, Keep
    from pipelines.llm.job import Handed, Job
    from pipelines.llm.settings import Settings
    from pipelines.llm.store import Store
    from pipelines.llm.tally import Spent

STOP_S = 30.0
LEAVE_S = 5.0  # a look at a batch may hang; nothing is lost by leaving it
LOST = frozenset({"expired", "cancelled"})  # the questions are good, time ran out


class BatchCarrier:
    """A thread over one office. `desk` is made in it; `rest` asks what batches leave, None: nobody.

    `beat` is called whenever batches were looked at: others who wait for their answers see that we get on.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        spent: Spent,
        desk: Callable[[], Desk],
        rest: Courier | None,
        beat: Callable[[], None],
        budget: Budget | None = None,
    ) -> None:
        self._settings, self._store, self._spent, self._beat = settings, store, spent, beat
        self._budget = budget
        self._desk, self._rest = desk, rest
        self.window = self.limit = settings.batch.window
        self._changed = threading.Condition()
        self._held: list[Job] = []
        self._waiting: dict[str, list[Job]] = {}
        self._flushed = self._closing = False
        self._broken: BaseException | None = None
        self._asks: dict[str, set[str]] = {}  # uid of a batch -> keys that someone here waits for
        self._watches: dict[str, Watch] = {}
        self._later: list[Job] = []  # for `rest`, when no batch is at work
        self._crowded = False  # there was no room for a batch: one is out at a time, until one was run
        self._not_before = 0.0  # is a batch handed in
        self._most = settings.batch.window  # at once: less where there was no room for as many
        self._for_room = self._patience()
        self._alone = False
        self._thread = threading.Thread(target=self._run, name="headrace-batches", daemon=True)
        self._thread.start()

    @property
    def in_flight(self) -> int:
        """Questions that are gathered or out and waited for here."""
        return len(self._waiting) + (0 if self._rest is None else self._rest.in_flight)

    def send(self, jobs: list[Job]) -> None:
        """Gather jobs; returns at once."""
        with self._changed:
            if self._broken is not None:
                jobs[0].done.put(self._broken)
                return
            for job in jobs:
                self._waiting.setdefault(job.key, []).append(job)
            self._held += jobs
            self._changed.notify()

    def flush(self) -> None:
        """No more jobs come for now: hand in what is gathered."""
        with self._changed:
            self._flushed = True
            self._changed.notify()

    def recall(self, done: SimpleQueue[Handed]) -> None:
        """Nobody reads `done` any more: what is gathered for it is not sent; what is out stays out."""
        self._forget(done)
        if self._rest is not None:
            self._rest.recall(done)

    def recall_later(self, done: SimpleQueue[Handed], then: Callable[[], None]) -> None:
        """Do so without waiting; see `Courier.recall_later`."""
        self._forget(done)
        if self._rest is None:
            then()
        else:
            self._rest.recall_later(done, then)

    def _forget(self, done: SimpleQueue[Handed]) -> None:
        with self._changed:
            self._held = [job for job in self._held if job.done is not done]
            for key, jobs in list(self._waiting.items()):
                if others := [job for job in jobs if job.done is not done]:
                    self._waiting[key] = others
                else:
                    del self._waiting[key]
            self._later = [job for job in self._later if job.done is not done]

    def embed(self, model: str, prompts: list[str], keep: Keep) -> None:
        """Vectors of one batch of texts, asked one by one: they are wanted at once."""
        if self._rest is None:
            raise ConfigError(f"no endpoint for embeddings of {model}", cure="set llm.batch.rest: single")
        self._rest.embed(model, prompts, keep)

    def close(self) -> None:
        """Leave the batches at work, and stop."""
        with self._changed:
            self._closing = True
            self._fail(ClientClosed())
            self._changed.notify()
        try:
            self._thread.join(STOP_S if self._alone else LEAVE_S)  # our own processes end before we do
        finally:
            if self._rest is not None:
                self._rest.close()

    def is_current(self) -> bool:
        """See `Courier.is_current`."""
        return threading.current_thread() is self._thread or (
            self._rest is not None and self._rest.is_current()
        )

    def _run(self) -> None:
        try:
            ledger = Ledger(ledger_path(self._store.path))
            desk = self._desk()
            self._alone = desk.alone
            try:
                self._work(Office(desk, ledger, self._store, self._settings, lambda: self._closing))
            finally:
                desk.close()
                ledger.close()
        except BaseException as error:  # handed to the callers' threads, which raise it
            with self._changed:
                self._broken = error
                self._fail(error)

    def _work(self, office: Office) -> None:
        while (jobs := self._next()) is not None:
            if jobs:
                self._hand_in(office, jobs)
            self._look_round(office)
            self._go_on()
            self._beat()

    def _next(self) -> list[Job] | None:
        """Jobs to hand in; none when it is time to look at a batch; None when all is over."""
        with self._changed:
            while not self._closing:
                # Half a window: the other half may be out, and nobody gathers more until it is back.
                ready = self._held and (self._flushed or len(self._held) >= self.window // 2)
                ready = ready and not (self._crowded and self._asks)
                if ready and self._not_before <= time.time():
                    jobs, self._held = self._held[: self._most], self._held[self._most :]
                    self._flushed = self._flushed and bool(self._held)
                    return jobs
                looks = [w.due for w in self._watches.values()]
                if looks and min(looks) <= time.time():
                    return []
                due = min([*looks, *([self._not_before] if ready else [])], default=None)
                self._changed.wait(None if due is None else due - time.time())
            return None

    def _hand_in(self, office: Office, jobs: list[Job]) -> None:
        if self._budget is not None:
            for job in jobs:
                self._budget.sent(job)  # a batch goes on without us, and is billed
        sent = office.send(jobs)
        for key, uid in sent.out.items():
            self._asks.setdefault(uid, set()).add(key)
        self._deliver(sent.answered)
        refused = {key: Kept("", failure=Failure.BAD_REQUEST, detail=why) for key, why in sent.unfit.items()}
        self._pass_on(refused)

    def _look_round(self, office: Office) -> None:
        """Look at every batch that is due, also at those that nobody here waits for."""
        opened = {batch.uid: batch for batch in office.open()}
        if any(uid in opened and not opened[uid].id for uid in self._asks):
            office.recover()  # another process is sending it, or died over it
            opened = {batch.uid: batch for batch in office.open()}
        for uid, batch in opened.items():
            if not batch.id:
                continue
            watch = self._watches.setdefault(uid, office.watch(batch))
            if watch.due <= time.time() and not self._closing:
                self._look(office, batch, watch)
        for uid in self._asks.keys() - opened.keys():
            self._ended_elsewhere(office, uid)
        for uid in self._watches.keys() - opened.keys():
            del self._watches[uid]

    def _ended_elsewhere(self, office: Office, uid: str) -> None:
        """Another process took a batch, or found that it was never made."""
        keys = self._asks.pop(uid)
        ended = {batch.uid: batch.status for batch in office.ledger.batches(open_only=False)}
        if ended.get(uid) == FULL:
            self._wait_for_room(keys)
        elif uid in ended:
            reason = f"batch {uid} was ended by another process without this answer"
            self._settle(office, keys, Kept("", failure=Failure.SERVER, detail=reason))
        else:
            self._hold_again(keys)

    def _look(self, office: Office, batch: Batch, watch: Watch) -> None:
        if (taken := attend(office, batch, watch, self._deliver)) is None:
            return
        del self._watches[batch.uid]
        self._deliver(taken.failed)
        left = self._asks.pop(batch.uid, set())
        if taken.seen.status == FULL:
            self._wait_for_room(left)
            return
        self._crowded, self._for_room = False, self._patience()
        self._most = min(2 * self._most, self.window)
        if taken.seen.status == "interrupted":
            self._hold_again(left)
        else:
            self._settle(office, left & taken.lost, _unread(batch, taken.seen))
            self._settle(office, left - taken.lost, _left(batch, taken.seen))

    def _wait_for_room(self, keys: set[str]) -> None:
        """Hold `keys`, which were never run, until no batch of ours is out.

        Where none was, they are held for a while, and half as many are handed in; all end when patience does.
        """
        with self._changed:
            jobs = [job for key in keys for job in self._waiting.get(key, [])]
        if not jobs:
            return
        full = Kept("", failure=Failure.OVERLOADED, detail="there was no room for its batch")
        if self._budget is not None:
            for job in jobs:
                self._budget.ended(job, full, left=False)  # it is handed in anew, if at all
        self._crowded = True
        self._hold_again(keys)
        if self._asks:
            return
        self._most = max(1, min(self._most, len(keys)) // 2)
        wait_s = self._for_room.after_refusal(None, random.random())
        self._not_before = time.time() + (wait_s or 0.0)
        if wait_s is None:
            with self._changed:
                held, self._held = {job.key for job in self._held}, []
            self._deliver(dict.fromkeys(held, full))

    def _patience(self) -> Patience:
        return Patience(self._settings.retries, self._settings.patience_s)

    def _settle(self, office: Office, keys: set[str], left: Kept) -> None:
        """A batch is over: another process may have its answers, or have what it left out again."""
        with self._changed:
            keys &= self._waiting.keys()
        answered = self._store.answers(keys)
        self._deliver(answered)
        again = office.ledger.out(keys - answered.keys())
        for key, other in again.items():
            self._asks.setdefault(other, set()).add(key)
        self._pass_on(dict.fromkeys(keys - answered.keys() - again.keys(), left))

    def _deliver(self, answers: Mapping[str, Kept]) -> None:
        """Hand out what is committed, or final, to those who wait for it."""
        handed: dict[int, tuple[SimpleQueue[Handed], list[tuple[str, Kept]]]] = {}
        with self._changed:
            for key, kept in answers.items():
                jobs = self._waiting.pop(key, [])
                if jobs:
                    self._spent.count(kept, 1)
                for job in jobs:
                    handed.setdefault(id(job.done), (job.done, []))[1].append((key, kept))
        for done, ends in handed.values():
            done.put(ends)

    def _pass_on(self, left: Mapping[str, Kept]) -> None:
        """What no batch answered goes on by `rest`; without it, it ends as `left` says."""
        if self._rest is None:
            self._deliver(left)
            return
        unpaid = {key: over_budget(cap) for key, kept in left.items() if (cap := self._pay(key, kept))}
        self._deliver(unpaid)
        with self._changed:
            self._later += [job for key in left for job in self._waiting.pop(key, [])]

    def _pay(self, key: str, kept: Kept) -> str:
        """Pay in full for an answer that was lost, before it is asked again; the cap in the way, or ""."""
        if self._budget is None or kept.failure is not Failure.BROKEN_BODY:
            return ""
        with self._changed:
            jobs = [job for job in self._waiting.get(key, []) if self._budget.lost(job)]
        return self._budget.retry(jobs[0]) if jobs else ""

    def _go_on(self) -> None:
        """Send to `rest` what it shall ask."""
        with self._changed:
            if not self._later or self._rest is None or (self._alone and self._asks):
                return
            jobs, self._later = self._later, []
        for done in {id(job.done): job.done for job in jobs}.values():
            self._rest.send([job for job in jobs if job.done is done])
        self._rest.flush()

    def _hold_again(self, keys: Iterable[str]) -> None:
        with self._changed:
            self._held += [job for key in keys for job in self._waiting.get(key, [])]
            self._flushed = True

    def _fail(self, error: BaseException) -> None:
        """Tell everyone who waits. Held under the lock."""
        jobs = [job for jobs in self._waiting.values() for job in jobs] + self._later
        for done in {id(job.done): job.done for job in jobs}.values():
            done.put(error)
        self._waiting.clear()
        self._later.clear()
        self._held.clear()


def _left(batch: Batch, seen: Seen) -> Kept:
    failure = Failure.TIMEOUT if seen.status in LOST else Failure.SERVER
    said = f": {seen.said}" if seen.said else ""
    return Kept("", failure=failure, detail=f"batch {batch.id} ended as {seen.status} without this{said}")


def _unread(batch: Batch, seen: Seen) -> Kept:
    """The end of a question whose answer is billed and was lost."""
    return Kept("", failure=Failure.BROKEN_BODY, detail=f"batch {batch.id} is {seen.status}: {seen.said}")
