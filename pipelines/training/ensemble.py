"""Fits the parts of the classifier, and what makes one calibrated probability of them.

Law: weights, intercept and scale come from train questions that the parts did not see (grouped
cross-validation); the prior is told, or estimated from questions without their labels. No label of
test or dev enters anything here.

Between train and the place of use the share of evergreen questions differs (EverGreenQA: 90 % of real
train questions, another share of test). Two corrections are offered, neither sees a label of the place:

covariate: other questions are asked, but what a question's label is stays. P is calibrated on train as
  its questions come; the share of evergreen questions then follows from the questions, and is told.
label: each class looks as in train, in another share. P is calibrated at even odds, and the intercept
  moves by the log odds of the share, which is told by params or estimated.

Questions are labelled by people who read them, so the first is the default.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pipelines.data.config import Share
from pipelines.errors import ConfigError
from pipelines.evergreen.eg_e5.bag import BagRecipe, fit_bag
from pipelines.evergreen.eg_e5.calibration import (
    EVEN,
    Mix,
    estimate_prior,
    log_odds,
    margins_of,
    one_thread,
    sigmoid,
)
from pipelines.evergreen.eg_e5.classifier import Classifier
from pipelines.evergreen.eg_e5.head import HeadRecipe, fit_head
from pipelines.training.crossval import Folds, Margins, OutOfFold, ablation, enough, figures, out_of_fold
from pipelines.training.decontaminate import Wording
from pipelines.training.examples import Examples, balanced
from pipelines.training.tuning import Shown, Tuner

if TYPE_CHECKING:
    import numpy as np

COVARIATE, LABEL = "covariate", "label"
TOLD, ESTIMATED, TRAIN = "told by params", "estimated on the unlabelled test questions", "as in train"
FOLLOWS = "mean P of the unlabelled test questions"


Keep = Callable[[OutOfFold, "np.ndarray"], None]  # what was scored, and its P by mixes of the other folds


@dataclass(frozen=True)
class Calibration:
    """How the parts come to one probability."""

    folds: int = 3  # of the train questions
    wordings: int = 3  # of a question that are scored; 0: all
    least: int = 50  # questions of each class and of real form; with fewer nothing is calibrated
    shift: str = COVARIATE  # or label: what differs where the model is used
    prior: Share = 0.0  # with shift label: of evergreen questions in use; 0: estimated
    made: tuple[str, ...] = ("synth", "template", "model")  # sources that are trained on, not scored
    ablate: tuple[str, ...] = ()  # of these sources: cross-validation once more without it

    def __post_init__(self) -> None:
        for source in self.ablate:
            if source not in self.made:
                raise ConfigError(f"{source!r} is scored, not made", where="calibration.ablate")
        if self.shift not in (COVARIATE, LABEL) or (self.prior > 0 and self.shift != LABEL):
            raise ConfigError("shift is covariate or label; a prior goes with label", where="calibration")
        if self.folds < 2 or self.least < 1 or self.prior == 1:
            raise ConfigError("needs folds >= 2, least >= 1, prior < 1", where="calibration")


@dataclass(frozen=True)
class Recipe:
    """What is fitted, and how its rows weigh."""

    bag: BagRecipe
    head: HeadRecipe
    calibration: Calibration
    bag_share: float
    balance: float
    tuned_balance: float
    near: float  # cosine from which a question nearly equals another


@dataclass(frozen=True)
class Unlabelled:
    """Questions of the place where the model is used, as far as they are known: no labels."""

    questions: Sequence[str]  # ids
    texts: list[str]
    languages: list[str]
    vectors: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[Wording], vectors: np.ndarray) -> Unlabelled:
        return cls(
            [w.question_id for w in rows], [w.question for w in rows], [w.language for w in rows], vectors
        )


def train(
    examples: Examples,
    there: Unlabelled,
    recipe: Recipe,
    seed: int,
    tuner: Tuner | None,
    keep: Keep = lambda found, p: None,
) -> tuple[Classifier, dict[str, Any]]:
    """The calibrated classifier, and what cross-validation says of it; `keep` gets its scores.

    Raises StageError without both labels.
    """
    wanted = recipe.calibration
    model = fit_parts(examples, recipe, seed, tuner)
    folds = Folds(wanted.made, wanted.folds, wanted.wordings, recipe.near, seed)
    if not enough(examples, folds, wanted.least):
        halves = Mix({"bag": recipe.bag_share, "head": 1.0 - recipe.bag_share})
        if tuner is not None:
            halves = Mix(dict.fromkeys(("bag", "head", "encoder"), 1 / 3))
        what = f"fewer than {wanted.least} questions of a class: nothing is calibrated"
        return replace(model, mix=halves), {"calibration": what}

    def fit(part: Examples) -> Any:
        fitted = fit_parts(part, recipe, seed, tuner)
        return lambda held: margins(fitted, held)

    def scored(part: Examples) -> OutOfFold:
        return out_of_fold(part, folds, fit)

    found = scored(examples)
    model, told = calibrated(model, found, there, wanted, seed)
    keep(found, sigmoid(found.judged(even=wanted.shift == LABEL) + log_odds(model.mix.prior)))
    for source in wanted.ablate:
        less = scored(examples.without_source(source))
        without = ablation(found, less, told["prior"]["used"], seed)
        told["cross_validation"][f"without_{source}"] = without
    return model, told


def calibrated(
    model: Classifier, found: OutOfFold, there: Unlabelled, wanted: Calibration, seed: int
) -> tuple[Classifier, dict[str, Any]]:
    """The parts with the mixes that fit the questions they did not see, and what was assumed."""
    even, own = wanted.shift == LABEL, share_of(found)
    mix = found.mix(even=even)
    margins = mix.margins(model.margins(there.texts, there.languages, lambda _: there.vectors))
    share, how = _share(margins, there, wanted, own)
    prior = share if even else EVEN
    told = {
        "calibration": f"{wanted.folds} folds by question",
        "scored": dict(Counter("evergreen" if y else "mutable" for y in _labels(found).values())),
        "prior": {"train": own, "used": share, "how": how, "shift": wanted.shift},
        "mix": mix.plain() | {"prior": prior},
        "cross_validation": figures(found, share, seed),
    }
    alone = {name: replace(found.mix([name], even=even), prior=prior) for name in found.margins}
    return replace(model, mix=replace(mix, prior=prior), alone=alone), told


def fit_parts(examples: Examples, recipe: Recipe, seed: int, tuner: Tuner | None) -> Classifier:
    """Bag on all rows, head and fine-tuned layers on the embedded ones; not calibrated."""
    near = examples.embedded_alone()
    bag = fit_bag(
        recipe.bag,
        examples.texts,
        examples.languages,
        examples.evergreen,
        balanced(examples.rows, recipe.balance),
    )
    head = fit_head(recipe.head, near.vectors, near.evergreen, balanced(near.rows, recipe.balance), seed)
    if tuner is None:
        return Classifier(bag, head)
    weights = balanced(near.rows, recipe.tuned_balance)
    shown = Shown(near.texts, [w.question_id for w in near.rows], near.evergreen, weights)
    return Classifier(bag, head, tuned=tuner.fit(shown, seed))


def margins(model: Classifier, held: Examples) -> Margins:
    """Log odds by part of embedded rows."""
    with one_thread():
        found = {
            "bag": model.bag.margins(held.texts, held.languages),
            "head": margins_of(model.head.predict(held.vectors)),
        }
    if model.tuned is not None:
        found["encoder"] = model.tuned.margins(held.texts)
    return found


def share_of(found: OutOfFold) -> float:
    """Share of evergreen questions among those scored."""
    labels = _labels(found)
    return sum(labels.values()) / len(labels)


def _labels(found: OutOfFold) -> Mapping[str, bool]:
    return dict(zip(found.questions, (found.evergreen == 1).tolist(), strict=True))


def _share(margins: np.ndarray, there: Unlabelled, wanted: Calibration, own: float) -> tuple[float, str]:
    """Share of evergreen questions in use, and where it is from; `margins` are of the questions there."""
    import numpy as np

    if wanted.prior > 0:
        return wanted.prior, TOLD
    if len(set(there.questions)) < wanted.least:
        return own, TRAIN
    counts = Counter(there.questions)
    weights = np.array([1.0 / counts[q] for q in there.questions])
    if wanted.shift == LABEL:
        return estimate_prior(margins, weights), ESTIMATED
    return float(np.sort(sigmoid(margins) * weights).sum() / weights.sum()), FOLLOWS
