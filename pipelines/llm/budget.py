"""What one client may spend: each question's most is held before it leaves, its bill settles it.

Law: no cap is exceeded. A question leaves only with its bound held in the ledger (`spending`), under
all caps at once. It is charged what the seller bills; where no bill is known though there may be one
(a time-out, a broken connection or body, a cancelled or killed asker), its whole bound. One that
cannot fit is over budget, and is asked when a cap is raised; one that would fit if what is under way
came out cheaper waits for that.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from pipelines.errors import ConfigError
from pipelines.llm.answer import Failure, Usage
from pipelines.llm.prices import NANO, Amount, Price, charge, most, price_of
from pipelines.llm.spending import NOTHING, Limit, Place, Spending, Verdict, Word

if TYPE_CHECKING:
    from pipelines.llm.job import Job
    from pipelines.llm.store import Kept

RUN_VARIABLE = "HEADRACE_RUN_ID"
UNKNOWN_BILL = frozenset({Failure.TIMEOUT, Failure.NETWORK, Failure.BROKEN_BODY})
FLUSH = 256  # settled questions between two writes, if nothing else writes
_THIS_PROCESS = uuid.uuid4().hex


@dataclass(frozen=True)
class Cap:
    """The most that may be spent; None for no cap. Tokens are those of prompts and completions."""

    usd: float | None = None
    tokens: int | None = None


@dataclass(frozen=True)
class Caps:
    """Of one stage in one run, of all stages of a run, of a month (UTC) over one store."""

    stage: Cap = Cap()
    run: Cap = Cap()
    month: Cap = Cap()

    @property
    def named(self) -> dict[str, Cap]:
        return {"stage": self.stage, "run": self.run, "month": self.month}

    @property
    def money(self) -> bool:
        """Whether any of them is in USD."""
        return any(c.usd is not None for c in self.named.values())

    def __bool__(self) -> bool:
        return any(c != Cap() for c in self.named.values())


@dataclass(slots=True)
class _Hold:
    """What is held for one question; `sent` says that there may be a bill for it."""

    places: Sequence[Place]
    amount: Amount
    sent: bool = False


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Budget:
    """The budget of one stage's client. `ours`: the models run here, so they are free unless priced.

    Without prices and caps it does nothing and makes no file. Safe to use from several threads.
    """

    prices: Mapping[str, Price]
    caps: Caps
    path: Path
    stage: str = ""
    ours: bool = False
    clock: Callable[[], datetime] = now
    _ledger: Spending | None = None
    _holds: dict[tuple[str, int], _Hold] = field(default_factory=dict)
    _waiting: list[Job] = field(default_factory=list)
    _settled: list[tuple[Sequence[Place], Amount, Amount]] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def counts(self) -> bool:
        """Whether anything is priced or capped."""
        return bool(self.prices) or bool(self.caps)

    @property
    def waiting(self) -> bool:
        """Whether any question waits for what is under way to come out cheaper."""
        return bool(self._waiting)

    def reserve(self, jobs: Sequence[Job]) -> tuple[list[Job], list[tuple[Job, str]]]:
        """(jobs that may leave, jobs over budget with the cap in the way); the others wait for `again`.

        Raises ConfigError, before any of them leaves, when a cap is in USD and a model has no price.
        """
        if not self.caps:
            return list(jobs), []
        with self._lock:
            for job in jobs:
                self._refuse_unpriced(job.model)
            self._waiting += jobs
            return self.again()

    def again(self) -> tuple[list[Job], list[tuple[Job, str]]]:
        """`reserve` once more for those that wait."""
        with self._lock:
            self.flush()
            jobs, self._waiting = self._waiting, []
            if not jobs:
                return [], []
            wishes, places = [self._most(job) for job in jobs], self._places()
            within, over = [], []
            for job, wish, verdict in zip(jobs, wishes, self._ask(places, wishes), strict=True):
                if verdict.word is Word.WITHIN:
                    self._holds[_name(job)] = _Hold(places, wish)
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

    def retry(self, job: Job, failure: Failure | None) -> bool:
        """Whether an attempt that ended so may be followed by another: a lost bill is paid in full first."""
        with self._lock:
            hold = self._holds.get(_name(job))
            if hold is None:
                return True
            hold.sent = False
            if failure not in UNKNOWN_BILL:
                return True
            self._settled.append((hold.places, hold.amount, hold.amount))
            self.flush()
            places = self._places()
            if self._ask(places, [hold.amount])[0].word is Word.WITHIN:
                self._holds[_name(job)] = _Hold(places, hold.amount)
                return True
            del self._holds[_name(job)]
            return False

    def settle(self, job: Job, kept: Kept, *, unsent: bool = False) -> Usage:
        """Charge the final answer to `job`; its usage with the money in it. `unsent`: it never left."""
        usage = kept.usage
        told = bool(usage.prompt_tokens or usage.completion_tokens or usage.billed)
        cost = charge(self._price(job.model), usage)
        usage = replace(usage, cost_usd=cost.nano / NANO)
        with self._lock:
            hold = self._holds.pop(_name(job), None)
            if not told and not unsent and (kept.failure is None or kept.failure in UNKNOWN_BILL):
                cost = self._most(job)
            if self.counts and (hold is not None or cost):
                places = self._places() if hold is None else hold.places
                self._settled.append((places, NOTHING if hold is None else hold.amount, cost))
                if len(self._settled) >= FLUSH:
                    self.flush()
        return usage

    def release(self, job: Job) -> None:
        """Give up on `job`: free if it never left, else charged in full."""
        with self._lock:
            self._waiting = [w for w in self._waiting if _name(w) != _name(job)]
            if (hold := self._holds.pop(_name(job), None)) is not None:
                cost = hold.amount if hold.sent else NOTHING
                self._settled.append((hold.places, hold.amount, cost))

    def recall(self, done: SimpleQueue[Any]) -> None:
        """Forget the waiting jobs that report to `done`."""
        with self._lock:
            self._waiting = [w for w in self._waiting if w.done is not done]

    def flush(self) -> None:
        """Write what was settled to the ledger."""
        with self._lock:
            if self._settled:
                settled, self._settled = self._settled, []
                self._open().settle(settled)

    def close(self) -> None:
        """Give back what never left; what may have been billed is spent."""
        with self._lock:
            for name in list(self._holds):
                hold = self._holds.pop(name)
                self._settled.append((hold.places, hold.amount, hold.amount if hold.sent else NOTHING))
            self._waiting.clear()
            if self._settled or self._ledger is not None:
                self.flush()
                self._open().close()
                self._ledger = None

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

    def _ask(self, places: Sequence[Place], wishes: Sequence[Amount]) -> list[Verdict]:
        caps = self.caps.named
        limits = [Limit(p, caps[p[0]].usd, caps[p[0]].tokens) for p in places if caps[p[0]] != Cap()]
        return self._open().reserve(places, limits, wishes)

    def _places(self) -> list[Place]:
        """Whose sums a question counts in, now."""
        run = os.environ.get(RUN_VARIABLE) or _THIS_PROCESS
        month = self.clock().astimezone(UTC).strftime("%Y-%m")
        return [("stage", f"{run} {self.stage}"), ("run", run), ("month", month)]

    def _open(self) -> Spending:
        if self._ledger is None:
            self._ledger = Spending(self.path)
        return self._ledger


def _name(job: Job) -> tuple[str, int]:
    return job.key, id(job.done)


def ledger_path(store: Path) -> Path:
    """The ledger of spending beside a response store."""
    return store.with_name(f"{store.stem}.spending.sqlite")
