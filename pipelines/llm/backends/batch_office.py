"""Sends batches, finds lost ones, and brings their answers into the store, row by row.

Law: no question is sent that is answered or out. Between the record that a batch will be sent and
the record of its id the desk is asked for the batch before anything is made again; what is not
found there after `settle_s` was never made, and its questions are free again. An answer is
committed before its batch is recorded as taken; taking one twice changes nothing.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from pipelines.errors import ConfigError, HeadraceError
from pipelines.llm.answer import TRANSIENT
from pipelines.llm.backends.batch_desk import Desk, Passing
from pipelines.llm.backends.batch_file import line_of, packed, read_line
from pipelines.llm.backends.batch_ledger import Batch, Ledger, Line
from pipelines.llm.backends.batch_watch import Seen, Watch
from pipelines.llm.protocol import request_body
from pipelines.llm.store import KEPT_FAILURES, Kept, Record, Store

if TYPE_CHECKING:
    from pipelines.llm.job import Job
    from pipelines.llm.protocol import Reply
    from pipelines.llm.settings import Settings

T = TypeVar("T")

GROUP = 500  # answers in one commit
FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.5, 30.0
SOON_S = 0.05


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of jobs that were to be sent: who has them now."""

    answered: Mapping[str, Kept]
    out: Mapping[str, str]  # key -> uid of the batch that asks it, made now or found
    unfit: Sequence[Job]  # no batch takes them: too long, or of another kind


@dataclass(frozen=True, slots=True)
class Taken:
    """The end of a batch: `failed` are final replies that are no answers; the rest is `left`."""

    failed: Mapping[str, Kept]
    status: str
    said: str


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
            self.recover()
            answered = self.store.answers({job.key for job in jobs})
            out = self.ledger.out({job.key for job in jobs})
            self._refuse_elsewhere(set(out.values()))
            fresh = {job.key: job for job in jobs if job.key not in answered and job.key not in out}
            unfit: list[Job] = []
            for file in self._files(fresh.values(), unfit):
                if self.stopped():
                    break
                batch = self._plan([job for job, _ in file])
                out |= {job.key: batch.uid for job, _ in file}
                self._make(batch, [line for _, line in file])
        return Sent(answered, out, unfit)

    def recover(self) -> None:
        """Find the batches that a dead process may have made; forget those that it did not. Held `alone`."""
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
        due = batch.made_at + told.poll_s
        return Watch(told.poll_s, told.poll_max_s, self.settings.patience_s, deadline, due)

    def look(self, batch: Batch) -> Seen:
        """How a batch stands, recorded. Raises Passing."""
        seen = self.desk.look(batch)
        self.ledger.note(batch.uid, status=seen.status, done=seen.done, failed=seen.failed, said=seen.said)
        return seen

    def take(self, batch: Batch, seen: Seen, hand: Callable[[Mapping[str, Kept]], None]) -> Taken:
        """Bring an ended batch's answers into the store; `hand` gets them, committed. Raises Passing."""
        failed: dict[str, Kept] = {}
        unknown, done = 0, 0
        lines = self.desk.lines(seen)
        while group := list(islice(lines, GROUP)):
            replies = _replies(group, batch.kind)
            known = self.ledger.lines(batch.uid, (key for key in replies if _is_key(key)))
            unknown += sum(key not in known for key in replies)
            records = []
            for key, line in known.items():
                if (kept := replies[key].kept).failure is None or kept.failure in KEPT_FAILURES:
                    records.append(_record(batch, line, replies[key]))
                elif kept.failure not in TRANSIENT:
                    failed[key] = kept
            if records:
                done += len(records)
                hand(self.store.put(records))
        self.ledger.end(batch.uid, status=seen.status, done=done, unknown=unknown, said=seen.said)
        return Taken(failed, seen.status, seen.said)

    def _refuse_elsewhere(self, uids: set[str]) -> None:
        """A question that is out at another desk is paid for there. Raises ConfigError."""
        for batch in self.ledger.batches():
            if batch.uid in uids and batch.address != self.desk.address:
                raise ConfigError(
                    f"batch {batch.id or batch.uid} with these questions is at work at another address",
                    where=batch.address,
                    cure="set llm.base_url to it, or give it up: `headrace batches --cancel ID`",
                )

    def _files(self, jobs: Iterable[Job], unfit: list[Job]) -> Iterator[list[tuple[Job, bytes]]]:
        """Files of one model and one kind each; jobs that no file can hold go to `unfit`."""
        limit = self.settings.batch.max_mb * 1e6
        groups: dict[tuple[str, str], list[Job]] = {}
        for job in jobs:
            groups.setdefault((job.model, job.request.kind), []).append(job)
        for (_, kind), group in groups.items():
            if kind not in self.desk.kinds:
                unfit += group
                continue
            lined = ((j, line_of(j.key, kind, self._body(j))) for j in group)
            yield from packed(_fitting(lined, limit, unfit), self.desk.max_requests, limit)

    def _body(self, job: Job) -> bytes:
        return request_body(job.canonical, job.model, self.desk.unsaid)

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
        lines = [Line(j.key, j.identity, j.canonical, j.request.row, j.request.purpose) for j in jobs]
        self.ledger.plan(batch, lines)
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
        waited, failed = 0.0, 0
        while True:
            try:
                return act()
            except Passing as error:
                failed += error.wait_s is None
                backoff = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2.0**failed) * (0.5 + random.random() / 2)
                wait = backoff if error.wait_s is None else error.wait_s
                waited += wait
                if failed > self.settings.retries or waited > self.settings.patience_s or self.stopped():
                    raise
                self._rest(wait)

    def _rest(self, seconds: float) -> None:
        """Wait, but no longer than anyone still wants it."""
        until = time.monotonic() + min(seconds, self.settings.patience_s)
        while (left := until - time.monotonic()) > 0 and not self.stopped():
            time.sleep(min(left, 0.1))


def _fitting(
    lined: Iterable[tuple[Job, bytes]], limit: float, unfit: list[Job]
) -> Iterator[tuple[Job, bytes]]:
    for job, line in lined:
        if len(line) > limit:
            unfit.append(job)
        else:
            yield job, line


def _replies(group: Iterable[bytes], kind: str) -> dict[str, Reply]:
    """{custom_id: reply} of the lines that can be read; of a key that comes twice, an answer."""
    replies: dict[str, Reply] = {}
    for raw in group:
        if (read := read_line(raw, kind)) is None:
            continue
        key, reply = read
        if key not in replies or (replies[key].kept.failure is not None and reply.kept.failure is None):
            replies[key] = reply
    return replies


def _record(batch: Batch, line: Line, reply: Reply) -> Record:
    return Record(
        key=line.key,
        kind=batch.kind,
        model=batch.model,
        identity=line.identity,
        request=line.request,
        kept=reply.kept,
        body=reply.body,
        row=line.row,
        purpose=line.purpose,
    )


def _is_key(text: str) -> bool:
    return len(text) == 64 and all(c in "0123456789abcdef" for c in text)
