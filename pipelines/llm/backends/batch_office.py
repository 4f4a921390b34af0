"""Sends batches, and finds those that a process which died may have sent.

Law: no question is sent that is answered or out. Between the record that a batch will be sent and
the record of its id the desk is asked for the batch before anything is made again; what is not
found there after `settle_s` was never made, and its questions are free again.
"""

from __future__ import annotations

import math
import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pipelines.errors import ConfigError, HeadraceError
from pipelines.llm.backends.batch_desk import Desk, Passing
from pipelines.llm.backends.batch_file import line_of, packed
from pipelines.llm.backends.batch_ledger import Batch, Ledger, Line
from pipelines.llm.backends.batch_watch import Seen, Watch
from pipelines.llm.group_commit import media_refs
from pipelines.llm.media import MediaFault, has_media, read_media
from pipelines.llm.patience import Patience
from pipelines.llm.prices import NANO, charge, price_of
from pipelines.llm.protocol import LIMIT, request_body
from pipelines.llm.store import Kept, Store

if TYPE_CHECKING:
    from pipelines.llm.job import Job
    from pipelines.llm.settings import Settings

T = TypeVar("T")

SOON_S = 0.05


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of jobs that were to be sent: who has them now."""

    answered: Mapping[str, Kept]
    out: Mapping[str, str]  # key -> uid of the batch that asks it, made now or found
    unfit: Mapping[str, str]  # key -> why no batch takes it


@dataclass
class Office:
    """One desk, one ledger, one store. `stopped` says that nothing more may be begun."""

    desk: Desk
    ledger: Ledger
    store: Store
    settings: Settings
    stopped: Callable[[], bool] = lambda: False

    def send(self, jobs: Sequence[Job]) -> Sent:
        """Put `jobs` into batches. Raises HeadraceError for what stops the run."""
        with self.ledger.alone(self.stopped):
            self._recover()
            answered = self.store.answers({job.key for job in jobs})
            out = self.ledger.out({job.key for job in jobs})
            self._refuse_elsewhere(set(out.values()))
            fresh = {job.key: job for job in jobs if job.key not in answered and job.key not in out}
            unfit: dict[str, str] = {}
            for file in self._files(fresh.values(), unfit):
                if self.stopped():
                    break
                batch = self._plan([job for job, _ in file])
                out |= {job.key: batch.uid for job, _ in file}
                self._make(batch, [line for _, line in file])
        return Sent(answered, out, unfit)

    def recover(self) -> None:
        """Find the batches that a dead process may have made; forget those that it did not make."""
        with self.ledger.alone(self.stopped):
            self._recover()

    def _recover(self) -> None:
        self.desk.sweep({batch.uid for batch in self.open()})
        lost = [b for b in self.open() if not b.id]
        for batch in lost:
            if (seen := self._insist(partial(self._found, batch, batch.made_at))) is not None:
                self._made(batch, seen)
                continue
            with suppress(HeadraceError):  # a file that stays costs nothing
                self.desk.discard(batch)
            self.ledger.drop(batch.uid)

    def open(self) -> list[Batch]:
        """The batches at this desk that are not taken yet."""
        return [b for b in self.ledger.batches() if b.address == self.desk.address]

    def watch(self, batch: Batch) -> Watch:
        """The watch over a batch, in seconds of time.time(); one found late is looked at at once."""
        told = self.settings.batch
        deadline = batch.made_at + told.deadline_s if told.deadline_s else None
        first, most = (min(s, self.desk.look_s) for s in (told.poll_s, told.poll_max_s))
        return Watch(first, most, self.settings.patience_s, deadline, batch.made_at + first)

    def priced(self, batch: Batch, kept: Kept) -> Kept:
        """An answer with what it cost: as the seller bills, else by the price table, for a batch."""
        usage, ours = kept.usage, self.desk.alone
        if usage.billed:
            return kept
        single = charge(price_of(self.settings.prices, batch.model, ours=ours), usage)
        share = 1.0 if ours else self.settings.batch.price_share
        return replace(kept, usage=replace(usage, cost_usd=math.ceil(single.nano * share) / NANO))

    def _refuse_elsewhere(self, uids: set[str]) -> None:
        """A question that is out at another desk is paid for there. Raises ConfigError."""
        for batch in self.ledger.batches():
            if batch.uid in uids and batch.address != self.desk.address:
                raise ConfigError(
                    f"batch {batch.id or batch.uid} with these questions is at work at another address",
                    where=batch.address,
                    cure="set llm.base_url to it, or give it up: `headrace batches --cancel ID`",
                )

    def _files(self, jobs: Iterable[Job], unfit: dict[str, str]) -> Iterator[list[tuple[Job, bytes]]]:
        """Files of one model and one kind each; what no file can hold goes to `unfit`."""
        limit = self.settings.batch.max_mb * 1e6
        groups: dict[tuple[str, str], list[Job]] = {}
        for job in jobs:
            groups.setdefault((job.model, job.request.kind), []).append(job)
        for group in groups.values():
            yield from packed(self._lines(group, limit, unfit), self.desk.max_requests, limit)

    def _lines(self, jobs: Iterable[Job], limit: float, unfit: dict[str, str]) -> Iterator[tuple[Job, bytes]]:
        for job in jobs:
            kind = job.request.kind
            if kind not in self.desk.kinds:
                unfit[job.key] = f"{self.desk.address} takes no {kind} in a batch"
                continue
            try:
                media = read_media(job.request) if has_media(job.request) else None
            except MediaFault as fault:
                unfit[job.key] = str(fault)
                continue
            limit_as = LIMIT if self.desk.alone else self.settings.max_tokens_as
            body = request_body(job.canonical, job.model, self.desk.unsaid, media, max_tokens_as=limit_as)
            line = line_of(job.key, kind, body)
            if len(line) > limit:
                unfit[job.key] = f"its line has {len(line)} bytes, a file may have {limit:.0f}"
            else:
                yield job, line

    def _plan(self, jobs: Sequence[Job]) -> Batch:
        first = jobs[0]
        batch = Batch(
            uid=uuid.uuid4().hex,
            address=self.desk.address,
            kind=first.request.kind,
            model=first.model,
            requests=len(jobs),
            made_at=time.time(),
        )
        self.ledger.plan(batch, [_line(job) for job in jobs])
        return batch

    def _make(self, batch: Batch, lines: Sequence[bytes]) -> None:
        """Upload and create. A refusal frees the questions; what is uncertain stays recorded."""
        try:
            file = self._insist(lambda: self.desk.upload(batch.uid, lines))
            self.ledger.note(batch.uid, file=file)
            planned = next(b for b in self.open() if b.uid == batch.uid)
            self._made(planned, self._create(planned))
        except Passing:
            raise
        except HeadraceError:
            self.ledger.drop(batch.uid)
            raise

    def _create(self, batch: Batch) -> Seen:
        """Create, once: before it is tried again, what seemed to fail is looked for."""
        tried_at = 0.0

        def attempt() -> Seen:
            nonlocal tried_at
            if tried_at and (seen := self._found(batch, tried_at)) is not None:
                return seen
            tried_at = time.time()
            self.ledger.note(batch.uid, made_at=tried_at)
            return self.desk.create(batch)

        return self._insist(attempt)

    def _found(self, batch: Batch, tried_at: float) -> Seen | None:
        """The batch whose making was cut off at `tried_at`, if it shows within `settle_s`. Raises Passing."""
        settle = self.settings.batch.settle_s
        while True:
            over = time.time() >= tried_at + settle
            seen = self.desk.find(batch)
            if seen is not None or over:
                return seen
            self._rest(max(SOON_S, min(settle / 4, tried_at + settle - time.time())))
            if self.stopped():
                raise Passing("stopped while a batch is looked for")

    def _made(self, batch: Batch, seen: Seen) -> None:
        self.ledger.note(batch.uid, id=seen.id, status=seen.status)

    def _insist(self, act: Callable[[], T]) -> T:
        """Try again what fails for a passing cause, as often and as long as the settings allow."""
        patience = Patience(self.settings.retries, self.settings.patience_s)
        while True:
            try:
                return act()
            except Passing as error:
                wait_after = patience.after_refusal if error.refused else patience.after_failure
                wait_s = wait_after(error.wait_s, random.random())
                if wait_s is None or self.stopped():
                    raise
                self._rest(wait_s)

    def _rest(self, seconds: float) -> None:
        """Wait, but no longer than anyone still wants it."""
        until = time.monotonic() + min(seconds, self.settings.patience_s)
        while (left := until - time.monotonic()) > 0 and not self.stopped():
            time.sleep(min(left, 0.1))


def _line(job: Job) -> Line:
    asked = job.request
    return Line(job.key, job.identity, job.canonical, asked.row, asked.purpose, media_refs(asked))
