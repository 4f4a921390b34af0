"""How much of a yes or no one signal explains: McFadden's pseudo-R2 and Pearson's r.

Law: the logistic regression is unpenalised (a library's default penalty changes R2), and what is
undefined (one class, a constant signal) is None.

The forms are those of evergreen-facts 2.2.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

Y = np.ndarray  # 0/1 [n]


@dataclass(frozen=True)
class Regression:
    """Logistic regression of y on one signal. `separated`: no finite fit, the classes do not overlap."""

    intercept: float
    slope: float
    log_likelihood: float
    null: float  # LL0, of the intercept alone
    separated: bool = False

    @property
    def r2(self) -> float:
        """McFadden: 1 - LL/LL0."""
        return 1.0 - self.log_likelihood / self.null


def log_likelihood(y: Y, p: np.ndarray) -> float:
    """Sum of the log probabilities of what was seen; 0 log 0 is 0."""
    seen = np.where(np.asarray(y, bool), p, 1.0 - np.asarray(p, np.float64))
    with np.errstate(divide="ignore"):
        return float(np.sort(np.log(seen)).sum())


def null_likelihood(y: Y) -> float:
    """LL0: log likelihood of the share of 1 for every row."""
    return log_likelihood(y, np.full(len(y), float(np.mean(y))))


def mcfadden(y: Y, p: np.ndarray) -> float | None:
    """1 - LL/LL0 of given probabilities; None with one class."""
    null = null_likelihood(y)
    return None if null == 0.0 else 1.0 - log_likelihood(y, p) / null


def regress(y: Y, x: np.ndarray) -> Regression | None:
    """The unpenalised fit of y [n] on x [n]; None with one class or a constant signal."""
    y, x = np.asarray(y, bool), np.asarray(x, np.float64)
    spread = float(x.std()) if len(x) else 0.0
    if not len(x) or y.all() or not y.any() or spread <= 1e-12 * max(1.0, float(np.abs(x).max())):
        return None
    null = null_likelihood(y)
    sign = 1.0 if x[y].mean() >= x[~y].mean() else -1.0
    if (sign * x[y]).min() > (sign * x[~y]).max():
        return Regression(0.0, sign * np.inf, 0.0, null, separated=True)
    centre = float(x.mean())
    z = (x - centre) / spread
    a, b = _fit(y, z)
    fitted = _sigmoid(a + b * z)
    return Regression(a - b * centre / spread, b / spread, log_likelihood(y, fitted), null)


def pearson(y: np.ndarray, x: np.ndarray) -> float | None:
    """Pearson's r in [-1, 1]; None where one of them is constant."""
    y, x = np.asarray(y, np.float64), np.asarray(x, np.float64)
    if len(y) < 2 or y.min() == y.max() or x.min() == x.max():
        return None
    a, b = y - y.mean(), x - x.mean()
    norm = float(np.sqrt((a @ a) * (b @ b)))
    return None if norm == 0.0 else float(np.clip(a @ b / norm, -1.0, 1.0))


def _fit(y: Y, z: np.ndarray) -> tuple[float, float]:
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes that touch in one value have a fit far out
        fitted = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10, max_iter=200)
        fitted.fit(z[:, None], y)
    return float(fitted.intercept_[0]), float(fitted.coef_[0, 0])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)))
