"""How well scores tell right from wrong candidates of one problem (the paper's Table 6).

Law: ties share. A figure that a problem cannot give (no right or no wrong
candidate) is None and never 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

TIE = 1e-9


def auc(right: Sequence[float], wrong: Sequence[float]) -> float | None:
    """Share of (right, wrong) pairs in which the right one is higher; an equal pair counts half."""
    if not right or not wrong:
        return None
    return math.fsum(_above(r, w) for r in right for w in wrong) / (len(right) * len(wrong))


def best_is_right(right: Sequence[float], wrong: Sequence[float]) -> float | None:
    """Acc@1: share of right ones among those that tie for the best place."""
    if not right or not wrong:
        return None
    top = max(*right, *wrong) - TIE
    first, all_first = sum(r >= top for r in right), sum(s >= top for s in (*right, *wrong))
    return first / all_first


def recall(right: Sequence[float], wrong: Sequence[float], places: int = 5) -> float | None:
    """Recall@places: expected share of the right ones in the first places, a tie across the cut shared."""
    if not right or not wrong:
        return None
    taken = 0.0
    scores = (*right, *wrong)
    for mine in right:
        better = sum(s > mine + TIE for s in scores)
        equal = sum(abs(s - mine) <= TIE for s in scores)
        taken += min(1.0, max(0.0, (places - better) / equal))
    return taken / len(right)


def mean_win(right: Sequence[float], wrong: Sequence[float]) -> float | None:
    """Whether the mean right score is above the mean wrong one; 0.5 when equal."""
    if not right or not wrong:
        return None
    return _above(math.fsum(right) / len(right), math.fsum(wrong) / len(wrong))


def human_win(expert: float, wrong: Sequence[float]) -> float | None:
    """Whether the expert's score is above the mean wrong one; 0.5 when equal."""
    return _above(expert, math.fsum(wrong) / len(wrong)) if wrong else None


def mean(values: Iterable[float | None]) -> float | None:
    """Mean over the problems that have the figure."""
    known = [v for v in values if v is not None]
    return math.fsum(known) / len(known) if known else None


def _above(one: float, other: float) -> float:
    return 0.5 if abs(one - other) <= TIE else float(one > other)
