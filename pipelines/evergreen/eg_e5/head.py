"""Small networks on frozen embeddings: P(evergreen) of a question by what its encoder makes of it.

Law: equal rows and one seed train equal bytes.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.errors import ConfigError, StageError
from pipelines.evergreen.eg_e5.calibration import need_both, one_thread, sigmoid

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class HeadRecipe:
    """Networks of one hidden layer (ReLU) on standardised embeddings, Adam; their mean is the head."""

    networks: int = 4  # they differ in their random start alone
    hidden: int = 64
    epochs: int = 16
    min_steps: int = 600  # of Adam: more epochs where few rows give fewer
    alpha: float = 2.0  # L2 penalty
    learning_rate: float = 0.001
    batch: int = 200

    def __post_init__(self) -> None:
        counts = (self.networks, self.hidden, self.epochs, self.batch)
        if min(counts) < 1 or self.alpha < 0 or self.learning_rate <= 0:
            raise ConfigError("needs networks, hidden, epochs, batch >= 1, alpha >= 0, learning_rate > 0")

    def epochs_for(self, rows: int) -> int:
        """Epochs over so many rows."""
        steps = math.ceil(rows / min(self.batch, rows))
        return max(self.epochs, math.ceil(self.min_steps / steps))


@dataclass(frozen=True)
class Head:
    """K small networks on embeddings [n, D]: standardise, hidden layer of H, sigmoid; their mean."""

    centre: np.ndarray  # float64 [D]
    scale: np.ndarray  # float64 [D]
    w1: np.ndarray  # float64 [K, D, H]
    b1: np.ndarray  # float64 [K, H]
    w2: np.ndarray  # float64 [K, H]
    b2: np.ndarray  # float64 [K]

    def predict(self, vectors: np.ndarray) -> np.ndarray:
        """P(evergreen), float64 [n]. Raises StageError for embeddings of another size."""
        import numpy as np

        if vectors.shape[1] != self.centre.shape[0]:
            what = f"the classifier wants embeddings of {self.centre.shape[0]}, got {vectors.shape[1]}"
            raise StageError(what, cure="train again with the embedding model in use")
        x = (vectors.astype(np.float64) - self.centre) / self.scale
        total = np.zeros(len(x))
        for w1, b1, w2, b2 in zip(self.w1, self.b1, self.w2, self.b2, strict=True):
            total += sigmoid(np.maximum(x @ w1 + b1, 0.0) @ w2 + b2)
        return total / len(self.w1)


def fit_head(
    recipe: HeadRecipe, vectors: np.ndarray, evergreen: np.ndarray, weights: np.ndarray, seed: int
) -> Head:
    """The head fitted to embeddings [n, D]. Raises StageError without both labels."""
    import numpy as np
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    need_both(evergreen)
    x = vectors.astype(np.float64)
    centre, scale = x.mean(axis=0), x.std(axis=0)
    scale[scale < 1e-6] = 1.0  # a column that never varies
    z, parts = (x - centre) / scale, []
    for k in range(recipe.networks):
        net = MLPClassifier(
            hidden_layer_sizes=(recipe.hidden,),
            alpha=recipe.alpha,
            learning_rate_init=recipe.learning_rate,
            batch_size=min(recipe.batch, len(x)),
            max_iter=recipe.epochs_for(len(x)),
            n_iter_no_change=recipe.epochs_for(len(x)),
            random_state=(seed + k) % 2**32,
        )
        with one_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the number of epochs is the recipe's
            net.fit(z, evergreen, sample_weight=weights)
        parts.append((net.coefs_[0], net.intercepts_[0], net.coefs_[1][:, 0], net.intercepts_[1][0]))
    w1, b1, w2, b2 = (np.stack(part) for part in zip(*parts, strict=True))
    return Head(centre, scale, w1, b1, w2, b2)
