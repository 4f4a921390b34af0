"""What makes an assistant look an answer up? Its logged search flag, against every signal of the question.

Law: the evergreen label, P(evergreen) and each uncertainty estimate are correlated with the same flag,
each on the rows that have it; evergreen-ness is set against the best uncertainty estimate on the rows
that have both.

The papers, 400 questions of one assistant: |r| 0.77 for evergreen-ness, 0.36 for the best estimate
(evergreen-facts 2.1). Work items are the rows of evaluation/uncertainty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from pipelines import tracking
from pipelines.data.rows import digest
from pipelines.evaluation import signals as s
from pipelines.evaluation.signal_stage import READS, Draws, publish
from pipelines.evaluation.worth import apart, strongest, worth
from pipelines.step import Step


@dataclass(frozen=True)
class Params(Draws):
    """bootstrap: draws of rows for the intervals."""

    STAGE = "evaluation.retrieval_explained"


def run(step: Step, params: Params) -> None:
    """Reads evaluation/uncertainty; writes metrics.json."""
    started = tracking.now()
    rows = step.read(READS).sort("row_id")
    step.plan(rows["row_id"])
    for item, searched in rows.select("row_id", "searched").iter_rows():
        if searched is None:
            step.reject(item, "no_flag", detail="the file does not say whether the assistant searched")
        else:
            step.accept(item)
    publish(step, params, measure(rows.filter(pl.col("searched").is_not_null()), params, step.seed), started)


def measure(rows: pl.DataFrame, params: Params, run_seed: int) -> dict[str, Any]:
    """What each signal says of the flag, and evergreen-ness against the best estimate. Pure."""
    seed = int(digest("retrieval_explained", run_seed), 16) % 2**63
    y, signals = s.column(rows, "searched"), s.signals(rows)
    how = params.how(seed)
    found = {name: worth(y, x, **how) for name, x in signals.items()}
    evergreen, best = strongest(found, {s.EVERGREEN, s.P}), strongest(found, set(s.names(rows)))
    versus = apart(y, signals[evergreen], signals[best], **how) if evergreen and best else None
    return {
        "sample": s.sample(len(rows)),
        "searched": int(y.sum()),
        "signals": found,
        "strongest": strongest(found, set(found)),
        "best_estimate": best,
        "evergreen_minus_best_estimate": versus,
    }
