"""What is scored beside what: the classifier, its parts, blind baselines, and figures of each.

Law: every system answers the same rows at the same threshold, and none is left out of a table because
of what it scored. A column of P is a system; which there are is read from the rows, so that a further
part of the classifier is scored as soon as it tells its P.

A frame of scored rows has question_id, language, question, label (evergreen | mutable), a column
`p_...` a system, and what `described` adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from pipelines.evaluation import metrics as m
from pipelines.evaluation.question_kinds import NO_ENGLISH, kinds, lead, tense

NAMES = {
    "p_evergreen": "classifier",
    "p_bag": "bag_of_ngrams",
    "p_head": "head_on_embeddings",
    "p_encoder": "fine_tuned_encoder",
    "p_form": "question_form",
    "p_contaminated": "without_decontamination",
}
CONSTANT = "constant"


@dataclass(frozen=True)
class Scoring:
    """How figures are made. `seed` draws the bootstrap's questions; the same for every system."""

    threshold: float  # evergreen at P >= threshold
    bootstrap: int  # samples of questions
    confidence: float
    bins: int  # of ECE, equal mass
    seed: int


def systems(scored: pl.DataFrame) -> dict[str, str]:
    """Name -> column of each system in the rows; a column that holds no P at all is none."""
    told = [c for c in scored.columns if c.startswith("p_") and scored[c].null_count() < len(scored)]
    known = [c for c in NAMES if c in told]
    return {NAMES.get(c, c.removeprefix("p_")): c for c in [*known, *sorted(set(told) - set(known))]}


def described(scored: pl.DataFrame) -> pl.DataFrame:
    """The rows with `lead`, `tense` and `kinds` of each question's English wording."""
    english = scored.filter(pl.col("language") == "en").unique("question_id", keep="first")
    told = {q: (lead(w), tense(w), kinds(w)) for q, w in english.select("question_id", "question").rows()}
    found = [told.get(q, (NO_ENGLISH, NO_ENGLISH, [])) for q in scored["question_id"]]
    return scored.with_columns(
        pl.Series("lead", [f[0] for f in found], pl.String),
        pl.Series("tense", [f[1] for f in found], pl.String),
        pl.Series("kinds", [f[2] for f in found], pl.List(pl.String)),
    )


def labels_of(scored: pl.DataFrame) -> np.ndarray:
    """Bool [n], True for evergreen."""
    return (scored["label"] == "evergreen").to_numpy()


def said(scored: pl.DataFrame, column: str, threshold: float) -> np.ndarray:
    """Bool [n]: which rows a system calls evergreen."""
    return (scored[column] >= threshold).to_numpy()


def constant(labels: np.ndarray) -> np.ndarray:
    """The more frequent class of the rows for every row: the strongest constant answer."""
    return np.full(len(labels), bool(labels.mean() >= 0.5))


def question_numbers(scored: pl.DataFrame) -> np.ndarray:
    """Int [n]: numbers of the questions from 0, by their ids."""
    return np.asarray(scored["question_id"].rank("dense").to_numpy() - 1)


def grid(scored: pl.DataFrame, predicted: np.ndarray) -> np.ndarray:
    """Confusion counts by question and language, [questions, languages, 4], both in sorted order."""
    language = scored["language"].rank("dense").to_numpy() - 1
    return m.Scored(question_numbers(scored), language, labels_of(scored), predicted).counts()


def weighted(scored: pl.DataFrame, predicted: np.ndarray, how: Scoring) -> dict[str, Any]:
    """Weighted F1 by language and their mean, with bounds; both classes; confusion by language."""
    counts = grid(scored, predicted)
    by_language, mean = m.f1_intervals(counts, how.bootstrap, how.confidence, how.seed)
    names = sorted(scored["language"].unique().to_list())
    return {
        "weighted_f1": {
            "mean": mean.plain(),
            **{name: i.plain() for name, i in zip(names, by_language, strict=True)},
        },
        "classes": m.classes(counts.sum(axis=(0, 1))),
        "confusion": {name: m.confusion(c) for name, c in zip(names, counts.sum(axis=0), strict=True)},
    }


def quality(scored: pl.DataFrame, column: str, how: Scoring) -> dict[str, Any]:
    """Figures of P itself, over all rows."""
    labels, p = labels_of(scored), scored[column].to_numpy()
    return {
        "ece": m.calibration_error(m.bins(labels, p, how.bins)),
        "brier": m.brier(labels, p),
        "auroc": m.auroc(labels, p),
    }


def mean_f1(scored: pl.DataFrame, predicted: np.ndarray) -> float:
    """Weighted F1 of each language, averaged: the figure without its bounds."""
    return float(np.mean(m.weighted_f1(grid(scored, predicted).sum(axis=0))))


def answers(scored: pl.DataFrame, how: Scoring) -> Mapping[str, np.ndarray]:
    """What each system calls evergreen, and the constant answer; bool [n] each."""
    found = {name: said(scored, column, how.threshold) for name, column in systems(scored).items()}
    return found | {CONSTANT: constant(labels_of(scored))}
