"""What the parts of the classifier say of train questions that they were not trained on.

Law: a question is in one fold in all its wordings, by (seed, question id) alone. What is scored is kept
as far from what is trained on as test is: a question that equals or nearly equals a scored one is left
out meanwhile. No test or dev row is looked at: what is chosen by these figures is chosen on train.

Only questions of real form are scored: made ones (templates, a model's) are all of one kind a label, and
what tells them apart tells nothing of the questions that people ask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipelines.data.rows import digest
from pipelines.errors import StageError
from pipelines.evaluation.metrics import Scored, auroc, difference, f1_intervals
from pipelines.evergreen.eg_e5.calibration import Mix, fit_mix, log_odds, one_thread, sigmoid
from pipelines.training.decontaminate import equal_leaks, near_leaks
from pipelines.training.examples import Examples

if TYPE_CHECKING:
    import numpy as np

Margins = Mapping[str, "np.ndarray"]
Fit = Callable[[Examples], Callable[[Examples], Margins]]  # rows to train on -> log odds of other rows
DRAWS, CONFIDENCE = 2000, 0.95


@dataclass(frozen=True)
class OutOfFold:
    """Log odds by part of the scored wordings, each by parts that saw no wording of its question."""

    questions: Sequence[str]
    languages: Sequence[str]
    evergreen: np.ndarray  # int [n]
    fold: np.ndarray  # int [n]
    margins: Margins  # float64 [n] a part

    @property
    def weights(self) -> np.ndarray:
        """Each question counts once, however many wordings it has."""
        import numpy as np

        counts = Counter(self.questions)
        return np.array([1.0 / counts[q] for q in self.questions])

    def mix(self, parts: Sequence[str] | None = None, *, even: bool = True) -> Mix:
        """The mix of these parts (all: None) that fits the scored questions best."""
        chosen = {n: z for n, z in self.margins.items() if parts is None or n in parts}
        return fit_mix(chosen, self.evergreen, self.weights, even=even)

    def judged(self, parts: Sequence[str] | None = None, *, even: bool = True) -> np.ndarray:
        """Log odds (even: at even odds) by a mix that was itself fitted to the other folds, float64 [n]."""
        import numpy as np

        names = [n for n in self.margins if parts is None or n in parts]
        found = np.empty(len(self.evergreen))
        for fold in np.unique(self.fold):
            here, rest = self.fold == fold, self.fold != fold
            others = {n: self.margins[n][rest] for n in names}
            mix = fit_mix(others, self.evergreen[rest], self.weights[rest], even=even)
            found[here] = mix.margins({n: self.margins[n][here] for n in names})
        return found


def fold_of(question: str, seed: int, folds: int) -> int:
    """0 to folds - 1."""
    return int(digest("fold", seed, question), 16) % folds


@dataclass(frozen=True)
class Folds:
    """made: sources that are not scored; wordings: of a question that are, those first `in_turn`, 0 for all
    that are embedded; near: cosine within a language from which a question nearly equals another.
    """

    made: Sequence[str]
    count: int
    wordings: int
    near: float
    seed: int


def out_of_fold(examples: Examples, how: Folds, fit: Fit) -> OutOfFold:
    """Fits each part once a fold, and scores the questions of real form that it did not see."""
    import numpy as np

    made, folds, wordings, seed = how.made, how.count, how.wordings, how.seed
    of = {q: fold_of(q, seed, folds) for q in {w.question_id for w in examples.rows}}
    scored, told = [], []
    for fold in range(folds):
        inside = {q for q, f in of.items() if f == fold}
        real = {w.question_id for w in examples.rows if w.source not in made}
        held = examples.without(of.keys() - (inside & real)).embedded_alone()
        if not held.rows:
            continue
        score = fit(_apart(examples.without(inside), held, how.near))
        held = held.first(wordings, seed)
        scored.append((fold, held))
        told.append(score(held))
    rows = [w for _, held in scored for w in held.rows]
    return OutOfFold(
        [w.question_id for w in rows],
        [w.language for w in rows],
        np.array([w.evergreen for w in rows], dtype=int),
        np.concatenate([np.full(len(held.rows), fold) for fold, held in scored]),
        {name: np.concatenate([t[name] for t in told]) for name in told[0]},
    )


def _apart(rest: Examples, held: Examples, near: float) -> Examples:
    """The rows to train on without those that equal or nearly equal a held question, in all wordings."""
    known = rest.embedded_alone()
    with one_thread():
        close = near_leaks(known.rows, known.vectors, held.rows, held.vectors, near)
    return rest.without({*close, *equal_leaks(rest.rows, held.rows)})


def enough(examples: Examples, how: Folds, least: int) -> bool:
    """Whether each class has so many questions of real form that a fit to them means something, and some
    in every two folds, so that what is fitted to the others of a fold sees both."""
    labels = {w.question_id: w.evergreen for w in examples.rows if w.source not in how.made}
    counts = Counter(labels.values())
    folds = {
        label: {fold_of(q, how.seed, how.count) for q, y in labels.items() if y == label} for label in counts
    }
    return min(counts[True], counts[False]) >= least and all(len(f) > 1 for f in folds.values())


def figures(found: OutOfFold, prior: float, seed: int) -> dict[str, Any]:
    """How the ensemble and each part alone do on the scored questions, as if `prior` were evergreen."""
    judged = {name: found.judged([name]) for name in found.margins} | {"ensemble": found.judged()}
    counts = {name: _counts(found, z + log_odds(prior), prior) for name, z in judged.items()}
    told = {name: _figures(found, judged[name], counts[name], prior, seed) for name in judged}
    told["ensemble"]["minus"] = {
        name: difference(counts["ensemble"], counts[name], DRAWS, CONFIDENCE, seed).plain()
        for name in found.margins
    }
    return told


def ablation(found: OutOfFold, less: OutOfFold, prior: float, seed: int) -> dict[str, Any]:
    """The ensemble fitted to fewer rows, and ours minus it on the same scored questions (paired)."""
    same = (found.questions, found.languages) == (less.questions, less.languages)
    if not same:
        raise StageError("an ablation must leave the scored questions as they are")
    ours, theirs = (_counts(f, f.judged() + log_odds(prior), prior) for f in (found, less))
    minus = difference(ours, theirs, DRAWS, CONFIDENCE, seed)
    return _figures(less, less.judged(), theirs, prior, seed) | {"ours_minus_this": minus.plain()}


def _figures(
    found: OutOfFold, margins: np.ndarray, counts: np.ndarray, prior: float, seed: int
) -> dict[str, Any]:
    import numpy as np

    _, mean = f1_intervals(counts, DRAWS, CONFIDENCE, seed)
    y = found.evergreen
    half = found.weights / np.where(y == 1, found.weights[y == 1].sum(), found.weights[y == 0].sum()) / 2
    p = np.clip(sigmoid(margins), 1e-9, 1 - 1e-9)
    loss = -(half * np.log(np.where(y == 1, p, 1 - p))).sum()
    return {"weighted_f1": mean.plain(), "auroc": auroc(y, margins), "log_loss_at_even_odds": float(loss)}


def _counts(found: OutOfFold, margins: np.ndarray, prior: float) -> np.ndarray:
    """Confusion counts [questions, languages, 4], each class scaled to its share at the prior."""
    import numpy as np

    names, question = np.unique(np.asarray(found.questions), return_inverse=True)
    _, language = np.unique(np.asarray(found.languages), return_inverse=True)
    counts = Scored(question, language, found.evergreen == 1, margins >= 0).counts()
    total = counts.sum(axis=(0, 1))
    evergreen, mutable = total[0] + total[1], total[2] + total[3]
    scale = np.array([prior / evergreen, prior / evergreen, (1 - prior) / mutable, (1 - prior) / mutable])
    return np.asarray(counts * scale * len(names))
