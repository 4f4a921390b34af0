"""P(the answer is right) from one or two numbers: seven models tuned, the best two voting.

Law: nothing of the test rows enters a choice. Each model's values are tuned by cross-validated AUROC on
a subset of the training rows, the models are compared on the rest of them, the best two are refitted on
all and their probabilities averaged (soft vote). Equal input and seed give equal bits: one thread.

A model that cannot be fitted to so few rows is left out, and why is told.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.errors import StageError
from pipelines.evaluation.metrics import auroc
from pipelines.training.self_grids import Grid

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

Values = Mapping[str, Any]
VOTERS = 2
FOLDS = 3
TREES = "n_estimators"
FEWEST = 2  # rows of each answer, right and wrong, that a fit needs
SEEDED = frozenset(
    ("logistic_regression", "mlp", "decision_tree", "random_forest", "gradient_boosting", "catboost")
)


@dataclass(frozen=True)
class Tuned:
    """One model at its best values. `validation`: AUROC on the training rows outside the subset, or of
    the cross-validation where the subset is all there is."""

    name: str
    values: Values
    validation: float


@dataclass(frozen=True)
class Vote:
    """The fitted voters, what was chosen, and the models left out with the reason."""

    fitted: Sequence[Pipeline]
    chosen: Sequence[Tuned]
    left_out: Mapping[str, str]

    def predict(self, x: np.ndarray) -> np.ndarray:
        """P(right), float64 [n], for features [n, f]."""
        shares = [np.asarray(model.predict_proba(x), np.float64)[:, 1] for model in self.fitted]
        return np.asarray(np.mean(shares, axis=0))


def fit_vote(x: np.ndarray, y: np.ndarray, subset: np.ndarray, grids: Mapping[str, Grid], seed: int) -> Vote:
    """Tunes on the rows of `subset` (bool [n]), chooses on the others, refits on all.

    x: float64 [n, f]; y: bool [n]. Raises StageError with fewer than `FEWEST` of a class in the subset,
    or when no model can be fitted.
    """
    if min(int(y[subset].sum()), int((~y[subset]).sum())) < FEWEST:
        raise StageError(f"needs {FEWEST} right and {FEWEST} wrong answers to tune on")
    tuned: list[Tuned] = []
    left_out: dict[str, str] = {}
    with _quiet():
        for name, grid in grids.items():
            try:
                tuned.append(_tune(name, grid, x, y, subset, seed))
            except ValueError as e:
                left_out[name] = " ".join(str(e).split())[:200]
        if not tuned:
            raise StageError(f"no model can be fitted: {next(iter(left_out.values()), 'no grid')}")
        best = sorted(tuned, key=lambda t: (-t.validation, t.name))[:VOTERS]
        fitted = [_fitted(_model(t.name, t.values, seed), x, y) for t in best]
    return Vote(fitted, best, left_out)


def _tune(name: str, grid: Grid, x: np.ndarray, y: np.ndarray, subset: np.ndarray, seed: int) -> Tuned:
    """Raises ValueError when no point of the grid can be fitted."""
    from sklearn.model_selection import ParameterGrid, StratifiedKFold

    here_x, here_y = x[subset], y[subset]
    folds = min(FOLDS, int(here_y.sum()), int((~here_y).sum()))
    least = len(here_y) - -(-len(here_y) // folds)  # rows that the smallest fit sees
    points = distinct(list(ParameterGrid({k: list(v) for k, v in _fitting(name, grid, least).items()})))
    parts = list(StratifiedKFold(folds, shuffle=True, random_state=seed).split(here_x, here_y))
    means = np.mean([_scored(name, points, here_x, here_y, fit, held, seed) for fit, held in parts], axis=0)
    if np.isnan(means).all():
        _fitted(_model(name, points[0], seed), here_x[parts[0][0]], here_y[parts[0][0]])  # says why
        raise ValueError("no point of its grid can be fitted to so few rows")
    at = int(np.nanargmax(means))  # of equal ones the first in the grid
    return Tuned(name, points[at], _validated(name, points[at], x, y, subset, seed, float(means[at])))


def distinct(points: Sequence[Values]) -> list[Values]:
    """The points of a grid without those that are an earlier one: adam takes no heed of sgd's schedule."""
    found: dict[str, Values] = {}
    for point in points:
        heeded = [k for k in sorted(point) if not (k == "learning_rate" and point.get("solver") == "adam")]
        found.setdefault(repr([(k, point[k]) for k in heeded]), point)
    return list(found.values())


