"""How large the parts of a set of questions are, with intervals.

Law: a question counts once, whatever the number of its wordings: what is counted of it is the share of
its wordings in a part. The order of the rows changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from pipelines.evergreen.schema import MUTABLE
from pipelines.evergreen.threshold import wilson


@dataclass
class _Question:
    mutable: int = 0
    decided: int = 0
    rows: int = 0
    p: float = 0.0


@dataclass
class Counted:
    """The wordings of one set by question. `add` each, then ask."""

    questions: dict[str, _Question] = field(default_factory=lambda: defaultdict(_Question))

    def add(self, question_id: str, p_evergreen: float, part: str | None) -> None:
        """`part`: evergreen | mutable, None for a wording in neither."""
        q = self.questions[question_id]
        q.rows += 1
        q.p += p_evergreen
        q.decided += part is not None
        q.mutable += part == MUTABLE

    def plain(self, confidence: float) -> dict[str, float | int | None]:
        """The share of mutable among the decided with its Wilson interval, and of the undecided among all.

        `expected_mutable` is the mean of 1 - P(evergreen): what the share is where P is calibrated,
        wherever the threshold lies.
        """
        by_id = [self.questions[q] for q in sorted(self.questions)]
        decided = [q.mutable / q.decided for q in by_id if q.decided]
        rows = sum(q.rows for q in by_id)
        share = sum(decided) / len(decided) if decided else None
        low, high = wilson(share or 0.0, len(decided), (1.0 - confidence) / 2)
        return {
            "rows": rows,
            "questions": len(by_id),
            "decided_questions": len(decided),
            "mutable": None if share is None else round(share, 4),
            "low": round(low, 4),
            "high": round(high, 4),
            "undecided_rows": round(1 - sum(q.decided for q in by_id) / rows, 4) if rows else 0.0,
            "expected_mutable": round(1 - sum(q.p / q.rows for q in by_id) / len(by_id), 4)
            if by_id
            else None,
        }


def by(pairs: Iterable[tuple[str, str, float, str | None]]) -> dict[str, Counted]:
    """The sets named by the first of (set, question_id, P(evergreen), part)."""
    found: dict[str, Counted] = defaultdict(Counted)
    for name, question_id, p, part in pairs:
        found[name].add(question_id, p, part)
    return dict(sorted(found.items()))
