"""Does a model know of itself that a question is evergreen? The label, regressed on how unsure it was.

Law: each estimate is measured by an unpenalised logistic regression (McFadden's pseudo-R2) and by
Pearson's r, on the rows that people labelled; too few rows or one class give null.

The papers, 400 questions, 200 of each label: R2 from 0.012 to 0.137 over 11 open models (evergreen-facts
2.1). Work items are the rows of evaluation/uncertainty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from pipelines import tracking
from pipelines.data.rows import digest
from pipelines.evaluation import signals as s
from pipelines.evaluation.signal_stage import READS, Draws, publish
from pipelines.evaluation.worth import strongest, worth
from pipelines.step import Step


@dataclass(frozen=True)
class Params(Draws):
    """bootstrap: draws of rows for the interval of r."""

    STAGE = "evaluation.implicit"


def run(step: Step, params: Params) -> None:
    """Reads evaluation/uncertainty; writes metrics.json."""
    started = tracking.now()
    rows = step.read(READS).sort("row_id")
    step.plan(rows["row_id"])
    for row in rows.iter_rows(named=True):
        if row["label"] is None:
            step.reject(row["row_id"], "no_label", detail="nobody said evergreen or mutable")
        elif not row["scores"]:
            step.reject(row["row_id"], "no_score", detail="no uncertainty estimate")
        else:
            step.accept(row["row_id"])
    used = rows.filter(pl.col("label").is_not_null() & (pl.col("scores").list.len() > 0))
    publish(step, params, measure(used, params, step.seed), started)


def measure(rows: pl.DataFrame, params: Params, run_seed: int) -> dict[str, Any]:
    """What each estimate says of the label, rows that have both. Pure."""
    seed = int(digest("implicit", run_seed), 16) % 2**63
    y = s.label(rows)
    how = params.how(seed)
    found = {name: worth(y, s.score(rows, name), **how) for name in s.names(rows)}
    return {
        "sample": s.sample(len(rows)),
        "evergreen": int(y.sum()),
        "mutable": int((1.0 - y).sum()),
        "estimates": found,
        "strongest": strongest(found, set(found)),
    }
