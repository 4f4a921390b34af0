"""How well a score tells right answers from wrong ones: AUPRC and the prediction-rejection ratio.

Law: a figure does not depend on the order of the rows (equal scores are averaged or taken together),
and what is undefined is None, never 0 or 0.5. AUROC stands in `metrics.py`.

The forms are those of evergreen-facts 2.2. `quality`: 1 right, 0 wrong, or any graded value.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pipelines.evaluation.metrics import auroc


@dataclass(frozen=True)
class Prr:
    """A prediction-rejection ratio; `rejected` (r) is how many rows its curve rejects at most."""

    value: float | None
    rejected: int


@dataclass(frozen=True)
class Selection:
    """The three figures of one score on the same rows; AUPRC means little without `base_rate`."""

    rows: int
    base_rate: float | None  # share that is right: what AUPRC is by chance
    auroc: float | None
    auprc: float | None
    prr: float | None
    prr_rejected: int

    def plain(self) -> dict[str, Any]:
        """As metrics.json has it."""
        return asdict(self)


def auprc(labels: np.ndarray, confidence: np.ndarray) -> float | None:
    """Average precision of label 1 by falling confidence; rows of equal confidence enter together.

    None without a row of label 1, or with those alone.
    """
    y = np.asarray(labels, bool)
    if not y.any() or y.all():
        return None
    _, which, sizes = np.unique(-np.asarray(confidence, np.float64), return_inverse=True, return_counts=True)
    hits = np.cumsum(np.bincount(which, weights=y))
    return float(np.sum(np.diff(hits, prepend=0.0) * hits / np.cumsum(sizes)) / hits[-1])


def prr(quality: np.ndarray, uncertainty: np.ndarray, max_rejection: float = 1.0) -> Prr:
    """(A(u) - A(random)) / (A(oracle) - A(random)), each A over k = n - r + 1 .. n of the k surest rows.

    r = int(max_rejection * n), stated in the result. 1 is the oracle, 0 random, negative worse. Random
    is exactly the mean quality. None where all quality is the same, or r is 0.
    """
    q, u = np.asarray(quality, np.float64), np.asarray(uncertainty, np.float64)
    rejected = int(max_rejection * len(q))
    if not rejected or q.min() == q.max():
        return Prr(None, rejected)
    q = (q - q.min()) / (q.max() - q.min())
    _, which, sizes = np.unique(u, return_inverse=True, return_counts=True)
    averaged = np.repeat(np.bincount(which, weights=q) / sizes, sizes)  # by rising u, ties alike
    random, ours, oracle = float(q.mean()), _area(averaged, rejected), _area(np.sort(q)[::-1], rejected)
    return Prr((ours - random) / (oracle - random) if oracle > random else None, rejected)


def selection(labels: np.ndarray, confidence: np.ndarray, max_rejection: float = 1.0) -> Selection:
    """All three figures of a confidence, as P(right) or minus an uncertainty."""
    y, c = np.asarray(labels, bool), np.asarray(confidence, np.float64)
    if not len(y):
        return Selection(0, None, None, None, None, 0)
    ratio = prr(y, -c, max_rejection)
    return Selection(len(y), float(y.mean()), auroc(y, c), auprc(y, c), ratio.value, ratio.rejected)


def _area(ordered: np.ndarray, rejected: int) -> float:
    """Mean over k = n - r + 1 .. n of the mean of the first k."""
    means = np.cumsum(ordered) / np.arange(1, len(ordered) + 1)
    return float(means[len(means) - rejected :].mean())
