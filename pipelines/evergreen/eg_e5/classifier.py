"""P(evergreen) of a question: the role of EG-E5, as an ensemble of parts that are trained apart.

Parts: a bag of n-grams, networks on frozen embeddings, and, where one was trained, the upper layers of
the encoder fine-tuned. Law: a model is plain arrays and text (npz without objects, safetensors, JSON),
never a pickle; what is loaded predicts the same bits as what was trained, and P of a question depends
on its text, its language and the model alone.

The label is 1 = evergreen everywhere (EverGreenQA, released data). One model for all languages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.errors import InputError, StageError
from pipelines.evergreen.eg_e5 import tuned as fine
from pipelines.evergreen.eg_e5.bag import Bag, BagRecipe, fit_bag, ngrams
from pipelines.evergreen.eg_e5.calibration import Mix, margins_of, one_thread, sigmoid
from pipelines.evergreen.eg_e5.head import Head, HeadRecipe, fit_head

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "Bag", "BagRecipe", "Classifier", "Head", "HeadRecipe",
    "averaged", "fit_bag", "fit_head", "load", "ngrams", "one_thread",
]  # fmt: skip
Embed = Callable[[list[str]], "np.ndarray"]
FORMAT = 2  # of the folder; another number is refused
ARRAYS = ("idf", "bag_weights", "centre", "scale", "w1", "b1", "w2", "b2")
HALVES = Mix({"bag": 0.5, "head": 0.5})


@dataclass(frozen=True)
class Classifier:
    """The parts, their mix, and for each part the mix that calibrates it alone."""

    bag: Bag
    head: Head
    mix: Mix = HALVES
    alone: Mapping[str, Mix] = field(default_factory=dict)  # a part that is not here is taken as trained
    tuned: fine.Tuned | None = None

    def predict(self, questions: list[str], languages: list[str], embed: Embed) -> np.ndarray:
        """P(evergreen) in [0, 1], float64 [n]; `embed` gives unit vectors [n, D] with the query prefix."""
        return self.mix.predict(self.margins(questions, languages, embed))

    def parts(self, questions: list[str], languages: list[str], embed: Embed) -> dict[str, np.ndarray]:
        """P(evergreen) by each part alone, calibrated as the whole is, and by the whole ("ensemble")."""
        margins = self.margins(questions, languages, embed)
        found = {
            name: self.alone[name].predict(margins) if name in self.alone else sigmoid(z)
            for name, z in margins.items()
        }
        return {**found, "ensemble": self.mix.predict(margins)}

    def margins(self, questions: list[str], languages: list[str], embed: Embed) -> dict[str, np.ndarray]:
        """Log odds of evergreen as each part was trained to give them, float64 [n]."""
        import numpy as np

        if len(questions) != len(languages):
            raise StageError(f"{len(questions)} questions but {len(languages)} languages")
        names = ("bag", "head", *(("encoder",) if self.tuned is not None else ()))
        if not questions:
            return {name: np.empty(0) for name in names}
        with one_thread():
            bag = self.bag.margins(questions, languages)
            found = {"bag": bag, "head": margins_of(self.head.predict(embed(questions)))}
        if self.tuned is not None:
            found["encoder"] = self.tuned.margins(questions)
        return found

    def save(self, folder: Path) -> None:
        """Writes model.json, vocabulary.json, arrays.npz, and the fine-tuned layers if there are any."""
        import numpy as np

        folder.mkdir(parents=True, exist_ok=True)
        about = {
            "format": FORMAT,
            "labels": {"1": "evergreen", "0": "mutable"},
            "bag": vars(self.bag.recipe),
            "intercept": self.bag.intercept,
            "mix": self.mix.plain(),
            "alone": {name: mix.plain() for name, mix in self.alone.items()},
        }
        words = json.dumps(self.bag.vocabulary, ensure_ascii=False, indent=0)
        (folder / "vocabulary.json").write_text(words + "\n", encoding="utf-8")
        text = json.dumps(about, indent=2, sort_keys=True)
        (folder / "model.json").write_text(text + "\n", encoding="utf-8")
        head = {name: getattr(self.head, name) for name in ARRAYS[2:]}
        np.savez(folder / "arrays.npz", idf=self.bag.idf, bag_weights=self.bag.weights, **head)
        if self.tuned is not None:
            self.tuned.save(folder)


def averaged(p: np.ndarray, questions: Sequence[str]) -> np.ndarray:
    """For each wording the mean P of all wordings of its question, float64 [n]; `questions` are ids.

    One question has one answer in every language, and the wordings err apart: where translations are
    at hand this is the better estimate.
    """
    import numpy as np

    names, place = np.unique(np.asarray(questions, dtype=str), return_inverse=True)
    order = np.lexsort((p, place))  # equal sums whatever the order of the rows
    total = np.bincount(place[order], weights=p[order], minlength=len(names))
    return np.asarray((total / np.bincount(place, minlength=len(names)))[place])


def load(folder: Path, cache: Path | None = None) -> Classifier:
    """The classifier that `save` wrote; `cache` keeps what the encoder makes of texts below its cut.

    Raises StageError when it is absent, InputError when damaged, EnvironmentFault when it has fine-tuned
    layers and torch is absent.
    """
    if not (folder / "model.json").is_file():
        raise StageError("no classifier here", where=str(folder), cure="headrace run training.evergreen")
    try:
        bag, head, mix, alone = _read(folder)
    except Exception as e:  # zip, JSON, npy and shape faults have no common class
        what = f"not a readable classifier: {type(e).__name__}: {e}"
        raise InputError(what, where=str(folder), cure="headrace run training.evergreen") from e
    layers = fine.load(folder, cache) if fine.is_here(folder) else None
    return Classifier(bag, head, mix, alone, layers)


def _read(folder: Path) -> tuple[Bag, Head, Mix, dict[str, Mix]]:
    import numpy as np

    about: dict[str, Any] = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    if about["format"] != FORMAT:
        raise ValueError(f"format {about['format']}, not {FORMAT}")
    vocabulary = tuple(json.loads((folder / "vocabulary.json").read_text(encoding="utf-8")))
    with np.load(folder / "arrays.npz", allow_pickle=False) as arrays:
        a = {name: arrays[name] for name in ARRAYS}
    if not len(vocabulary) == len(a["idf"]) == len(a["bag_weights"]):
        raise ValueError("vocabulary and weights differ in length")
    recipe = BagRecipe(**about["bag"])
    bag = Bag(recipe, vocabulary, a["idf"], a["bag_weights"], float(about["intercept"]))
    head = Head(a["centre"], a["scale"], a["w1"], a["b1"], a["w2"], a["b2"])
    mix, alone = Mix(**about["mix"]), {name: Mix(**m) for name, m in about["alone"].items()}
    # What was read must predict: shapes that do not fit and parts that are absent tell themselves here.
    trial = {
        "bag": bag.margins(["?"], ["en"]),
        "head": margins_of(head.predict(np.zeros((1, len(head.centre))))),
    }
    trial |= {"encoder": np.zeros(1)} if fine.is_here(folder) else {}
    if not all(np.isfinite(m.predict(trial)).all() for m in (mix, *alone.values())):
        raise ValueError("it predicts no number")
    return bag, head, mix, alone
