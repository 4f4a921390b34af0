"""Every work item ends in exactly one outcome, and the counts add up.

Law: items are planned before work starts, each is settled once, where it is
decided; `Ledger.check` compares the two listings, so that a dropped or doubled
item is an error and never a small number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from pipelines.errors import Place, StageError


class Outcome(StrEnum):
    """How a work item can end."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"  # a rule said no; the reason names the rule
    REFUSED = "refused"  # the model or its content filter declined
    UNPARSABLE = "unparsable"  # an answer came, but not in the asked form; raw text kept
    UNVERIFIED = "unverified"  # the check itself could not decide (time-out)
    FAILED = "failed"  # a passing cause: network, time-out
    OVER_BUDGET = "over_budget"


OTHER = tuple(str(o) for o in Outcome if o not in (Outcome.ACCEPTED, Outcome.REJECTED))


@dataclass(frozen=True)
class Settled:
    """The end of one item that was not accepted: why, where, and what it was."""

    item: str
    outcome: Outcome
    reason: str
    detail: str = ""
    place: Place | None = None
    raw: str = ""
    parents: tuple[str, ...] = ()
    responses: tuple[str, ...] = ()


@dataclass
class Ledger:
    """Planned items and their outcomes. Not thread-safe: settle where you gather."""

    planned: dict[str, bool] = field(default_factory=dict)  # item -> settled
    rejected: list[Settled] = field(default_factory=list)
    counts: Counter[Outcome] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)  # accepted, with something to say

    def plan(self, items: Iterable[str]) -> None:
        """Lists the work. May be called several times; an item twice is an error."""
        for item in items:
            if item in self.planned:
                raise StageError(f"work item {item!r} is planned twice", cure="make its key unique")
            self.planned[item] = False

    def accept(self, item: str, note: str = "") -> None:
        """Ends an item well; `note` says what was special (not due, mutable in a filter)."""
        self._settle(item, Outcome.ACCEPTED)
        if note:
            self.notes[note] += 1

    def settle(self, end: Settled) -> None:
        """Ends an item in any other way."""
        if end.outcome is Outcome.ACCEPTED:
            raise StageError(f"work item {end.item!r}: use accept()")
        self._settle(end.item, end.outcome)
        self.rejected.append(end)

    def _settle(self, item: str, outcome: Outcome) -> None:
        settled = self.planned.get(item)
        if settled is None:
            raise StageError(f"work item {item!r} was never planned")
        if settled:
            raise StageError(f"work item {item!r} is settled twice")
        self.planned[item] = True
        self.counts[outcome] += 1

    def check(self) -> None:
        """Raises StageError unless every planned item has exactly one outcome."""
        lost = [item for item, settled in self.planned.items() if not settled]
        if lost:
            raise StageError(
                f"{len(lost)} of {len(self.planned)} work items have no outcome, first {lost[0]!r}",
                cure="a step must settle each item that it planned",
            )
        if sum(self.counts.values()) != len(self.planned):
            raise StageError(f"outcomes {sum(self.counts.values())} != items {len(self.planned)}")

    def summary(self) -> dict[str, object]:
        """Counts as plain data, all outcomes named, reasons sorted."""
        reasons = Counter(f"{s.outcome}({s.reason})" for s in self.rejected)
        return {
            "items": len(self.planned),
            **{str(o): self.counts[o] for o in Outcome},
            "reasons": dict(sorted(reasons.items())),
            "notes": dict(sorted(self.notes.items())),
        }
