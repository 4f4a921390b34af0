"""What each signal says of a yes or no: Pearson's r, McFadden's pseudo-R2, with an interval of r.

Law: every signal is measured on the rows that have it, the count beside it; what two signals are worth
is compared only on the rows that have both. Order of rows changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipelines.evaluation.explained import pearson, regress


def worth(y: np.ndarray, x: np.ndarray, *, draws: int, confidence: float, seed: int) -> dict[str, Any]:
    """Of one signal x for a flag y (0/1), float64 [n], NaN where unknown. None for what is undefined."""
    y, x = _known(y, x)
    told: dict[str, Any] = {"rows": len(y), "base_rate": float(y.mean()) if len(y) else None}
    found = regress(y, x)
    r = pearson(y, x)
    low, high = _interval(y, x, draws, confidence, seed) if r is not None else (None, None)
    told |= {"pearson": r, "low": low, "high": high}
    told |= {"mcfadden": None, "intercept": None, "slope": None, "separated": False}
    if found is not None:
        told |= {"mcfadden": found.r2, "separated": found.separated}
        if not found.separated:  # else the slope is without end
            told |= {"intercept": found.intercept, "slope": found.slope}
    return told


def strongest(found: Mapping[str, Mapping[str, Any]], names: Mapping[str, Any] | set[str]) -> str | None:
    """The signal of these with the largest |r|; of equal ones the first by name; None when none has an r."""
    known = [n for n in sorted(names) if n in found and found[n]["pearson"] is not None]
    return max(known, key=lambda n: abs(found[n]["pearson"]), default=None)


def apart(
    y: np.ndarray, a: np.ndarray, b: np.ndarray, *, draws: int, confidence: float, seed: int
) -> dict[str, Any] | None:
    """|r| of a minus |r| of b on the rows that have both, with a paired percentile interval.

    `times`: |r| of a over that of b; None where b says nothing.
    """
    both = ~(np.isnan(y) | np.isnan(a) | np.isnan(b))
    y, a, b = y[both], a[both], b[both]
    order = np.lexsort((b, a, y))
    y, a, b = y[order], a[order], b[order]
    value, other = _apart(y, a, b), pearson(y, b)
    if value is None or other is None:
        return None
    rng = np.random.default_rng(seed)
    drawn = (_apart(y[i], a[i], b[i]) for i in rng.integers(0, len(y), (draws, len(y))))
    low, high = _bounds([d for d in drawn if d is not None], confidence)
    times = (value + abs(other)) / abs(other) if other else None
    return {"rows": len(y), "value": value, "low": low, "high": high, "times": times}


def _apart(y: np.ndarray, a: np.ndarray, b: np.ndarray) -> float | None:
    one, other = pearson(y, a), pearson(y, b)
    return None if one is None or other is None else abs(one) - abs(other)


def _known(y: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    known = ~(np.isnan(y) | np.isnan(x))
    y, x = y[known], x[known]
    order = np.lexsort((x, y))
    return y[order], x[order]


def _interval(
    y: np.ndarray, x: np.ndarray, draws: int, confidence: float, seed: int
) -> tuple[float | None, float | None]:
    rng = np.random.default_rng(seed)
    drawn = (pearson(y[i], x[i]) for i in rng.integers(0, len(y), (draws, len(y))))
    return _bounds([d for d in drawn if d is not None], confidence)


def _bounds(drawn: list[float], confidence: float) -> tuple[float | None, float | None]:
    if not drawn:
        return None, None
    tail = (1.0 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1.0 - tail])
    return float(low), float(high)
