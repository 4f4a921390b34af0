"""What one refresh did, in figures and in words.

Law: rows = due + waiting + saved, and due = answered + without an answer + failed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Any

from pipelines.evergreen.refreshing.source import Requests

SHOWN = 10  # lines of what went wrong


@dataclass(frozen=True)
class Report:
    """What one refresh did for the day `as_of`."""

    as_of: date
    rows: int
    due: int  # asked now
    audited: int  # evergreen rows among those due
    waiting: int  # due, but asked a short while ago without an answer
    first: int = 0  # answers to rows that had none
    confirmed: int = 0
    changed: int = 0
    review: int = 0  # evergreen rows among those changed
    failed: tuple[str, ...] = ()  # reason and question of each that may be answered another time
    file: str | None = None  # of the observations added, from the workspace's root
    origin: str = ""  # who was asked
    bad_facts: tuple[str, ...] = ()  # place and reason of each line of the facts that was passed over
    requests: Requests = field(default_factory=Requests)
    ahead: int = 0  # rows with an answer, or none, from after `as_of`: they are not due before that day
    made: int = 0  # questions of templates and models, which nobody is asked for, beside `rows`

    @property
    def answered(self) -> int:
        return self.first + self.confirmed + self.changed

    @property
    def unanswered(self) -> int:
        """Asked, and nothing told."""
        return self.due - self.answered - len(self.failed)

    @property
    def saved(self) -> int:
        """Requests that the labels saved against asking for every row."""
        return self.rows - self.due - self.waiting

    def plain(self) -> dict[str, Any]:
        """All figures, for programs."""
        told = {**asdict(self), "as_of": self.as_of.isoformat()}
        return {**told, "answered": self.answered, "unanswered": self.unanswered, "saved": self.saved}

    def head(self) -> str:
        """How many rows are due, before any is asked."""
        waiting = f", {self.waiting} wait since they had no answer" if self.waiting else ""
        share = f" ({self.saved / self.rows:.1%})" if self.rows else ""
        ahead = (
            f"\n  {self.ahead} rows were last looked at after this day: a date may be wrong"
            if self.ahead
            else ""
        )
        made = f"\n  {self.made} questions that were made to train on are not asked" if self.made else ""
        return (
            f"as of {self.as_of}: {self.due} of {self.rows} rows are due ({self.audited} in the audit of"
            f" evergreen ones){waiting}, {self.saved} requests saved{share}{made}{ahead}"
        )

    def __str__(self) -> str:
        bad = _some("passed over", self.bad_facts)
        if not self.due:
            return f"{self.head()}\n  no observations to add{bad}"
        used = self.requests
        spent = (
            f"\n  {used.sent} requests to {self.origin}, {used.kept} more answered before"
            + (f", {used.prompt_tokens + used.completion_tokens} tokens" if used.prompt_tokens else "")
            + (f", {used.cost_usd:.4f} USD" if used.cost_usd else "")
            if used.sent or used.kept
            else ""
        )
        failed = f", {len(self.failed)} failed" if self.failed else ""
        nothing = "no observations to add" + (
            "" if self.answered else f": {self.origin} answers none of them"
        )
        added = f"added {self.file}; `headrace run` folds it in" if self.file else nothing
        return (
            f"{self.head()}\n"
            f"  {self.answered} answered: {self.first} for the first time, {self.confirmed} confirmed,"
            f" {self.changed} changed ({self.review} of them evergreen, to review);"
            f" {self.unanswered} without an answer{failed}{spent}\n"
            f"  {added}{_some('failed', self.failed)}{bad}"
        )


def _some(what: str, told: tuple[str, ...]) -> str:
    """The first of them, a line each, and how many more there are."""
    more = f"\n  and {len(told) - SHOWN} more {what}" if len(told) > SHOWN else ""
    return "".join(f"\n  {what}: {t}" for t in told[:SHOWN]) + more
