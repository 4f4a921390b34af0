"""A bag of n-grams and logistic regression: P(evergreen) of a question without any encoder.

Law: equal rows train equal bytes. The bag sees character n-grams of any language, and words under the
name of their language; one model serves all.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.errors import ConfigError, StageError
from pipelines.evergreen.eg_e5.calibration import need_both, one_thread, sigmoid

if TYPE_CHECKING:
    import numpy as np
    from scipy.sparse import csr_matrix

Texts = Sequence[str]
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
class Bag:
    """Logistic regression over tf-idf; the two kinds of n-gram are each of length 1."""

    recipe: BagRecipe
    vocabulary: tuple[str, ...]  # sorted; "c…" a piece of a word, "w…" words after their language
    idf: np.ndarray  # float32 [V]
    weights: np.ndarray  # float64 [V]
    intercept: float

    def margins(self, questions: Sequence[str], languages: Sequence[str]) -> np.ndarray:
        """Log odds of evergreen as trained, float64 [n]."""
        import numpy as np

        features = _tfidf(self.recipe, self.vocabulary, self.idf, questions, languages)
        return np.asarray(features @ self.weights + self.intercept)

    def predict(self, questions: Sequence[str], languages: Sequence[str]) -> np.ndarray:
        """P(evergreen) as trained, float64 [n]."""
        return sigmoid(self.margins(questions, languages))


def fit_bag(
    recipe: BagRecipe, questions: Texts, languages: Texts, evergreen: np.ndarray, weights: np.ndarray
) -> Bag:
    """The bag fitted to rows [n] with labels 0/1 and weights. Raises StageError without both labels."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    need_both(evergreen)
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
