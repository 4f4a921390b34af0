"""Predicts whether a model's answer is right, from one uncertainty estimate with and without P(evergreen).

Law: nothing of the test rows enters a choice; the two arms differ in one feature and in nothing else,
and their difference stands with an interval. A figure that is undefined (all right, all wrong) is null.
AUPRC stands beside its base rate, PRR beside its cap.

Work items are the rows of evaluation/uncertainty; each set of questions is tried by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import polars as pl

from pipelines import tracking
from pipelines.data.config import Share
from pipelines.data.rows import Schema, digest
from pipelines.data.tables import write_json
from pipelines.data.told import Data, Record
from pipelines.errors import ConfigError, nearest
from pipelines.evaluation.metrics import plain
from pipelines.evaluation.selective import selection
from pipelines.evaluation.signals import P, column, names, sample, score
from pipelines.step import Step
from pipelines.training.self_grids import GRIDS
from pipelines.training.self_trials import FIGURES, Trial, means, paired, repeats, trial
from pipelines.training.watched import watched

WITHOUT, WITH, ALONE = "estimate", "estimate+p_evergreen", "p_evergreen"
SCHEMA = Schema(
    "training.self_knowledge",
    {
        "dataset": pl.String,
        "estimate": pl.String,  # "" where P(evergreen) is the only feature
        "features": pl.String,  # estimate | estimate+p_evergreen | p_evergreen
        "repeat": pl.Int64,
        "question": pl.String,  # row of evaluation/uncertainty
        "correct": pl.Boolean,
        "p_correct": pl.Float64,
    },
    ("dataset", "estimate", "features", "repeat", "question"),
)


@dataclass(frozen=True)
class Params:
    """grid: thin | full. estimates: those to use, all when empty. tune_on: rows of the tuning subset."""

    grid: str = "thin"
    estimates: tuple[str, ...] = ()
    tune_on: int = 100
    repeats: int = 3
    max_rejection: Share = 1.0
    bootstrap: int = 1000
    confidence: Share = 0.95

    def __post_init__(self) -> None:
        where = "params.yaml: training.self_knowledge"
        if self.grid not in GRIDS:
            raise ConfigError(f"unknown grid {self.grid!r}", where=where, cure=nearest(self.grid, GRIDS))
        if min(self.tune_on, self.repeats, self.bootstrap) < 1 or not 0.0 < self.confidence < 1.0:
            what = "tune_on, repeats and bootstrap are 1 or more, confidence lies in (0, 1)"
            raise ConfigError(what, where=where)


@dataclass
class _Set:
    """The judged rows of one set of questions, and what was made of them."""

    name: str
    rows: pl.DataFrame
    count: Callable[[int], None]  # told of each trial that ended
    used: set[str] = field(default_factory=set)  # row ids that took part
    made: list[dict[str, Any]] = field(default_factory=list)

    @property
    def right(self) -> np.ndarray:
        return self.rows["correct"].cast(pl.Boolean).to_numpy().astype(bool)


def run(step: Step, params: Params) -> None:
    """Reads evaluation/uncertainty; writes rows (P(right) of each test row) and metrics.json."""
    started = tracking.now()
    rows = step.read("evaluation/uncertainty").sort("row_id")
    step.plan(rows["row_id"])
    judged = rows.filter(pl.col("correct").is_not_null())
    with watched(step.name, "votes") as count:
        known = sorted(set(judged["dataset"]))
        sets = [_Set(str(n), judged.filter(pl.col("dataset") == n), count) for n in known]
        told = {one.name: _tried(one, params, step.seed) for one in sets}
    figures = plain(
        {
            "sample": sample(len(judged)),
            "grid": params.grid,
            "sets": told,
            "best_uses_p_evergreen": wins(told),
        }
    )
    _settle(step, rows, sets)
    step.metrics = {"sample": figures["sample"], "best_uses_p_evergreen": figures["best_uses_p_evergreen"]}
    write_json(figures, step.out("metrics.json"))
    data = Data(
        "evaluation/uncertainty", step.artifact("evaluation/uncertainty") / "rows.parquet", "training"
    )
    tags = {"headrace.sample": figures["sample"]["what"]}
    record = Record(step.name, started, {"seed": step.seed, **asdict(params)}, figures, [data], tags=tags)
    tracking.record(step.root, record)


def wins(told: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """In how many (set, figure) the best arm uses P(evergreen), of those that have both (paper: 16 of 18)."""
    won = of = 0
    for one in told.values():
        for name in FIGURES:
            without, having = [], [one["p_evergreen"][name]] if one.get("p_evergreen") else []
            for estimate in one.get("estimates", {}).values():
                without.append(estimate["without"][name] if "without" in estimate else None)
                having.append(estimate["with"][name] if "with" in estimate else None)
            a, b = [v for v in without if v is not None], [v for v in having if v is not None]
            if a and b:
                of += 1
                won += max(b) > max(a)
    return {"won": won, "of": of}


def _tried(one: _Set, params: Params, seed: int) -> dict[str, Any]:
    """All figures of one set."""
    right = one.right
    told: dict[str, Any] = {"rows": len(right), "right_share": float(right.mean()), "estimates": {}}
    used = [n for n in names(one.rows) if not params.estimates or n in params.estimates]
    p = column(one.rows, P)
    alone = _arm(one, params, seed, "", ALONE, ~np.isnan(p), p[:, None])
    if alone:
        told["p_evergreen"] = means(alone, right, params.max_rejection)
    for name in used:
        told["estimates"][name] = _estimate(one, params, seed, name, p)
    if not one.used:
        told["why_not"] = "too few right or wrong answers, or no signal, to train and test on"
    return told


def _estimate(one: _Set, params: Params, seed: int, name: str, p: np.ndarray) -> dict[str, Any]:
    """One estimate: as it is, and the two arms. Where no row has P(evergreen) there is one arm."""
    right, value = one.right, score(one.rows, name)
    known = ~np.isnan(value)
    both = known & ~np.isnan(p)
    told: dict[str, Any] = {"as_it_is": selection(right[known], -value[known], params.max_rejection).plain()}
    used = both if both.any() else known
    without = _arm(one, params, seed, name, WITHOUT, used, value[:, None])
    if without:
        told["without"] = means(without, right, params.max_rejection)
    having = _arm(one, params, seed, name, WITH, both, np.stack([value, p], axis=1))
    if without and having:
        told["with"] = means(having, right, params.max_rejection)
        told["with_minus_without"] = paired(
            without,
            having,
            right,
            max_rejection=params.max_rejection,
            draws=params.bootstrap,
            confidence=params.confidence,
            seed=int(digest("paired", seed, one.name, name), 16) % 2**63,
        )
    return told


def _arm(
    one: _Set, params: Params, seed: int, name: str, features: str, used: np.ndarray, x: np.ndarray
) -> list[Trial]:
    """The trials of one arm over the rows `used`; none where they are too few. Keeps the predictions."""
    ids, right = one.rows["row_id"].to_list(), one.right
    found = repeats(
        ids,
        right,
        one.rows["split"].to_list(),
        used,
        count=params.repeats,
        most=params.tune_on,
        seed=seed,
    )
    trials = []
    for repeat in found:
        trials.append(trial(x, right, repeat, GRIDS[params.grid]))
        one.count(1)
    for k, (repeat, done) in enumerate(zip(found, trials, strict=True)):
        one.used |= {ids[i] for i in np.flatnonzero(repeat.train | repeat.test)}
        tested = np.flatnonzero(done.test)
        rows = [ids[i] for i in tested]
        one.made += _predictions(one.name, name, features, k, rows, right[tested], done.p)
    return trials


def _predictions(
    dataset: str,
    estimate: str,
    features: str,
    repeat: int,
    ids: Sequence[str],
    right: np.ndarray,
    p: np.ndarray,
) -> Iterator[dict[str, Any]]:
    for row, correct, value in zip(ids, right.tolist(), p.tolist(), strict=True):
        yield SCHEMA.row(
            parents=[row],
            dataset=dataset,
            estimate=estimate,
            features=features,
            repeat=repeat,
            question=row,
            correct=correct,
            p_correct=value,
        )


def _settle(step: Step, rows: pl.DataFrame, sets: Sequence[_Set]) -> None:
    """A row that took part is accepted with all that was predicted of it."""
    used = {i for one in sets for i in one.used}
    made: dict[str, list[dict[str, Any]]] = {}
    for one in sets:
        for prediction in one.made:
            made.setdefault(prediction["question"], []).append(prediction)
    for row in rows.iter_rows(named=True):
        item = row["row_id"]
        if item in used:
            step.accept(item, *made.get(item, []), note="" if item in made else "trained on alone")
        elif row["correct"] is None:
            step.reject(item, "not_judged", detail="no gold answer", parents=[item])
        elif row["p_evergreen"] is None and not row["scores"]:
            step.reject(item, "no_signal", detail="no score and no P(evergreen)", parents=[item])
        else:
            step.reject(item, "too_few", detail=f"of {row['dataset']} to train and test on", parents=[item])
