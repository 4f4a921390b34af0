"""Where batches are handed in, as the office sees it: the OpenAI Batch API or a local run.

Law: a desk makes one batch for each call of `create` and retries nothing by itself; whoever calls
it first asks `find` whether the batch is there. What may pass is `Passing`; any other error would
meet every batch alike and stops the run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from pipelines.errors import EnvironmentFault
from pipelines.llm.backends.batch_ledger import Batch
from pipelines.llm.backends.batch_watch import Seen


class Passing(EnvironmentFault):
    """The desk cannot be reached, or asks to come later (in `wait_s` seconds where it says so).

    `refused`: it is too much for it just now (429).
    """

    def __init__(
        self, what: str, *, where: str = "", wait_s: float | None = None, refused: bool = False
    ) -> None:
        super().__init__(what, where=where or None, cure="run again: the batches are recorded")
        self.wait_s, self.refused = wait_s, refused


class Desk(Protocol):
    """One maker of batches. `kinds` of requests are those that it takes in a batch."""

    address: str
    kinds: frozenset[str]
    unsaid: Mapping[str, Any]
    max_requests: int
    look_s: float  # it may be looked at so often, at the least
    alone: bool  # its batches and single questions would contend for one machine

    def find(self, batch: Batch) -> Seen | None:
        """The batch that was made under `batch.uid`, whoever saw it made; None when there is none."""

    def upload(self, uid: str, lines: Sequence[bytes]) -> str:
        """Hand in a file; its id."""

    def create(self, batch: Batch) -> Seen:
        """Make a batch of `batch.file`."""

    def look(self, batch: Batch) -> Seen:
        """How the batch stands."""

    def lines(self, seen: Seen) -> Iterator[bytes]:
        """The lines of its output and error files, whole or torn, in any order."""

    def cancel(self, batch: Batch) -> None:
        """Ask it to end; what it answered until then stays."""

    def taken(self, batch: Batch) -> None:
        """All of the batch is in the store."""

    def discard(self, batch: Batch) -> None:
        """Delete the file of a batch that was never made, if there is one."""

    def sweep(self, uids: Collection[str]) -> None:
        """Delete what is kept here of any other batches than these. Called `alone`."""

    def close(self) -> None: ...
