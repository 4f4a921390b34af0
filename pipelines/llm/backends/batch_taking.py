"""Looks at a batch, and brings the answers of an ended one into the store, row by row.

Law: an answer is committed before it is handed on, and all of them before their batch is recorded
as taken; taking a batch twice changes nothing. A line for a key that the batch never asked is
counted and kept nowhere. While files say less than their batch counts (a page in their place, a 404,
a torn file), it is looked at again and not ended; answers that stay away then are lost, and paid for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from pipelines.errors import HeadraceError
from pipelines.llm.answer import TRANSIENT, Failure
from pipelines.llm.backends.batch_desk import Passing
from pipelines.llm.backends.batch_file import read_line
from pipelines.llm.backends.batch_ledger import Batch, Ledger, Line, ledger_of
from pipelines.llm.backends.batch_watch import FULL, Act, Seen, Watch
from pipelines.llm.store import KEPT_FAILURES, Kept, Record, Store

if TYPE_CHECKING:
    from pipelines.llm.backends.batch_office import Office
    from pipelines.llm.protocol import Reply

GROUP = 500  # answers in one commit
Hand = Callable[[Mapping[str, Kept]], None]


@dataclass(frozen=True, slots=True)
class Taken:
    """The end of a batch. `failed`: final replies that are no answers; what it left is in neither.

    `lost`: questions that it left, and whose answers the seller counts.
    """

    seen: Seen
    answers: int
    failed: Mapping[str, Kept]
    lost: frozenset[str] = frozenset()


def attend(office: Office, batch: Batch, watch: Watch, hand: Hand) -> Taken | None:
    """Look at a batch and do what is due; its end, when it came. Raises Passing when patience is over."""
    try:
        seen = office.desk.look(batch)
        office.ledger.note(batch.uid, status=seen.status, done=seen.done, failed=seen.failed, said=seen.said)
        act = watch.seen(seen.status, time.time())
        if act is Act.CANCEL:
            office.desk.cancel(batch)
        if act is not Act.MERGE:
            return None
        if (taken := take(office, batch, seen, hand, last=watch.last)) is None:
            watch.unread(time.time())
        return taken
    except Passing:
        if watch.unseen(time.time()) is Act.GIVE_UP:
            raise
        return None


def take(office: Office, batch: Batch, seen: Seen, hand: Hand, *, last: bool) -> Taken | None:
    """Bring an ended batch's answers into the store; `hand` gets them, committed. Raises Passing.

    None when its files say less than it counts, and this look is not the `last`.
    """
    failed: dict[str, Kept] = {}
    read, whole = set[str](), set[str]()  # of which a line came, and of which an answer
    unknown = answers = 0
    lines = office.desk.lines(seen)
    while group := list(islice(lines, GROUP)):
        replies = _replies(group, batch.kind)
        known = office.ledger.lines(batch.uid, (key for key in replies if _is_key(key)))
        unknown += sum(key not in known for key in replies)
        records = []
        for key, line in known.items():
            failure = replies[key].kept.failure
            if failure is not Failure.BROKEN_BODY:  # a line around nothing says no more than none
                read.add(key)
            if failure is None or failure in KEPT_FAILURES:
                whole.add(key)
                records.append(_record(batch, line, replies[key], office.priced(batch, replies[key].kept)))
            elif failure not in TRANSIENT:
                failed[key] = replies[key].kept
        if records:
            answers += len(records)
            hand(office.store.put(records))
    if len(read) < _counted(batch, seen) and not last:
        return None
    lost = _lost(office.ledger, batch, read, min(seen.done, batch.requests) - len(whole))
    if lost:
        seen = replace(seen, said=f"{seen.said} {len(lost)} answers that it counts cannot be read".strip())
    office.ledger.end(batch.uid, status=seen.status, done=answers, unknown=unknown, said=seen.said)
    office.desk.taken(batch)
    if seen.status == FULL:
        with suppress(HeadraceError):  # a file that stays costs nothing
            office.desk.discard(batch)
    return Taken(seen, answers, failed, lost)


def end_taken(store: Store) -> None:
    """End the batches whose answers are all stored: who took them died before it could say so."""
    with ledger_of(store.path) as ledger:
        if ledger is None:
            return
        for batch in ledger.batches():
            keys = ledger.keys(batch.uid)
            if batch.id and len(store.answers(keys)) == len(keys):
                ledger.end(batch.uid, done=len(keys))


def _counted(batch: Batch, seen: Seen) -> int:
    """How many questions have a line by the seller's count; one, where he counts none and yet completed."""
    counted = min(seen.done + seen.failed, batch.requests)
    return counted or int(seen.status == "completed" and bool(seen.files))


def _lost(ledger: Ledger, batch: Batch, read: set[str], count: int) -> frozenset[str]:
    """`count` of the questions without a line. Which they are is unknown: the longest, which cost most."""
    if count <= 0:
        return frozenset()
    unread = ledger.lines(batch.uid, (key for key in ledger.keys(batch.uid) if key not in read))
    longest = sorted(unread.values(), key=lambda line: (-len(line.request), line.key))
    return frozenset(line.key for line in longest[:count])


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


def _record(batch: Batch, line: Line, reply: Reply, kept: Kept) -> Record:
    return Record(
        key=line.key,
        kind=batch.kind,
        model=batch.model,
        identity=line.identity,
        request=line.request,
        kept=kept,
        body=reply.body,
        row=line.row,
        purpose=line.purpose,
        media=line.media,
    )


def _is_key(text: str) -> bool:
    return len(text) == 64 and all(c in "0123456789abcdef" for c in text)
