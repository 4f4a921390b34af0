"""Scores by stratum: by kind and form of the question, by change rate, by split.

Law: a stratum is told by the question or its source, never by the prediction; each has its own count
and base rate beside its figures, and the rows of all strata of a partition add up to the rows scored.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl

from pipelines.evaluation import metrics as m
from pipelines.evaluation.question_kinds import KINDS
from pipelines.evaluation.reliability import wilson
from pipelines.evaluation.systems import (
    CONSTANT,
    Scoring,
    answers,
    constant,
    labels_of,
    mean_f1,
    quality,
    said,
    systems,
    weighted,
)

RATES = ("never", "slow", "fast")
FORMS = ("lead", "tense")


def errors_by_kind(scored: pl.DataFrame, how: Scoring) -> dict[str, Any]:
    """False positives and negatives of the classifier by kind of question, as the paper's table.

    A false positive is a mutable wording taken for evergreen. A question of two kinds counts in both;
    `any` is all rows, `none` those of no kind.
    """
    wrong = scored.with_columns(said=pl.Series(said(scored, "p_evergreen", how.threshold)))
    parts = {
        "any": wrong,
        **{kind: wrong.filter(pl.col("kinds").list.contains(kind)) for kind in KINDS},
        "none": wrong.filter(pl.col("kinds").list.len() == 0),
    }
    return {kind: _errors(rows) for kind, rows in parts.items()}


def _errors(rows: pl.DataFrame) -> dict[str, Any]:
    if rows.is_empty():
        return {"questions": 0, "rows": 0}
    labels, predicted = labels_of(rows), rows["said"].to_numpy()
    counts = m.confusion(m.cells(labels, predicted))
    positives, negatives = counts["false_positives"], counts["false_negatives"]
    return {
        **_sizes(rows),
        "false_positives": positives,
        "false_negatives": negatives,
        "false_positive_rate": _ratio(positives, int((~labels).sum())),
        "false_negative_rate": _ratio(negatives, int(labels.sum())),
        "negatives_per_positive": _ratio(negatives, positives),
        "weighted_f1": mean_f1(rows, predicted),
    }


def by_form(scored: pl.DataFrame, how: Scoring) -> dict[str, Any]:
    """Every system's weighted F1 within the questions of one form, and its AUROC within forms.

    Forms are the lead of the English wording and its tense. `auroc_within` compares only questions of
    the same lead and tense: what is left of a system when the form tells nothing.
    """
    found: dict[str, Any] = {
        form: {
            str(name): {**_sizes(rows), "weighted_f1": _each(rows, how)}
            for (name,), rows in sorted(scored.group_by(form), key=lambda g: str(g[0]))
        }
        for form in FORMS
    }
    found["auroc_within"] = {name: _within(scored, column) for name, column in systems(scored).items()}
    return found


def _each(rows: pl.DataFrame, how: Scoring) -> dict[str, float]:
    return {name: mean_f1(rows, predicted) for name, predicted in answers(rows, how).items()}


def _within(scored: pl.DataFrame, column: str) -> float | None:
    """Mean AUROC over the forms, weighted by their pairs of one evergreen and one mutable row."""
    total, pairs = 0.0, 0
    for _, rows in sorted(scored.group_by(*FORMS), key=lambda g: str(g[0])):
        labels = labels_of(rows)
        own = int(labels.sum()) * int((~labels).sum())
        if own:
            total += own * (m.auroc(labels, rows[column].to_numpy()) or 0.0)
            pairs += own
    return total / pairs if pairs else None


def by_change_rate(scored: pl.DataFrame, how: Scoring) -> dict[str, Any]:
    """P(evergreen) of the questions whose graded change rate is known: never, slow, fast.

    P is averaged over a question's languages, so that a question counts once; the bounds of its mean are
    of a bootstrap of questions. `called_evergreen` is the share of them with a mean P at the threshold,
    with Wilson's bounds: a bootstrap of a share of 1 would have none.
    """
    known = scored.filter(pl.col("change_rate").is_in(RATES))
    mean = known.group_by("question_id").agg(pl.col("change_rate").first(), pl.col("p_evergreen").mean())
    mean = mean.sort("question_id")
    found: dict[str, Any] = {"questions": len(mean), "of": scored["question_id"].n_unique()}
    p = {r: mean.filter(pl.col("change_rate") == r)["p_evergreen"].to_numpy() for r in RATES}
    for rate in RATES:
        if len(p[rate]):
            found[rate] = {
                "questions": len(p[rate]),
                "mean_p": _mean(p[rate], how),
                "called_evergreen": _share(p[rate] >= how.threshold, how),
            }
    for high, low in (("never", "slow"), ("never", "fast"), ("slow", "fast")):
        if len(p[high]) and len(p[low]):
            labels = np.repeat([True, False], [len(p[high]), len(p[low])])
            found[f"auroc_{high}_over_{low}"] = m.auroc(labels, np.concatenate([p[high], p[low]]))
    return found


def _mean(values: np.ndarray, how: Scoring) -> dict[str, float]:
    """The mean of [n] values, one a question, with its bootstrap bounds."""
    rng = np.random.default_rng(how.seed)
    n = len(values)
    drawn = rng.multinomial(n, np.full(n, 1.0 / n), size=how.bootstrap) @ np.sort(values) / n
    return m.interval(float(np.sort(values).mean()), drawn, how.confidence).plain()


def _share(hits: np.ndarray, how: Scoring) -> dict[str, float]:
    """The share of [n] questions, with its bounds."""
    share = float(hits.mean())
    low, high = wilson(share, len(hits), NormalDist().inv_cdf((1 + how.confidence) / 2))
    return m.Interval(share, low, high).plain()


def split_figures(rows: pl.DataFrame, how: Scoring) -> dict[str, Any]:
    """Calibration of the classifier on one split, its base rate and constant answer beside."""
    labels = labels_of(rows)
    return {
        **_sizes(rows),
        **quality(rows, "p_evergreen", how),
        "mean_p": float(np.sort(rows["p_evergreen"].to_numpy()).mean()),
        "weighted_f1": mean_f1(rows, said(rows, "p_evergreen", how.threshold)),
        CONSTANT: mean_f1(rows, constant(labels)),
    }


def base_rates(rows: pl.DataFrame) -> dict[str, Any]:
    """Questions and share of evergreen of each split of the labelled rows, and by source within it."""
    return {
        str(split): {
            **_sizes(part),
            "by_source": {
                str(source): _sizes(own)
                for (source,), own in sorted(part.group_by("source"), key=lambda g: str(g[0]))
            },
        }
        for (split,), part in sorted(rows.group_by("split"), key=lambda g: str(g[0]))
    }


def decontamination(scored: pl.DataFrame, how: Scoring) -> dict[str, Any]:
    """The model trained without leaks beside the one trained with them, on all test questions, on those
    that stand in no training text, and on those that do.

    `leaked` of a row: equal | near, null for a question that no train question equals or resembles.
    """
    told = pl.col("leaked")
    parts = {
        "whole": scored,
        "without_leaked": scored.filter(told.is_null()),
        "leaked_alone": scored.filter(told.is_not_null()),
    }
    questions: Mapping[str, int] = {
        how_so: scored.filter(told == how_so)["question_id"].n_unique() for how_so in ("equal", "near")
    }
    named = {"trained_without_leaks": "p_evergreen", "trained_with_leaks": "p_contaminated"}
    return {
        "leaked_questions": questions,
        **{
            name: {
                part: weighted(rows, said(rows, column, how.threshold), how)["weighted_f1"]["mean"]
                for part, rows in parts.items()
                if not rows.is_empty()
            }
            for name, column in named.items()
        },
    }


def _sizes(rows: pl.DataFrame) -> dict[str, Any]:
    return {
        "questions": rows["question_id"].n_unique(),
        "rows": len(rows),
        "evergreen_share": float((rows["label"] == "evergreen").mean()),  # type: ignore[arg-type]
    }


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
