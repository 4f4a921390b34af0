"""The seven models that predict whether an answer is right, and the values tried of each.

Law: `FULL` is the papers' grid whole (evergreen.md, completed by facts 2.1), also where two values
mean the same (class weights of 1, the search structure of k-NN); `THIN` has one or two points of each
model's grid, for a look on little data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Grid = Mapping[str, Sequence[Any]]

_ALIKE = {0: 1, 1: 1}
_FEATURES = (0.2, 0.4, "sqrt", "log2", None)

FULL: Mapping[str, Grid] = {
    "logistic_regression": {
        "C": (0.01, 0.1, 1.0),
        "solver": ("lbfgs", "liblinear"),
        "class_weight": ("balanced", _ALIKE, None),
        "max_iter": (10_000, 15_000, 20_000),
    },
    "k_nearest": {
        "n_neighbors": (5, 7, 9, 11, 13, 15),
        "metric": ("euclidean", "manhattan"),
        "weights": ("uniform", "distance"),
        "algorithm": ("auto", "ball_tree", "kd_tree"),
    },
    "mlp": {
        "hidden_layer_sizes": ((50,), (100,), (50, 50), (100, 50), (100, 100)),
        "activation": ("relu", "tanh"),
        "solver": ("adam", "sgd"),
        "alpha": (1e-5, 1e-4, 1e-3, 1e-2),
        "learning_rate": ("constant", "adaptive"),
        "early_stopping": (True,),
        "max_iter": (200, 500),
    },
    "decision_tree": {
        "max_depth": (3, 5, 7, 10, None),
        "max_features": _FEATURES,
        "criterion": ("gini", "entropy"),
        "splitter": ("best", "random"),
    },
    "random_forest": {
        "n_estimators": (25, 35, 50),
        "max_depth": (3, 5, 7, 9, 11),
        "max_features": _FEATURES,
        "bootstrap": (True, False),
        "criterion": ("gini", "entropy"),
        "class_weight": ("balanced", _ALIKE, None),
    },
    "gradient_boosting": {
        "n_estimators": (25, 35, 50),
        "learning_rate": (0.001, 0.01, 0.05),
        "max_depth": (3, 4, 5, 7, 9),
        "max_features": _FEATURES,
    },
    "catboost": {
        "iterations": (10, 50, 100, 200),
        "learning_rate": (0.001, 0.01, 0.05),
        "depth": (3, 4, 5, 7, 9),
        "bootstrap_type": ("Bayesian", "Bernoulli", "MVS"),
    },
}

THIN: Mapping[str, Grid] = {
    "logistic_regression": {"C": (0.1, 1.0), "class_weight": ("balanced",), "max_iter": (10_000,)},
    "k_nearest": {"n_neighbors": (5, 15), "weights": ("uniform",)},
    "mlp": {"hidden_layer_sizes": ((50,),), "alpha": (1e-3,), "early_stopping": (True,), "max_iter": (200,)},
    "decision_tree": {"max_depth": (3,), "criterion": ("gini", "entropy")},
    "random_forest": {"n_estimators": (25,), "max_depth": (3,), "class_weight": ("balanced",)},
    "gradient_boosting": {"n_estimators": (25,), "learning_rate": (0.05,), "max_depth": (3,)},
    "catboost": {
        "iterations": (50,),
        "learning_rate": (0.05,),
        "depth": (3,),
        "bootstrap_type": ("Bernoulli",),
    },
}
GRIDS = {"thin": THIN, "full": FULL}


def size(grid: Grid) -> int:
    """How many points a grid has."""
    count = 1
    for values in grid.values():
        count *= len(values)
    return count
