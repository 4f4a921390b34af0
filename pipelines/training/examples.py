"""Training rows with their vectors, and how much each weighs.

Law: a row's weight depends on the class and the source that it is of, by name, never on their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.data.rows import digest
from pipelines.training.decontaminate import Wording

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Examples:
    """Wordings and the vectors of those that were embedded: `vectors[k]` is of `rows[embedded[k]]`."""

    rows: Sequence[Wording]
    embedded: Sequence[int]
    vectors: np.ndarray

    def without(self, questions: Container[str]) -> Examples:
        """The same without some questions."""
        return self.only(lambda w: w.question_id not in questions)

    def without_source(self, source: str) -> Examples:
        """The same without the rows of a source."""
        return self.only(lambda w: w.source != source)

    def only(self, wanted: Callable[[Wording], bool]) -> Examples:
        """The same with some rows only."""
        keep = [i for i, w in enumerate(self.rows) if wanted(w)]
        place = {old: new for new, old in enumerate(keep)}
        chosen = [k for k, i in enumerate(self.embedded) if i in place]
        inside = [place[self.embedded[k]] for k in chosen]
        return Examples([self.rows[i] for i in keep], inside, self.vectors[chosen])

    def first(self, wordings: int, seed: int) -> Examples:
        """The same with the first wordings of each question `in_turn` only; 0: all."""
        if wordings == 0:
            return self
        turns = in_turn([w.question_id for w in self.rows], self.texts, seed)
        kept = {self.rows[i].row_id for places in turns.values() for i in places[:wordings]}
        return self.only(lambda w: w.row_id in kept)

    def embedded_alone(self) -> Examples:
        """The embedded rows, in the order of their vectors."""
        rows = [self.rows[i] for i in self.embedded]
        return Examples(rows, range(len(rows)), self.vectors)

    @property
    def texts(self) -> list[str]:
        return [w.question for w in self.rows]

    @property
    def languages(self) -> list[str]:
        return [w.language for w in self.rows]

    @property
    def evergreen(self) -> np.ndarray:
        """Labels, int [n]: 1 evergreen, 0 mutable."""
        import numpy as np

        return np.array([w.evergreen for w in self.rows], dtype=int)


def in_turn(questions: Sequence[str], texts: Sequence[str], seed: int) -> dict[str, list[int]]:
    """Question -> places of its wordings in the order in which they are shown, by (seed, question, text).

    Which wording comes when does not depend on the other questions.
    """
    found: dict[str, list[int]] = {}
    for place, question in enumerate(questions):
        found.setdefault(question, []).append(place)
    keys = [digest("shown", seed, q, t) for q, t in zip(questions, texts, strict=True)]
    return {q: sorted(places, key=lambda i: (keys[i], i)) for q, places in sorted(found.items())}


def balanced(rows: Sequence[Wording], power: float) -> np.ndarray:
    """Row weights, float64 [n], mean 1: (rows of the same source and label) ** -power.

    Synthetic questions are nearly all mutable and real ones nearly all evergreen; the weights keep
    the source from standing for the label.
    """
    import numpy as np

    sizes = Counter((w.source, w.evergreen) for w in rows)
    weights = np.array([float(sizes[w.source, w.evergreen]) ** -power for w in rows])
    return np.asarray(weights / weights.mean())