def _scored(
    name: str,
    points: Sequence[Values],
    x: np.ndarray,
    y: np.ndarray,
    fit: np.ndarray,
    held: np.ndarray,
    seed: int,
) -> np.ndarray:
    """AUROC of each point on the rows `held`, fitted to the rows `fit`; NaN where it cannot be fitted.

    Of points that differ only in how many trees they have, the one with the most is fitted, and cut: its
    first trees are the trees of the others.
    """
    found = np.full(len(points), np.nan)
    groups: dict[str, list[int]] = {}
    for i, point in enumerate(points):
        rest = sorted((k, repr(v)) for k, v in point.items() if k != TREES)
        groups.setdefault(repr(rest), []).append(i)
    for group in groups.values():
        most = max(group, key=lambda i: points[i].get(TREES, 0))
        try:
            model = _fitted(_model(name, points[most], seed), x[fit], y[fit])
        except ValueError:
            continue
        for i in sorted(group, key=lambda i: -points[i].get(TREES, 0)):
            shares = np.asarray(cut(model, points[i]).predict_proba(x[held]), np.float64)[:, 1]
            score = auroc(y[held], shares)
            found[i] = np.nan if score is None else score
    return found


def cut(model: Pipeline, values: Values) -> Pipeline:
    """A fitted forest or boosted trees with the first of its trees alone: as if fitted to so many."""
    if TREES in values:
        trees = model[-1]
        trees.estimators_ = trees.estimators_[: values[TREES]]
        trees.set_params(**{TREES: values[TREES]})
    return model


def _fitted(model: Pipeline, x: np.ndarray, y: np.ndarray) -> Pipeline:
    """The model fitted. Raises ValueError when it cannot be, whichever library says so."""
    try:
        return model.fit(x, y)
    except Exception as e:  # catboost raises errors of its own
        raise ValueError(str(e)) from e


def _validated(
    name: str,
    values: Values,
    x: np.ndarray,
    y: np.ndarray,
    subset: np.ndarray,
    seed: int,
    otherwise: float,
) -> float:
    """AUROC on the rest of the training rows; `otherwise` where that has one class only."""
    rest = ~subset
    if not y[rest].any() or y[rest].all():
        return otherwise
    model = _fitted(_model(name, values, seed), x[subset], y[subset])
    found = auroc(y[rest], np.asarray(model.predict_proba(x[rest]), np.float64)[:, 1])
    return otherwise if found is None else found


def _fitting(name: str, grid: Grid, rows: int) -> Grid:
    """The grid without the neighbours that so few rows do not have. Raises ValueError when none is left."""
    if name != "k_nearest":
        return grid
    counts = [k for k in grid["n_neighbors"] if k <= rows]
    if not counts:
        raise ValueError(f"{rows} rows have fewer than {min(grid['n_neighbors'])} neighbours")
    return {**grid, "n_neighbors": counts}


def _model(name: str, values: Values, seed: int) -> Pipeline:
    """The named model behind a StandardScaler."""
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    own = {"random_state": seed} if name in SEEDED else {}
    model = _bare(name, own | dict(values))
    return Pipeline([("scale", StandardScaler()), ("model", model)])


def _bare(name: str, values: Values) -> Any:
    from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.tree import DecisionTreeClassifier

    known = {
        "logistic_regression": LogisticRegression,
        "k_nearest": KNeighborsClassifier,
        "mlp": MLPClassifier,
        "decision_tree": DecisionTreeClassifier,
        "random_forest": RandomForestClassifier,
        "gradient_boosting": GradientBoostingClassifier,
    }
    if name == "catboost":
        from catboost import CatBoostClassifier

        return CatBoostClassifier(verbose=False, allow_writing_files=False, thread_count=1, **values)
    return known[name](**values)


class _quiet:
    """One thread, and no warnings of fits that did not converge or fail: failures are told as such."""

    def __enter__(self) -> None:
        from threadpoolctl import threadpool_limits

        self._limits = threadpool_limits(limits=1)
        self._caught = warnings.catch_warnings()
        self._caught.__enter__()
        warnings.simplefilter("ignore")

    def __exit__(self, *told: Any) -> None:
        self._caught.__exit__(*told)
        self._limits.__exit__(*told)
