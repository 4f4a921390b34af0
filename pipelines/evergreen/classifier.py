"""P(evergreen) of a question: a bag of n-grams beside a head on frozen embeddings (the role of EG-E5).

Law: a model is plain arrays and text (npz without objects, JSON), never a pickle; what is loaded
predicts the same bits as what was trained, and equal input trains equal bytes.

The label is 1 = evergreen everywhere (EverGreenQA, released data). One model for all languages: the
bag sees character n-grams of any language, and words under the name of their language.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
import warnings
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.errors import ConfigError, InputError, StageError

if TYPE_CHECKING:
    import numpy as np
    from scipy.sparse import csr_matrix

Texts = Sequence[str]
Embed = Callable[[list[str]], "np.ndarray"]
FORMAT = 1  # of the folder; another number is refused
ARRAYS = ("idf", "bag_weights", "centre", "scale", "w1", "b1", "w2", "b2")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class BagRecipe:
    """n-grams of characters (within words, blanks at the ends) and of words, tf-idf, logistic regression."""

    char_from: int = 2
    char_to: int = 4
    word_to: int = 2
    min_rows: int = 2  # an n-gram seen in fewer rows is not used
    c: float = 8.0  # inverse strength of the L2 penalty

    def __post_init__(self) -> None:
        if not 1 <= self.char_from <= self.char_to or self.word_to < 0 or self.min_rows < 1 or self.c <= 0:
            raise ConfigError("needs 1 <= char_from <= char_to, word_to >= 0, min_rows >= 1, c > 0")


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
class Bag:
    """Logistic regression over tf-idf; the two kinds of n-gram are each of length 1."""

    recipe: BagRecipe
    vocabulary: tuple[str, ...]  # sorted; "c…" a piece of a word, "w…" words after their language
    idf: np.ndarray  # float32 [V]
    weights: np.ndarray  # float64 [V]
    intercept: float

    def predict(self, questions: Sequence[str], languages: Sequence[str]) -> np.ndarray:
        """P(evergreen), float64 [n]."""
        features = _tfidf(self.recipe, self.vocabulary, self.idf, questions, languages)
        return _sigmoid(features @ self.weights + self.intercept)


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
            total += _sigmoid(np.maximum(x @ w1 + b1, 0.0) @ w2 + b2)
        return total / len(self.w1)


@dataclass(frozen=True)
class Classifier:
    """The bag, the head, and the share of the bag in their mean."""

    bag: Bag
    head: Head
    bag_share: float = 0.5

    def predict(self, questions: list[str], languages: list[str], embed: Embed) -> np.ndarray:
        """P(evergreen) in [0, 1], float64 [n]; `embed` gives unit vectors [n, D] with the query prefix."""
        return self.parts(questions, languages, embed)["ensemble"]

    def parts(self, questions: list[str], languages: list[str], embed: Embed) -> dict[str, np.ndarray]:
        """P(evergreen) by the bag alone, by the head alone, and by their mean."""
        import numpy as np

        if len(questions) != len(languages):
            raise StageError(f"{len(questions)} questions but {len(languages)} languages")
        if not questions:
            return {name: np.empty(0) for name in ("bag", "head", "ensemble")}
        with one_thread():
            bag = self.bag.predict(questions, languages)
            head = self.head.predict(embed(questions))
        return {"bag": bag, "head": head, "ensemble": self.bag_share * bag + (1.0 - self.bag_share) * head}

    def save(self, folder: Path) -> None:
        """Writes model.json, vocabulary.json and arrays.npz into the folder."""
        import numpy as np

        folder.mkdir(parents=True, exist_ok=True)
        about = {
            "format": FORMAT,
            "labels": {"1": "evergreen", "0": "mutable"},
            "bag": vars(self.bag.recipe),
            "intercept": self.bag.intercept,
            "bag_share": self.bag_share,
        }
        words = json.dumps(self.bag.vocabulary, ensure_ascii=False, indent=0)
        (folder / "vocabulary.json").write_text(words + "\n", encoding="utf-8")
        text = json.dumps(about, indent=2, sort_keys=True)
        (folder / "model.json").write_text(text + "\n", encoding="utf-8")
        head = {name: getattr(self.head, name) for name in ARRAYS[2:]}
        np.savez(folder / "arrays.npz", idf=self.bag.idf, bag_weights=self.bag.weights, **head)


def load(folder: Path) -> Classifier:
    """The classifier that `save` wrote. Raises StageError when it is absent, InputError when damaged."""
    import numpy as np

    if not (folder / "model.json").is_file():
        raise StageError("no classifier here", where=str(folder), cure="headrace run training.evergreen")
    try:
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
        return Classifier(bag, head, float(about["bag_share"]))
    except Exception as e:  # zip, JSON, npy and shape faults have no common class
        what = f"not a readable classifier: {type(e).__name__}: {e}"
        raise InputError(what, where=str(folder), cure="headrace run training.evergreen") from e


def fit_bag(
    recipe: BagRecipe, questions: Texts, languages: Texts, evergreen: np.ndarray, weights: np.ndarray
) -> Bag:
    """The bag fitted to rows [n] with labels 0/1 and weights. Raises StageError without both labels."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    _need_both(evergreen)
    seen: Counter[str] = Counter()
    for question, language in zip(questions, languages, strict=True):
        seen.update(set(ngrams(recipe, question, language)))
    vocabulary = tuple(sorted(g for g, n in seen.items() if n >= recipe.min_rows))
    if not vocabulary:
        raise StageError("no n-gram occurs often enough", cure="lower training.evergreen.bag.min_rows")
    counts = np.array([seen[g] for g in vocabulary], dtype=np.float64)
    idf = (np.log((1.0 + len(questions)) / (1.0 + counts)) + 1.0).astype(np.float32)
    with one_thread():
        features = _tfidf(recipe, vocabulary, idf, questions, languages)
        fitted = LogisticRegression(C=recipe.c, max_iter=1000)
        fitted.fit(features, evergreen, sample_weight=weights)
    return Bag(recipe, vocabulary, idf, fitted.coef_[0].astype(np.float64), float(fitted.intercept_[0]))


