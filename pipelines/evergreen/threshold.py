"""The threshold on P(evergreen) at which the evergreen part has a stated precision.

Law: the choice is a function of the scores alone, not of their order. It reads out-of-fold scores of
train questions, never a test or a dev row. A question counts once, however many wordings it has.

Precision depends on how many questions are evergreen, and the rows at hand need not have the share of
the sets to be split. So it is put together from two shares that do not depend on it: of the evergreen
questions at or above the threshold (TPR) and of the mutable ones (FPR), under the stated prior pi:

    precision = pi TPR / (pi TPR + (1 - pi) FPR)

Its lower bound takes the lower Wilson bound of TPR and the upper one of FPR, each at (1 - confidence) / 2
so that both hold at once. No value is the paper's: it takes the likelier label.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from pipelines.errors import StageError


@dataclass(frozen=True)
class Scored:
    """A wording of a labelled question with its out-of-fold P(evergreen) in [0, 1]."""

    question_id: str
    p: float
    evergreen: bool


@dataclass(frozen=True)
class Point:
    """A threshold and what holds at it: estimates, and `low`, the lower bound of precision."""

    threshold: float
    precision: float
    low: float
    kept: float  # of the evergreen questions, at or above the threshold: recall
    passed: float  # of the mutable ones: the false positive rate
    evergreen: int  # labelled questions
    mutable: int


def wilson(share: float, trials: float, tail: float) -> tuple[float, float]:
    """The Wilson score interval of a share of `trials`; outside it `tail` of chance lies on each side.

    (0, 1) without trials. For means of values in [0, 1] it is wide enough: their variance is at most
    that of 0 and 1 with the same mean.
    """
    if trials <= 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(1.0 - tail)
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, centre - half), min(1.0, centre + half)


def curve(scored: Iterable[Scored], prior: float | None, confidence: float) -> Iterator[Point]:
    """A point for each score, from the highest down. `prior`: share of evergreen questions, None: as here.

    Raises StageError without questions of both labels, for a score outside [0, 1], a question with two.
    """
    rows = sorted(scored, key=lambda s: (-s.p, s.question_id))
    yield from _points(rows, sorted({s.p for s in rows}, reverse=True), prior, confidence)


def at(scored: Iterable[Scored], threshold: float, prior: float | None, confidence: float) -> Point:
    """What holds at one threshold. Raises StageError as `curve` does."""
    rows = sorted(scored, key=lambda s: (-s.p, s.question_id))
    return next(_points(rows, [threshold], prior, confidence))


def _points(
    rows: Sequence[Scored], thresholds: Iterable[float], prior: float | None, confidence: float
) -> Iterator[Point]:
    """Points of rows and thresholds that both fall."""
    wordings = Counter(s.question_id for s in rows)
    label = {s.question_id: s.evergreen for s in rows}
    odd = next((s for s in rows if not 0.0 <= s.p <= 1.0 or s.evergreen != label[s.question_id]), None)
    if odd is not None:
        raise StageError(f"question {odd.question_id} has a score outside [0, 1] or two labels")
    evergreen = sum(label.values())
    mutable = len(label) - evergreen
    if not evergreen or not mutable:
        raise StageError(
            f"a threshold needs both labels: {evergreen} evergreen and {mutable} mutable questions"
        )
    pi, tail = evergreen / len(label) if prior is None else prior, (1.0 - confidence) / 2
    kept = passed = 0.0
    left = iter([*rows, None])
    row = next(left)
    for threshold in thresholds:
        while row is not None and row.p >= threshold:
            if row.evergreen:
                kept += 1 / wordings[row.question_id]
            else:
                passed += 1 / wordings[row.question_id]
            row = next(left)
        tpr, fpr = min(1.0, kept / evergreen), min(1.0, passed / mutable)
        low = precision_at(pi, wilson(tpr, evergreen, tail)[0], wilson(fpr, mutable, tail)[1])
        yield Point(threshold, precision_at(pi, tpr, fpr), low, tpr, fpr, evergreen, mutable)


def choose(scored: Iterable[Scored], precision: float, prior: float | None, confidence: float) -> Point:
    """The smallest threshold whose precision is at least so much, by its lower bound.

    Raises StageError when there is none, with the best that there is.
    """
    points = list(curve(scored, prior, confidence))
    enough = [p for p in points if p.low >= precision]
    if enough:
        return enough[-1]
    best = max(points, key=lambda p: p.low)
    raise StageError(
        f"no threshold has a precision of {precision:g}: the highest lower bound is {best.low:.4f},"
        f" at {best.threshold:.4f} (estimate {best.precision:.4f})",
        cure="lower evergreen.filter.precision or confidence, or give more labelled questions",
    )


def precision_at(prior: float, tpr: float, fpr: float) -> float:
    """Share of the evergreen among what is at or above a threshold; 0 when nothing is."""
    right, wrong = prior * tpr, (1.0 - prior) * fpr
    return right / (right + wrong) if right + wrong > 0 else 0.0
