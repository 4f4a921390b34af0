"""Which train questions equal a test question, or nearly.

Law: what is found in one language takes the whole question out, in every language; a test row is
never touched. Equal: the same `question_key`, whatever the languages. Near: the same language and
a cosine of the embeddings of at least the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.data.duplicates import question_key

if TYPE_CHECKING:
    import numpy as np

BLOCK = 4096  # train rows against all test rows of a language at a time


@dataclass(frozen=True)
class Wording:
    """One row of the curated questions: a question in one language."""

    row_id: str
    question_id: str
    language: str
    question: str
    evergreen: bool
    source: str


@dataclass(frozen=True)
class Leak:
    """Why a train question goes: its wording and the test wording that it equals or resembles."""

    train: Wording
    test: Wording
    cosine: float  # 1 for equal texts

    def __str__(self) -> str:
        ours, test = self.train.question, self.test.question
        return f"[{self.train.language}] {ours!r} ~ test {test!r} ({self.cosine:.3f})"


def equal_leaks(train: Sequence[Wording], test: Sequence[Wording]) -> dict[str, Leak]:
    """Train question id -> the first of its wordings that equals a test wording."""
    by_key: dict[str, Wording] = {}
    for t in test:
        key = question_key(t.question)
        if key:
            by_key.setdefault(key, t)
    found: dict[str, Leak] = {}
    for w in train:
        twin = by_key.get(question_key(w.question))
        if twin is not None:
            found.setdefault(w.question_id, Leak(w, twin, 1.0))
    return found


def near_leaks(
    train: Sequence[Wording],
    train_vectors: np.ndarray,
    test: Sequence[Wording],
    test_vectors: np.ndarray,
    bound: float,
) -> dict[str, Leak]:
    """Train question id -> its wording nearest to a test wording of the same language, if near enough.

    Vectors are unit rows [len(train), D], [len(test), D].
    """
    import numpy as np

    found: dict[str, Leak] = {}
    for language in sorted({t.language for t in test}):
        there = np.array([i for i, t in enumerate(test) if t.language == language])
        here = [i for i, w in enumerate(train) if w.language == language]
        for start in range(0, len(here), BLOCK):
            block = here[start : start + BLOCK]
            cosines = train_vectors[block] @ test_vectors[there].T
            best = cosines.argmax(axis=1)
            for i, j, cosine in zip(block, there[best], cosines.max(axis=1), strict=True):
                known = found.get(train[i].question_id)
                if cosine >= bound and (known is None or cosine > known.cosine):
                    found[train[i].question_id] = Leak(train[i], test[int(j)], float(cosine))
    return found
