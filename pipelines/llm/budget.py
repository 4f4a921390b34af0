"""What one client may spend: each question's most is held before it leaves, its bill settles it.

Law: no cap is exceeded. A question leaves only with its bound held in the ledger (`spending`), under
all caps at once. It is charged what the seller bills; where no bill is known though there may be one
(a time-out, a broken connection or body, a cancelled asker), its whole bound. A killed client's questions
are settled by the store, and so many of the others as it can have had in flight are paid in full. One that
cannot fit is over budget, and is asked when a cap is raised; one that would fit if what is under way
came out cheaper waits for that.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from pipelines.errors import ConfigError, StageError
from pipelines.llm.answer import Failure
from pipelines.llm.caps import Cap, Caps
from pipelines.llm.job import Job
from pipelines.llm.prices import NANO, Amount, Price, charge, most, paid, price_of
from pipelines.llm.request import Request, named_request
from pipelines.llm.spending import Entry, Spending, month_of
from pipelines.llm.stops import ClientClosed
from pipelines.llm.uninterrupted import uninterrupted
from pipelines.llm.wishes import NOTHING, Limit, Place, Verdict, Word

if TYPE_CHECKING:
    from pipelines.llm.job import Asked
    from pipelines.llm.store import Kept

RUN_VARIABLE = "HEADRACE_RUN_ID"
LOST = frozenset({Failure.TIMEOUT, Failure.NETWORK, Failure.BROKEN_BODY})  # billed, if they left
UNBILLED = frozenset(
    {Failure.BAD_REQUEST, Failure.OVERLOADED, Failure.SERVER, Failure.HTML, Failure.OVER_BUDGET}
)
WAIT_S = 0.25  # between two looks at what others spend
FLUSH, FLUSH_S = 256, 1.0  # settled questions, and seconds, between two writes, if nothing else writes
_THIS_PROCESS = uuid.uuid4().hex


@dataclass(slots=True)
class _Hold:
    """A question under way. `held`: in the ledger; `sent`: there may be a bill that is not known."""

    job: Job
    places: Sequence[Place]
    amount: Amount
    held: bool = True
    sent: bool = False


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Budget:
    """The budget of one stage's client. `ours`: the models run here, so they are free unless priced.

    `in_flight`: most of its questions that can be with the seller at once, None: all; `stored` looks up what
    answers the store has, to settle what a dead client held. Without prices and caps it does nothing and
    makes no file. Safe to use from several threads.
    """

    prices: Mapping[str, Price]
    caps: Caps
    path: Path
    stage: str = ""
    ours: bool = False
    clock: Callable[[], datetime] = now
    in_flight: int | None = None
    stored: Callable[[Iterable[str]], Mapping[str, Kept]] = lambda _: {}
    _ledger: Spending | None = None
    _holds: dict[tuple[str, int], _Hold] = field(default_factory=dict)
    _waiting: list[Job] = field(default_factory=list)
    _settled: list[Entry] = field(default_factory=list)
    _flushed_at: float = field(default_factory=time.monotonic)
    _ended: bool = False
    _closed: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def counts(self) -> bool:
        """Whether anything is priced or capped."""
        return bool(self.prices) or bool(self.caps)

    @property
    def waiting(self) -> bool:
        """Whether any question waits for what is under way to come out cheaper."""
        return bool(self._waiting)

    @uninterrupted
    def reserve(self, jobs: Sequence[Job]) -> tuple[list[Job], list[tuple[Job, str]]]:
        """(jobs that may leave, jobs over budget with the cap in the way); the others wait for `again`.

        Raises ConfigError, before any of them leaves, when a cap is in USD and a model has no price.
        """
        with self._lock:
            if not self.counts:
                return list(jobs), []
            if not self.caps:
                places = self._places()
                self._holds |= {_name(j): _Hold(j, places, self._most(j), held=False) for j in jobs}
                return list(jobs), []
            for job in jobs:
                self._refuse_unpriced(job.model)
            self._waiting += jobs
            return self.again()

    @uninterrupted
    def again(self) -> tuple[list[Job], list[tuple[Job, str]]]:
        """`reserve` once more for those that wait."""
        with self._lock:
            self.flush()
            jobs, self._waiting = self._waiting, []
            if not jobs:
                return [], []
            wishes, places = {job.key: self._most(job) for job in jobs}, self._places()
            within, over = [], []
            for job, verdict in zip(jobs, self._ask(places, wishes), strict=True):
                if verdict.word is Word.WITHIN:
                    self._holds[_name(job)] = _Hold(job, places, wishes[job.key])
                    within.append(job)
                elif verdict.word is Word.OVER:
                    over.append((job, verdict.cap))
                else:
                    self._waiting.append(job)
            return within, over

    def sent(self, job: Job) -> None:
        """An attempt leaves: from now there may be a bill."""
        if (hold := self._holds.get(_name(job))) is not None:
            hold.sent = True

    def ended(self, job: Job, kept: Kept, *, left: bool) -> None:
        """How the attempt ended; `left`: it reached a connection, so it may be billed."""
        hold = self._holds.get(_name(job))
        if hold is not None and (not left or kept.failure in UNBILLED):
            hold.sent = False

    def lost(self, job: Job) -> bool:
        """Whether there may be a bill for an attempt of which nothing came."""
        hold = self._holds.get(_name(job))
        return hold is not None and hold.sent

    @uninterrupted
    def retry(self, job: Job) -> str:
        """Pay the lost attempt of `job` in full, and hold for the next; the cap in its way, or ""."""
        with self._lock:
            hold = self._holds.pop(_name(job))
            held = hold.amount if hold.held else NOTHING
            self._settled.append(Entry(job.key, hold.places, held, hold.amount))
            if not self.caps:
                self._holds[_name(job)] = _Hold(job, hold.places, hold.amount, held=False)
                return ""
            self.flush()
            places = self._places()
            verdict = self._ask(places, {job.key: hold.amount})[0]
            if verdict.word is Word.WITHIN:
                self._holds[_name(job)] = _Hold(job, places, hold.amount)
            return verdict.cap

    def priced(self, model: str, asked: Asked) -> Asked:
        """The end of asking with what it costs in its usage, as the store keeps it."""
        kept = asked.reply.kept
        usage = replace(kept.usage, cost_usd=charge(self._price(model), kept.usage).nano / NANO)
        return replace(asked, reply=replace(asked.reply, kept=replace(kept, usage=usage)))

    @contextmanager
    def paying(self, model: str, prompts: Sequence[str]) -> Iterator[Job]:
        """A batch of texts to embed, as one question: held for on the way in, to be settled inside.

        Waits while it would fit if others came out cheaper. Raises StageError when it cannot fit.
        """
        request = Request("embedding", model, prompt="\n".join(prompts))
        named = named_request(request, model, "")
        job = Job(named.key, named.canonical, "", model, request, SimpleQueue())
        try:
            while (verdict := self._hold_alone(job)).word is not Word.WITHIN:
                if verdict.word is Word.OVER:
                    what = f"embeddings of {model} are over budget: {verdict.cap}"
                    raise StageError(what, where=self.stage or None, cure="raise the cap and run again")
                time.sleep(WAIT_S)
            yield job
        finally:
            self.recall(job.done)
            self.flush()

    @uninterrupted
    def _hold_alone(self, job: Job) -> Verdict:
        """Hold for one question if it fits; those that wait for `again` are left to whoever asked them."""
        with self._lock:
            wish, places = self._most(job), self._places()
            if not self.caps:
                self._holds[_name(job)] = _Hold(job, places, wish, held=False)
                return Verdict(Word.WITHIN)
            self._refuse_unpriced(job.model)
            self.flush()
            verdict = self._ask(places, {job.key: wish})[0]
            if verdict.word is Word.WITHIN:
                self._holds[_name(job)] = _Hold(job, places, wish)
            return verdict

    @uninterrupted
    def settle(self, key: str, done: object, kept: Kept) -> float:
        """Charge the end of the question `key` that reports to `done`; its usage may be `priced`.

        Returns what it came to, in USD. It is written when `flush_when_due` or another write says so.
        """
        with self._lock:
            hold = self._holds.pop((key, id(done)), None)
            if hold is None:
                return 0.0
            usage = kept.usage
            if usage.prompt_tokens or usage.completion_tokens or usage.cost_usd:
                cost = charge(self._price(hold.job.model), usage)
                cost = replace(cost, nano=round(usage.cost_usd * NANO) or cost.nano)
            else:
                lost = hold.sent and kept.failure is Failure.OVER_BUDGET  # in a call with others
                free = (kept.failure in UNBILLED and not lost) or (kept.failure in LOST and not hold.sent)
                cost = NOTHING if free else hold.amount
            self._note(hold, cost)
            return cost.nano / NANO

    def _note(self, hold: _Hold, cost: Amount) -> None:
        if (held := hold.amount if hold.held else NOTHING) or cost:
            self._settled.append(Entry(hold.job.key, hold.places, held, cost))

    def flush_when_due(self) -> None:
        """Write it when it is much, or a while ago."""
        if len(self._settled) >= FLUSH or time.monotonic() - self._flushed_at > FLUSH_S:
            self.flush()  # others may wait for what is no longer held

    @uninterrupted
    def recall(self, done: object) -> None:
        """Give up on the questions that report to `done`: free if they never left, else paid in full.

        It is written with what comes next.
        """
        with self._lock:
            self._waiting = [w for w in self._waiting if w.done is not done]
            for name in [n for n in self._holds if n[1] == id(done)]:
                hold = self._holds.pop(name)
                self._note(hold, hold.amount if hold.sent else NOTHING)

    @uninterrupted
    def flush(self) -> None:
        """Write what was settled to the ledger."""
        with self._lock:
            self._flushed_at = time.monotonic()
            if self._settled and not self._closed:
                self._open().settle(self._settled)
                self._settled = []

    def end(self) -> None:
        """Hold for nothing more: whoever wants that gets ClientClosed, for what it meets next is no cap."""
        self._ended = True

    @uninterrupted
    def close(self) -> None:
        """Give back what never left; what may have been billed is spent. Whoever waits gets ClientClosed."""
        with self._lock:
            self.end()
            for done in {id(job.done): job.done for job in self._waiting}.values():
                done.put(ClientClosed())
            for hold in self._holds.values():
                self._note(hold, hold.amount if hold.sent else NOTHING)
            self._holds.clear()
            self._waiting.clear()
            try:
                self.flush()
            finally:
                self._closed, ledger, self._ledger = True, self._ledger, None
                if ledger is not None:
                    ledger.close()

    def _refuse_unpriced(self, model: str) -> None:
        if self.caps.money and self._price(model) is None:
            raise ConfigError(
                f"model {model!r} has no price, and a cap in USD is set",
                where="params.yaml: llm.prices",
                cure=f"add {model}: {{prompt: ..., completion: ...}}, USD per million tokens, 0 if free",
            )

    def _price(self, model: str) -> Price | None:
        return price_of(self.prices, model, ours=self.ours)

    def _most(self, job: Job) -> Amount:
        return charge(self._price(job.model), most(job.request, job.canonical))

    def _ask(self, places: Sequence[Place], wishes: Mapping[str, Amount]) -> list[Verdict]:
        if self._ended:
            raise ClientClosed
        caps = self.caps.named
        limits = [Limit(p, caps[p[0]].usd, caps[p[0]].tokens) for p in places if caps[p[0]] != Cap()]
        return self._open().reserve(places, limits, wishes)

    def _places(self) -> list[Place]:
        """Whose sums a question counts in, now."""
        run = os.environ.get(RUN_VARIABLE) or _THIS_PROCESS
        return [("stage", f"{run} {self.stage}"), ("run", run), month_of(self.clock())]

    def _open(self) -> Spending:
        if self._ledger is None:
            self._ledger = Spending(self.path, self.in_flight, self._bills)
        return self._ledger

    def _bills(self, keys: Sequence[str]) -> dict[str, Amount]:
        """What the stored answers to these questions cost; one that says no tokens has no bill."""
        bills = {key: paid(kept.usage) for key, kept in self.stored(keys).items()}
        return {key: bill for key, bill in bills.items() if bill}


def _name(job: Job) -> tuple[str, int]:
    return job.key, id(job.done)


def over_budget(cap: str) -> Kept:
    """The end of a question that no cap leaves room for."""
    from pipelines.llm.store import Kept

    return Kept("", failure=Failure.OVER_BUDGET, detail=cap)
