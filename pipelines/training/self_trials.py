"""Trials of self-knowledge: which rows train and which test, by repeat, and with against without a feature.

Law: both arms of a comparison see the same rows, splits, subsets and seeds and differ in one feature;
which rows these are depends on the run's seed, the repeat and the row ids, never on the rows' order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.data.rows import digest
from pipelines.evaluation.selective import Selection, selection
from pipelines.llm.request import seed_of
from pipelines.training.self_grids import Grid
from pipelines.training.self_models import FEWEST, Vote, fit_vote

FIGURES = ("auroc", "auprc", "prr")


@dataclass(frozen=True)
class Repeat:
    """One repeat over n rows: bool [n] each; `subset` lies within `train`."""

    train: np.ndarray
    subset: np.ndarray
    test: np.ndarray
    seed: int


@dataclass(frozen=True)
class Trial:
    """P(right) of the test rows of one repeat, float64 [tested], and what voted."""

    test: np.ndarray  # bool [n]
    p: np.ndarray
    vote: Vote


def repeats(
    ids: Sequence[str],
    right: np.ndarray,
    splits: Sequence[str | None],
    among: np.ndarray,
    *,
    count: int,
    most: int,
    seed: int,
) -> list[Repeat]:
    """`count` repeats over the rows `among` (bool [n]). Rows that say train or test stay there, if both
    are said; else each repeat halves them anew. `most`: training rows to tune on (paper: 100).

    Empty when a part would have too few right or wrong answers.
    """
    said = np.array([s or "" for s in splits])
    given = bool((among & (said == "train")).any() and (among & (said == "test")).any())
    found = []
    for k in range(count):
        order = np.array([digest("self_knowledge", seed, k, i) for i in ids])
        train = among & (said == "train") if given else _share(order, right, among, 0.5)
        test = among & (said == "test") if given else among & ~train
        if _fewest(right[train]) < FEWEST or _fewest(right[test]) < 1:
            return []
        subset = _share(order, right, train, min(1.0, most / int(train.sum())))
        if _fewest(right[subset]) < FEWEST:
            return []
        found.append(Repeat(train, subset, test, seed_of(seed, "self_knowledge", k)))
    return found


def trial(x: np.ndarray, right: np.ndarray, repeat: Repeat, grids: Mapping[str, Grid]) -> Trial:
    """The vote fitted to the training rows of features [n, f], applied to the test rows."""
    train = repeat.train
    vote = fit_vote(x[train], right[train], repeat.subset[train], grids, repeat.seed)
    return Trial(repeat.test, vote.predict(x[repeat.test]), vote)


def means(trials: Sequence[Trial], right: np.ndarray, max_rejection: float) -> dict[str, Any]:
    """The three figures, each the mean over the repeats; None where one of them is undefined."""
    each = [selection(right[t.test], t.p, max_rejection) for t in trials]
    return {
        **{name: _mean([getattr(s, name) for s in each]) for name in FIGURES},
        "base_rate": _mean([s.base_rate for s in each]),
        "prr_rejected": each[0].prr_rejected,
        "voters": _voters(trials),
    }


def paired(
    without: Sequence[Trial],
    having: Sequence[Trial],
    right: np.ndarray,
    *,
    max_rejection: float,
    draws: int,
    confidence: float,
    seed: int,
) -> dict[str, Any]:
    """`having` minus `without`, the mean over the repeats, with a percentile interval over rows.

    The same rows are drawn for both arms and all repeats. `better`: repeats in which it is above 0.
    A draw with one class only says nothing of that figure.
    """
    rng = np.random.default_rng(seed)
    everyone = np.flatnonzero(np.any([t.test for t in without], axis=0))
    found = {name: np.full(draws, np.nan) for name in FIGURES}
    for d in range(draws):
        apart = _apart(without, having, right, rng.choice(everyone, len(everyone)), max_rejection)
        for name in FIGURES:
            values = [v for a in apart if (v := a[name]) is not None]
            found[name][d] = float(np.mean(values)) if values else np.nan
    whole = _apart(without, having, right, everyone, max_rejection)
    tail = (1.0 - confidence) / 2
    told: dict[str, Any] = {}
    for name in FIGURES:
        value = _mean([a[name] for a in whole])
        drawn = found[name][~np.isnan(found[name])]
        low, high = np.quantile(drawn, [tail, 1.0 - tail]) if len(drawn) else (None, None)
        better = sum(v > 0 for a in whole if (v := a[name]) is not None)
        told[name] = {"value": value, "low": _plain(low), "high": _plain(high), "better": better}
    return told


def _apart(
    without: Sequence[Trial], having: Sequence[Trial], right: np.ndarray, drawn: np.ndarray, cap: float
) -> list[dict[str, float | None]]:
    """For each repeat the differences of the figures on the drawn rows that it tests."""
    found = []
    for one, other in zip(without, having, strict=True):
        place = np.cumsum(one.test) - 1  # of each row among the tested
        rows = drawn[one.test[drawn]]
        a, b = (selection(right[rows], t.p[place[rows]], cap) for t in (one, other))
        found.append({name: _minus(b, a, name) for name in FIGURES})
    return found


def _minus(b: Selection, a: Selection, name: str) -> float | None:
    more, less = getattr(b, name), getattr(a, name)
    return None if more is None or less is None else float(more - less)


def _share(order: np.ndarray, right: np.ndarray, among: np.ndarray, share: float) -> np.ndarray:
    """That share of the right and of the wrong rows of `among`, rounded up, first in `order`."""
    chosen = np.zeros(len(order), bool)
    for side in (right, ~right):
        rows = np.flatnonzero(among & side)
        rows = rows[np.argsort(order[rows], kind="stable")]
        chosen[rows[: int(np.ceil(share * len(rows) - 1e-9))]] = True
    return chosen


def _fewest(right: np.ndarray) -> int:
    return min(int(right.sum()), int((~right).sum()))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if len(known) == len(values) and known else None


def _plain(value: Any) -> float | None:
    return None if value is None else float(value)


def _voters(trials: Sequence[Trial]) -> str:
    return "; ".join(" + ".join(t.name for t in one.vote.chosen) for one in trials)
