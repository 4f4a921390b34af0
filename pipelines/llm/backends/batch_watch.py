"""How a batch is watched until it ends, as a pure state machine.

Law: what a batch answered is taken once it has ended, however it ended, and never before; it is
cancelled at most once, at its deadline. Looks at it grow rarer up to a bound. An endpoint that
cannot be reached, or that does not give the files, is looked at again until `patience_s` are over; the
batch stays recorded. Files that say less than was counted are read again LOOKS_AGAIN times.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

GROWTH = 1.5
LOOKS_AGAIN = 5  # at files that say less than their batch counts; by default they take a minute or more

FULL = "full"  # of one that failed since its maker had no room for it
# All other states are those of a batch at work, those unknown to us too.
ENDED = frozenset({"completed", "failed", "expired", "cancelled", "interrupted", FULL})


class Act(StrEnum):
    WAIT = "wait"
    CANCEL = "cancel"
    MERGE = "merge"
    GIVE_UP = "give up"


@dataclass(frozen=True, slots=True)
class Seen:
    """A batch as its maker shows it. `files` are those to read, `said` what it says of a failure.

    status: the seller's word, FULL, or "interrupted" (a local run that was killed with its owner).
    """

    id: str
    status: str
    files: tuple[str, ...] = ()
    done: int = 0
    failed: int = 0
    said: str = ""

    @property
    def ended(self) -> bool:
        return self.status in ENDED


@dataclass(slots=True)
class Watch:
    """One batch. Times are seconds of one clock; `deadline` None is never."""

    interval_s: float
    most_s: float
    patience_s: float
    deadline: float | None
    due: float
    cancelled: bool = False
    failing_since: float | None = None
    short: int = 0  # how often its files said too little

    def seen(self, status: str, now: float) -> Act:
        """What to do, having seen the batch in `status`."""
        if status in ENDED:
            return Act.MERGE  # its files may fail yet
        self.failing_since = None
        self._later(now)
        if self.deadline is not None and now >= self.deadline and not self.cancelled:
            self.cancelled = True
            return Act.CANCEL
        return Act.WAIT

    def unseen(self, now: float) -> Act:
        """What to do, the look having failed for a passing cause."""
        if self.failing_since is None:
            self.failing_since = now
        self._later(now)
        return Act.GIVE_UP if now - self.failing_since >= self.patience_s else Act.WAIT

    @property
    def last(self) -> bool:
        """Whether files that say too little have been read again often enough."""
        return self.short >= LOOKS_AGAIN

    def unread(self, now: float) -> None:
        """The files of the ended batch said less than it counts."""
        self.failing_since = None
        self.short += 1
        self._later(now)

    def _later(self, now: float) -> None:
        wait = self.interval_s
        if self.deadline is not None and now < self.deadline:
            wait = min(wait, self.deadline - now)
        self.due = now + wait
        self.interval_s = min(self.most_s, self.interval_s * GROWTH)
