"""Figures of the verbal baselines: each method beside the classifier and the constant answer.

Law: pure; the order of rows changes nothing. All stand on the same rows: those that the method was asked.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import polars as pl

from pipelines.data.rows import digest
from pipelines.evaluation import metrics as m
from pipelines.evaluation.systems import Scoring, constant, grid, labels_of, mean_f1, said, weighted

UNPARSED = "unparsed"


class How(Protocol):
    """What the figures take from the stage's parameters."""

    @property
    def threshold(self) -> float: ...
    @property
    def bootstrap(self) -> int: ...
    @property
    def confidence(self) -> float: ...
    @property
    def small(self) -> int: ...


def figures_of(told: pl.DataFrame, params: How, run_seed: int, model: str, *, tiny: bool) -> dict[str, Any]:
    """All figures. `told` has question_id, language, label, method, verdict, p_evergreen, tokens and cost."""
    seed = int(digest("bootstrap", run_seed), 16) % 2**63
    how = Scoring(params.threshold, params.bootstrap, params.confidence, 1, seed)
    methods = {
        str(name): of_method(rows.sort("question_id", "language"), how)
        for (name,), rows in sorted(told.group_by("method"), key=lambda g: str(g[0]))
    }
    return m.plain({"sample": sample(told, params.small, model, tiny=tiny), "methods": methods})


def sample(told: pl.DataFrame, small: int, model: str, *, tiny: bool) -> dict[str, Any]:
    """Who was asked how much, and whether that is enough to speak of quality."""
    questions = told["question_id"].n_unique()
    why = [*(["too few questions"] if questions < small else []), *(["too small a model"] if tiny else [])]
    what = f"{questions} test questions asked of {model}"
    return {
        "model": model,
        "questions": questions,
        "languages": sorted(told["language"].unique().to_list()),
        "demo": bool(why),
        "what": f"{what}: {' and '.join(why)} to speak of quality; this shows that the path works"
        if why
        else what,
    }


def of_method(rows: pl.DataFrame, how: Scoring) -> dict[str, Any]:
    """One method's rows: its scores, what stands beside on the same rows, and its cost."""
    labels, predicted = labels_of(rows), answered(rows)
    ours = said(rows, "p_evergreen", how.threshold)
    unparsed = int((rows["verdict"] == UNPARSED).sum())
    margin = m.difference(grid(rows, predicted), grid(rows, ours), how.bootstrap, how.confidence, how.seed)
    return {
        **weighted(rows, predicted, how),
        "rows": len(rows),
        "unparsed": unparsed,
        "unparsed_share": unparsed / len(rows),
        "minus_classifier": margin.plain(),
        "classifier": mean_f1(rows, ours),
        "constant": mean_f1(rows, constant(labels)),
        "cost_per_1000": cost(rows),
    }


def answered(rows: pl.DataFrame) -> np.ndarray:
    """Bool [n]: evergreen or not, an unparsed reply being whichever is wrong."""
    labels = labels_of(rows)
    verdicts = rows["verdict"].to_numpy()
    return np.where(verdicts == UNPARSED, ~labels, verdicts == "evergreen")


def cost(rows: pl.DataFrame) -> dict[str, float]:
    """Tokens and USD of a thousand questions, by the usage stored with each answer."""
    columns = ("prompt_tokens", "completion_tokens", "cost_usd")
    named = ("prompt_tokens", "generated_tokens", "usd")
    sums = (float(np.sort(rows[c].to_numpy().astype(np.float64)).sum()) for c in columns)
    return {name: 1000 * total / len(rows) for name, total in zip(named, sums, strict=True)}
