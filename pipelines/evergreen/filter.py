"""Splits the questions into an evergreen and a mutable part at a threshold on P(evergreen).

Law: every row keeps its text and label; `part` depends on its probability and
the parameters alone. A row too near the threshold belongs to no part.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pipelines.data.config import Share
from pipelines.evergreen.schema import CLASSIFIED, EVERGREEN, FILTERED, MUTABLE, questions
from pipelines.step import Step

SCHEMA = questions("evergreen.filter", FILTERED)


@dataclass(frozen=True)
class Params:
    """threshold: least P(evergreen) of the evergreen part.
    undecided: rows nearer to the threshold than this are rejected; 0 rejects none.
    """

    threshold: Share = 0.5
    undecided: Share = 0.0


def part_of(p: float, params: Params) -> str | None:
    """evergreen | mutable, None inside the undecided band."""
    if abs(p - params.threshold) < params.undecided:
        return None
    return EVERGREEN if p >= params.threshold else MUTABLE


def run(step: Step, params: Params) -> None:
    """Reads evergreen/classify; reports the share of each part by split."""
    rows = step.read("evergreen/classify").to_dicts()
    step.plan(r["row_id"] for r in rows)
    parts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        part = part_of(row["p_evergreen"], params)
        if part is None:
            detail = f"P(evergreen) = {row['p_evergreen']:.4f}, threshold {params.threshold}"
            step.reject(
                row["row_id"], "undecided", detail=detail, raw=row["question"], parents=[row["row_id"]]
            )
            continue
        parts[row["split"], part] += 1
        values = {c: row[c] for c in CLASSIFIED}
        step.accept(
            row["row_id"],
            SCHEMA.row(**values, part=part, parents=[row["row_id"]]),
            note=MUTABLE if part == MUTABLE else "",
        )
    step.metrics["mutable_share"] = {
        split: round(parts[split, MUTABLE] / (parts[split, MUTABLE] + parts[split, EVERGREEN]), 4)
        for split in sorted({s for s, _ in parts})
    }
