"""How a batch is watched until it ends, as a pure state machine.

Law: what a batch answered is taken once it has ended, however it ended, and never before; it is
cancelled at most once, at its deadline. Looks at it grow rarer up to a bound. An endpoint that
cannot be reached is looked at again until `patience_s` are over; the batch stays recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

GROWTH = 1.5

# All other states are those of a batch at work, those unknown to us too.
ENDED = frozenset({"completed", "failed", "expired", "cancelled", "interrupted"})


class Act(StrEnum):
    WAIT = "wait"
    CANCEL = "cancel"
    MERGE = "merge"
    GIVE_UP = "give up"


@dataclass(frozen=True, slots=True)
class Seen:
    """A batch as its maker shows it. `files` are those to read, `said` what it says of a failure.

    status: the seller's word, or "interrupted" (a local run that was killed with its owner).
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

    def seen(self, status: str, now: float) -> Act:
        """What to do, having seen the batch in `status`."""
        self.failing_since = None
        if status in ENDED:
            return Act.MERGE
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

    def _later(self, now: float) -> None:
        wait = self.interval_s
        if self.deadline is not None and now < self.deadline:
            wait = min(wait, self.deadline - now)
        self.due = now + wait
        self.interval_s = min(self.most_s, self.interval_s * GROWTH)
