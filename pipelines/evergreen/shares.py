"""How large the parts of a set of questions are, and how many of its questions can change, with intervals.

Law: a question counts once, whatever the number of its wordings: what is counted of it is the share of
its wordings in a part. The order of the rows changes nothing. How large a part is and how many questions
are expected to be of its kind have names of their own, since they are not the same.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pipelines.evergreen.schema import MUTABLE
from pipelines.evergreen.threshold import wilson


@dataclass
class _Question:
    mutable: int = 0
    decided: int = 0
    rows: int = 0
    p: float = 0.0
    told: int = 0  # wordings whose label people know
    told_mutable: int = 0


@dataclass
class Counted:
    """The wordings of one set by question. `add` each, then ask."""

    questions: dict[str, _Question] = field(default_factory=lambda: defaultdict(_Question))

    def add(self, question_id: str, p_evergreen: float, part: str | None, label: str | None = None) -> None:
        """`part`: evergreen | mutable, None for a wording in neither; `label` alike, None for unknown."""
        q = self.questions[question_id]
        q.rows += 1
        q.p += p_evergreen
        q.decided += part is not None
        q.mutable += part == MUTABLE
        q.told += label is not None
        q.told_mutable += label == MUTABLE

    def plain(self, confidence: float) -> dict[str, float | int | None]:
        """The share of the mutable part, and how many questions are expected to be mutable.

        `mutable_part` is the share of the part below the threshold among the decided questions, with its
        Wilson interval. It is no estimate of how many can change: where the threshold is high, so that the
        other part is surely evergreen, most of what is below it may be evergreen too. `expected_mutable` is
        that estimate, wherever the threshold lies: the mean of 1 - P(evergreen), right where P is
        calibrated. Its interval is that of drawing questions; how wrong P may be elsewhere it cannot tell.
        `labelled_mutable` is the share among the questions whose label is known, to hold it against.
        `undecided_rows` is a share of the rows.
        """
        by_id = [self.questions[q] for q in sorted(self.questions)]
        decided = [q.mutable / q.decided for q in by_id if q.decided]
        rows = sum(q.rows for q in by_id)
        labelled = [q.told_mutable / q.told for q in by_id if q.told]
        return {
            "rows": rows,
            "questions": len(by_id),
            "decided_questions": len(decided),
            **_with_interval("mutable_part", decided, confidence),
            "undecided_rows": round(1 - sum(q.decided for q in by_id) / rows, 4) if rows else 0.0,
            **_with_interval("expected_mutable", [1 - q.p / q.rows for q in by_id], confidence),
            "labelled_questions": len(labelled),
            "labelled_mutable": round(math.fsum(labelled) / len(labelled), 4) if labelled else None,
        }


def _with_interval(name: str, each: Sequence[float], confidence: float) -> dict[str, float | None]:
    """The mean of values in [0, 1], one a question, and its Wilson interval."""
    mean = math.fsum(each) / len(each) if each else None
    low, high = wilson(mean or 0.0, len(each), (1.0 - confidence) / 2)
    told = None if mean is None else round(mean, 4)
    return {name: told, f"{name}_low": round(low, 4), f"{name}_high": round(high, 4)}


def by(pairs: Iterable[tuple[str, str, float, str | None, str | None]]) -> dict[str, Counted]:
    """The sets named by the first of (set, question_id, P(evergreen), part, label)."""
    found: dict[str, Counted] = defaultdict(Counted)
    for name, question_id, p, part, label in pairs:
        found[name].add(question_id, p, part, label)
    return dict(sorted(found.items()))
