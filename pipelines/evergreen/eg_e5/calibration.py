"""From the log odds of a classifier's parts to a probability that means what it says.

Law: weights and intercept are fitted to questions that no part was trained on; no label of test or dev
enters. With z the parts' log odds, the mix gives

    P(evergreen) = sigmoid(w z + b + log(prior / (1 - prior))).

Where another mix of questions is met, P(evergreen | question) is the same (covariate shift: people label
questions, and the label follows from the question), so the fit counts each question once, and the prior
is a half, which adds nothing. Where instead the classes are met in another share and each looks as before
(label shift), the fit counts each class one half, and the prior of the place is added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipelines.errors import StageError

if TYPE_CHECKING:
    import numpy as np

EVEN = 0.5
FLATTEST = 1e-6  # no prior is nearer to 0 or 1
MOST = 15.0  # log odds beyond which a part says nothing more


@dataclass(frozen=True)
class Mix:
    """Weights of the parts by name, an intercept at even odds, and the prior that is assumed in use."""

    weights: Mapping[str, float]
    intercept: float = 0.0
    prior: float = EVEN

    def margins(self, parts: Mapping[str, np.ndarray]) -> np.ndarray:
        """Log odds of evergreen at even odds, float64 [n]; parts without a weight are not looked at."""
        import numpy as np

        total = sum(w * np.clip(parts[name], -MOST, MOST) for name, w in sorted(self.weights.items()))
        return np.asarray(total + self.intercept)

    def predict(self, parts: Mapping[str, np.ndarray]) -> np.ndarray:
        """P(evergreen) at the prior, float64 [n]."""
        return sigmoid(self.margins(parts) + log_odds(self.prior))

    def plain(self) -> dict[str, Any]:
        return {"weights": dict(self.weights), "intercept": self.intercept, "prior": self.prior}


def fit_mix(
    parts: Mapping[str, np.ndarray], evergreen: np.ndarray, weights: np.ndarray, *, even: bool = True
) -> Mix:
    """The mix of least log loss, no part weighing less than 0.

    even: each class counts one half, and `weights` are of the rows within their class. With one part this
    is Platt's calibration. Raises StageError without both labels.
    """
    import numpy as np

    need_both(evergreen)
    counted = weights.astype(np.float64) * len(weights) / weights.sum()
    for label in (0, 1) if even else ():
        counted[evergreen == label] *= 0.5 * len(counted) / counted[evergreen == label].sum()
    names = sorted(parts)
    while True:
        w, b = _logistic(np.stack([np.clip(parts[n], -MOST, MOST) for n in names], 1), evergreen, counted)
        negative = [n for n, value in zip(names, w, strict=True) if value < 0]
        if not negative or len(names) == 1:
            return Mix({n: max(float(v), 0.0) for n, v in zip(names, w, strict=True)}, float(b))
        names.remove(min(negative, key=lambda n: w[names.index(n)]))


def _logistic(x: np.ndarray, evergreen: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Weights [parts] and intercept of a logistic regression that is barely penalised."""
    from sklearn.linear_model import LogisticRegression

    with one_thread():
        fitted = LogisticRegression(C=1e3, max_iter=1000, tol=1e-8).fit(x, evergreen, sample_weight=weights)
    return fitted.coef_[0], float(fitted.intercept_[0])


def estimate_prior(margins: np.ndarray, weights: np.ndarray | None = None, rounds: int = 10_000) -> float:
    """Share of evergreen questions among unlabelled ones, given their log odds at even odds.

    Expectation-maximisation (Saerens, Latinne, Decaestecker 2002): the share at which it equals the
    mean of the probabilities that it leads to. It holds where the classes look as they did in training.
    """
    import numpy as np

    if len(margins) == 0:
        raise StageError("the share of evergreen questions among none cannot be estimated")
    each = np.full(len(margins), 1.0) if weights is None else weights
    prior = EVEN
    for _ in range(rounds):
        p = sigmoid(np.clip(margins, -MOST, MOST) + log_odds(prior))
        new = float(np.clip((np.sort(p * each)).sum() / each.sum(), FLATTEST, 1 - FLATTEST))
        if abs(new - prior) < 1e-10:
            return new
        prior = new
    return prior


def log_odds(p: float) -> float:
    """log(p / (1 - p)) of a probability, held away from 0 and 1."""
    held = min(max(p, FLATTEST), 1 - FLATTEST)
    return math.log(held / (1 - held))


def margins_of(p: np.ndarray) -> np.ndarray:
    """Log odds of probabilities, float64 [n], at most `MOST` either way."""
    import numpy as np

    least = 1.0 / (1.0 + math.exp(MOST))
    held = np.clip(np.asarray(p, np.float64), least, 1.0 - least)
    return np.asarray(np.log(held) - np.log1p(-held))


def one_thread() -> Any:
    """One order of sums: more threads would give other last bits."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1, user_api="blas")


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)) without overflow, float64."""
    import numpy as np

    z = np.asarray(x, dtype=np.float64)
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * z)))


def need_both(evergreen: np.ndarray) -> None:
    """Raises StageError when the labels are all of one class."""
    if len(set(evergreen.tolist())) < 2:
        kinds = {0: "mutable", 1: "evergreen"}
        only = ", ".join(kinds[int(v)] for v in set(evergreen.tolist())) or "none"
        raise StageError(f"training needs evergreen and mutable questions, has only: {only}")
