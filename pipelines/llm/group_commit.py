"""Commits the answers that come in groups, and hands them out.

Law: an answer keeps its place among the requests in flight until it is committed, and is handed
out only then. So a kill repeats at most `concurrency` requests, and nothing handed out is lost.
A group is all that came while the group before was written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING

import orjson

from pipelines.llm.aside import Aside
from pipelines.llm.request import Media, Request
from pipelines.llm.store import KEPT_FAILURES, Kept, Record, Store

if TYPE_CHECKING:
    from pipelines.llm.claims import Claims
    from pipelines.llm.endpoint import Endpoint
    from pipelines.llm.job import Asked, Handed, Job
    from pipelines.llm.tally import Spent


@dataclass(slots=True)
class Errand:
    """What one caller of `Client.answers` has under way. `failed`: it was told so.

    `kept`: answers of it that wait for their commit.
    """

    done: SimpleQueue[Handed]
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    failed: bool = False
    kept: int = 0

    def fail(self, error: BaseException) -> None:
        """Tell the caller, once."""
        if not self.failed:
            self.failed = True
            self.done.put(error)


@dataclass(frozen=True, slots=True)
class Answered:
    """A final reply that waits for its commit, and holds its place at `endpoint` until then."""

    errand: Errand
    endpoint: Endpoint
    job: Job
    asked: Asked


@dataclass
class GroupCommit:
    """Lives in one event loop; `lost` is told of a group that could not be kept or handed out, and why."""

    store: Store
    spent: Spent
    claims: Claims | None
    lost: Callable[[list[Answered], BaseException], None]
    busy: bool = False
    _answered: list[Answered] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.disk = Aside("headrace-store")

    def keep(self, answered: Answered) -> None:
        """Take a final reply; returns at once. A failure that passes is not kept: it will be asked again."""
        self._answered.append(answered)
        answered.errand.kept += 1
        if not self.busy:
            self.busy = True
            self._writer = asyncio.get_running_loop().create_task(self._write_all())

    def close(self) -> None:
        """End the thread that writes."""
        self.disk.close(wait=True)

    async def _write_all(self) -> None:
        while self._answered:
            group, self._answered = self._answered, []
            try:
                kept = await self._commit(group)
            except BaseException as error:
                self.lost(group, error)
                _free(group)
                continue
            _free(group)
            try:
                self._hand_out(group, kept)
            except BaseException as error:  # a fault of ours, but without a word the caller waits for ever
                self.lost(group, error)
        self.busy = False

    async def _commit(self, group: list[Answered]) -> dict[str, Kept]:
        records = [_record(a.job, a.asked) for a in group if _is_kept(a.asked)]
        return await self.disk.call(self.store.put, records) if records else {}

    def _hand_out(self, group: list[Answered], kept: dict[str, Kept]) -> None:
        handed: dict[int, tuple[Errand, list[tuple[str, Kept]]]] = {}
        for answered in group:
            key, reply = answered.job.key, answered.asked.reply
            self.spent.count(reply.kept, 0 if answered.asked.rode else len(answered.asked.history))
            _, ends = handed.setdefault(id(answered.errand), (answered.errand, []))
            ends.append((key, kept.get(key, reply.kept)))
        for errand, ends in handed.values():
            if self.claims is not None:
                self.claims.give((key for key, _ in ends), errand.done)
            errand.done.put(ends)


def _free(group: list[Answered]) -> None:
    for answered in group:
        answered.endpoint.leave()
        answered.errand.kept -= 1


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
