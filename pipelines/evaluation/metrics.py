"""Figures of a binary classifier: weighted F1, both classes' precision and recall, ECE, Brier, intervals.

Law: a figure depends on which rows were scored and on nothing else: not on their order, and equal
probabilities are never told apart. Label 1 = evergreen, 0 = mutable; P is P(evergreen). All groups
(languages) come from the rows that are scored.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

Floats = np.ndarray  # float64 [n]
Labels = np.ndarray  # bool or 0/1 [n]


@dataclass(frozen=True)
class Bin:
    """Rows of similar P: how many, their mean P, and the share that is evergreen."""

    rows: int
    mean_p: float
    share: float


def cells(labels: Labels, predicted: Labels) -> np.ndarray:
    """Confusion counts, float64 [4]: evergreen found, evergreen missed, mutable found, mutable missed."""
    y, p = np.asarray(labels, bool), np.asarray(predicted, bool)
    return np.array([(y & p).sum(), (y & ~p).sum(), (~y & ~p).sum(), (~y & p).sum()], dtype=np.float64)


def weighted_f1(counts: np.ndarray) -> np.ndarray:
    """Sum over classes of support share x F1; counts [..., 4] as `cells` gives them -> [...].

    A class without rows and predictions has F1 0 and weight 0. No rows at all: NaN.
    """
    tp, fn, tn, fp = np.moveaxis(np.asarray(counts, np.float64), -1, 0)
    wrong = fn + fp
    evergreen = _share(2 * tp, 2 * tp + wrong)
    mutable = _share(2 * tn, 2 * tn + wrong)
    total = tp + fn + tn + fp
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(((tp + fn) * evergreen + (tn + fp) * mutable) / total)


def classes(counts: np.ndarray) -> dict[str, dict[str, float]]:
    """Precision, recall, F1 and support of both classes."""
    tp, fn, tn, fp = (float(c) for c in counts)
    return {
        "evergreen": _class(tp, fn, fp),
        "mutable": _class(tn, fp, fn),
    }


def confusion(counts: np.ndarray) -> dict[str, int]:
    """The counts by name. A false positive is a mutable question taken for evergreen (the paper's words)."""
    names = ("true_positives", "false_negatives", "true_negatives", "false_positives")
    return {name: int(count) for name, count in zip(names, counts, strict=True)}


def brier(labels: Labels, p: Floats) -> float:
    """Mean squared distance of P from the label."""
    return float(np.mean(np.sort((np.asarray(p, np.float64) - np.asarray(labels, np.float64)) ** 2)))


def bins(labels: Labels, p: Floats, count: int) -> list[Bin]:
    """At most `count` bins of about equal mass; rows of equal P always share one."""
    p = np.asarray(p, np.float64)
    y = np.asarray(labels, np.float64)
    _, which, sizes = np.unique(p, return_inverse=True, return_counts=True)
    middle = np.cumsum(sizes) - sizes / 2  # the middle rank of each distinct P
    place = np.minimum((middle * count / len(p)).astype(int), count - 1)[which]
    found = []
    for b in np.unique(place):
        inside = place == b
        found.append(Bin(int(inside.sum()), float(np.sort(p[inside]).mean()), float(y[inside].mean())))
    return found


def calibration_error(found: list[Bin]) -> float:
    """ECE: mean over rows of |share evergreen - mean P| of their bin."""
    rows = sum(b.rows for b in found)
    return sum(b.rows * abs(b.share - b.mean_p) for b in found) / rows


def auroc(labels: Labels, p: Floats) -> float | None:
    """Chance that an evergreen row has the higher P, ties one half. None with one class only."""
    y = np.asarray(labels, bool)
    ups, downs = int(y.sum()), int((~y).sum())
    if not ups or not downs:
        return None
    _, which, sizes = np.unique(np.asarray(p, np.float64), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(sizes) - (sizes - 1) / 2)[which]
    return float((ranks[y].sum() - ups * (ups + 1) / 2) / (ups * downs))


@dataclass(frozen=True)
class Scored:
    """Rows of one test set. A question's rows share its number; languages are numbered too.

    question, language: int [n]; label, predicted: bool [n].
    """

    question: np.ndarray
    language: np.ndarray
    label: np.ndarray
    predicted: np.ndarray

    def counts(self) -> np.ndarray:
        """Confusion counts by question and language, float64 [questions, languages, 4]."""
        shape = (int(self.question.max()) + 1, int(self.language.max()) + 1, 4)
        counts = np.zeros(shape)
        y, p = np.asarray(self.label, bool), np.asarray(self.predicted, bool)
        cell = np.where(y, np.where(p, 0, 1), np.where(p, 3, 2))
        np.add.at(counts, (self.question, self.language, cell), 1.0)
        return counts


@dataclass(frozen=True)
class Interval:
    """A figure with the bounds of its bootstrap interval."""

    value: float
    low: float
    high: float

    def plain(self) -> dict[str, float]:
        return {k: round(v, 6) for k, v in asdict(self).items()}


def f1_intervals(
    counts: np.ndarray, samples: int, confidence: float, seed: int
) -> tuple[list[Interval], Interval]:
    """Weighted F1 by language, and its mean over languages, each with a percentile interval.

    counts: [questions, languages, 4]. Questions are drawn, so that the translations of one question,
    which fail together, stay together. A draw in which a language has no row is left out of that
    language's bounds and of that draw's mean.
    """
    questions, languages, _ = counts.shape
    rng = np.random.default_rng(seed)
    draws = rng.multinomial(questions, np.full(questions, 1.0 / questions), size=samples)
    drawn = weighted_f1((draws @ counts.reshape(questions, -1)).reshape(samples, languages, 4))
    point = weighted_f1(counts.sum(axis=0))
    mean = np.nanmean(drawn, axis=1)
    by_language = [interval(float(point[k]), drawn[:, k], confidence) for k in range(languages)]
    return by_language, interval(float(np.mean(point)), mean, confidence)


def difference(a: np.ndarray, b: np.ndarray, samples: int, confidence: float, seed: int) -> Interval:
    """Mean weighted F1 of a minus that of b, the same questions drawn for both (paired bootstrap)."""
    questions, languages, _ = a.shape
    rng = np.random.default_rng(seed)
    draws = rng.multinomial(questions, np.full(questions, 1.0 / questions), size=samples)

    def means(counts: np.ndarray) -> np.ndarray:
        drawn = (draws @ counts.reshape(questions, -1)).reshape(samples, languages, 4)
        return np.asarray(np.nanmean(weighted_f1(drawn), axis=1))

    point = weighted_f1(a.sum(axis=0)).mean() - weighted_f1(b.sum(axis=0)).mean()
    return interval(float(point), means(a) - means(b), confidence)


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """Floats rounded to six places, so that metrics.json reads well and shows no last bits."""
    return {
        k: plain(v) if isinstance(v, dict) else round(v, 6) if isinstance(v, float) else v
        for k, v in values.items()
    }


def interval(value: float, drawn: np.ndarray, confidence: float) -> Interval:
    """A figure with the percentile bounds of its bootstrap draws [samples]; NaN draws do not count."""
    tail = (1.0 - confidence) / 2
    low, high = np.nanquantile(drawn, [tail, 1.0 - tail])
    return Interval(value, float(low), float(high))


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.asarray(np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0))


def _class(hit: float, missed: float, false: float) -> dict[str, float]:
    precision = hit / (hit + false) if hit + false else 0.0
    recall = hit / (hit + missed) if hit + missed else 0.0
    f1 = 2 * hit / (2 * hit + missed + false) if hit + missed + false else 0.0
    return {"precision": precision, "recall": recall, "f1": f1, "rows": hit + missed}
