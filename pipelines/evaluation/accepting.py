"""The accept/precision curve: how right a verdict is, against the share of questions that get it.

Law: rows of equal P are accepted together, never one before another; a share that ends within such a
group has the precision expected of any order of its rows. So the curve depends on the rows alone.

"evergreen" is said of the rows with the highest P(evergreen) first, "mutable" of those with the
lowest. At share 1 the precision is the base rate of the verdict: print it beside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.evaluation.metrics import Floats, Interval, Labels, interval

SHARES = tuple(round(k / 10, 1) for k in range(1, 11))
BLOCK = 64  # bootstrap samples at a time: [BLOCK, rows] floats


@dataclass(frozen=True)
class Curve:
    """One point a distinct P, the surest first: rows accepted so far and those of them that are right.

    accepted, right: float64 [k], increasing; the last `accepted` is the number of rows.
    """

    accepted: np.ndarray
    right: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        """Share accepted at each point, float64 [k], in (0, 1]."""
        return np.asarray(self.accepted / self.accepted[-1])

    @property
    def precisions(self) -> np.ndarray:
        """Share of the accepted that is right at each point, float64 [k]."""
        return np.asarray(self.right / self.accepted)

    def precision_at(self, share: float) -> float:
        """Precision when this share (0, 1] of the rows is accepted."""
        wanted = share * self.accepted[-1]
        return float(np.interp(wanted, [0.0, *self.accepted], [0.0, *self.right]) / wanted)

    def share_at(self, precision: float) -> float:
        """The largest share at which the precision is at least so high; 0 where none is."""
        good = np.flatnonzero(self.precisions >= precision)
        return float(self.shares[good[-1]]) if len(good) else 0.0


def curve(labels: Labels, p: Floats, *, mutable: bool = False) -> Curve:
    """The curve of "evergreen" (or of "mutable") for rows [n] with label 1 = evergreen and P(evergreen)."""
    right, order, ends = _sorted(labels, p, mutable)
    return Curve(ends + 1.0, np.cumsum(right[order])[ends])


def intervals(
    labels: Labels,
    p: Floats,
    question: np.ndarray,
    samples: int,
    confidence: float,
    seed: int,
    *,
    mutable: bool = False,
) -> dict[float, Interval]:
    """Precision at each of SHARES, with bounds by a bootstrap of questions: their wordings stay together.

    question: int [n], numbers from 0 without gaps.
    """
    right, order, ends = _sorted(labels, p, mutable)
    count = int(question.max()) + 1
    rng = np.random.default_rng(seed)
    asker, hits = question[order], right[order]
    drawn = np.empty((samples, len(SHARES)))
    for start in range(0, samples, BLOCK):
        size = min(BLOCK, samples - start)
        weights = rng.multinomial(count, np.full(count, 1.0 / count), size=size)[:, asker].astype(np.float64)
        accepted = np.cumsum(weights, axis=1)[:, ends]
        correct = np.cumsum(weights * hits, axis=1)[:, ends]
        for k in range(size):
            wanted = np.array(SHARES) * accepted[k, -1]
            # A group that the draw left empty repeats its neighbour's count, which `interp` bears.
            reached = np.interp(wanted, np.append(0.0, accepted[k]), np.append(0.0, correct[k]))
            drawn[start + k] = reached / wanted
    whole = curve(labels, p, mutable=mutable)
    return {s: interval(whole.precision_at(s), drawn[:, i], confidence) for i, s in enumerate(SHARES)}


def _sorted(labels: Labels, p: Floats, mutable: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(right [n] 0/1, order [n] surest first, last place of each distinct P [k])."""
    y, p = np.asarray(labels, bool), np.asarray(p, np.float64)
    sure, right = (p, ~y) if mutable else (-p, y)
    order = np.argsort(sure, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(sure[order])), len(p) - 1)
    return right.astype(np.float64), order, ends