def fit_head(
    recipe: HeadRecipe, vectors: np.ndarray, evergreen: np.ndarray, weights: np.ndarray, seed: int
) -> Head:
    """The head fitted to embeddings [n, D]. Raises StageError without both labels."""
    import numpy as np
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    _need_both(evergreen)
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


def ngrams(recipe: BagRecipe, question: str, language: str) -> Iterator[str]:
    """The n-grams of one question, repeats included: "c" + piece, "w" + language + ":" + words."""
    text = unicodedata.normalize("NFKC", question).casefold()
    for word in text.split():
        padded = f" {word} "
        for size in range(recipe.char_from, recipe.char_to + 1):
            for start in range(len(padded) - size + 1):
                yield "c" + padded[start : start + size]
    words = _WORD.findall(text)
    for size in range(1, recipe.word_to + 1):
        for start in range(len(words) - size + 1):
            yield f"w{language}:" + " ".join(words[start : start + size])


def one_thread() -> Any:
    """One order of sums: more threads would give other last bits."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1, user_api="blas")


def _tfidf(
    recipe: BagRecipe, vocabulary: Texts, idf: np.ndarray, questions: Texts, languages: Texts
) -> csr_matrix:
    """Float32 [n, V]: (1 + log count) x idf, the character part and the word part each of length 1."""
    import numpy as np
    from scipy.sparse import csr_matrix

    place = {gram: i for i, gram in enumerate(vocabulary)}
    columns: list[int] = []
    values: list[float] = []
    ends = [0]
    first_word = bisect_left(vocabulary, "w")  # sorted: "c..." stands before "w..."
    for question, language in zip(questions, languages, strict=True):
        counts = Counter(place[g] for g in ngrams(recipe, question, language) if g in place)
        found = np.array(sorted(counts), dtype=np.int64)
        row = np.array([counts[i] for i in found.tolist()], dtype=np.float64)
        row = (1.0 + np.log(row)) * idf[found]
        words = int(np.searchsorted(found, first_word))
        for part in (slice(0, words), slice(words, None)):
            row[part] /= max(float(np.sqrt((row[part] ** 2).sum())), 1e-12)
        columns.extend(found.tolist())
        values.extend(row.tolist())
        ends.append(len(columns))
    shape = (len(questions), len(vocabulary))
    return csr_matrix((np.array(values, dtype=np.float32), columns, ends), shape=shape)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    import numpy as np

    z = np.asarray(x, dtype=np.float64)
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * z)))


def _need_both(evergreen: np.ndarray) -> None:
    if len(set(evergreen.tolist())) < 2:
        kinds = {0: "mutable", 1: "evergreen"}
        only = ", ".join(kinds[int(v)] for v in set(evergreen.tolist())) or "none"
        raise StageError(f"training needs evergreen and mutable questions, has only: {only}")
