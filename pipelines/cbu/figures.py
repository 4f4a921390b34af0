"""What a set of scores says as a whole: U and truncation by label, and the ranking figures.

Law: a figure stands beside the number of things it was taken over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.cbu.ranking import auc, best_is_right, mean, mean_win, recall
from pipelines.cbu.utility import Utility


@dataclass(frozen=True)
class Attempt:
    """A rollout as it ended: `v` is None when it was left out, for `reason`; `row` is its row id."""

    sample: int
    v: int | None
    reason: str = ""
    row: str = ""
    cut: bool = False  # by max_tokens


Attempts = Mapping[tuple[str | None, str], list[Attempt]]  # by candidate (None: baseline) and neighbor


def by_label(
    scores: Sequence[Utility], labels: Mapping[str, str | None], attempts: Attempts
) -> dict[str, Any]:
    """Mean U and lift, and the rates of rollouts left out and cut, of right, wrong and unknown ones."""
    found: dict[str, Any] = {}
    for label in ("right", "wrong", None):
        mine = [s for s in scores if labels[s.candidate] == label]
        if not mine:
            continue
        tried = [a for s in mine for t in s.trials for a in attempts[s.candidate, t.neighbor]]
        found[label or "unknown"] = {
            "candidates": len(mine),
            "utility": _rounded(mean(s.utility for s in mine)),
            "lift": _rounded(mean(s.lift for s in mine)),
            "rollouts": len(tried),
            "left_out": sum(a.v is None for a in tried),
            "cut_rate": _rounded(sum(a.cut for a in tried) / len(tried)) if tried else None,
        }
    return {"by_label": found}


def ranking_figures(scores: Sequence[Utility], labels: Mapping[str, str | None]) -> dict[str, Any]:
    """AUC, Acc@1, Recall@5 and MeanWin, averaged over the problems with right and wrong candidates."""
    pools: dict[str, tuple[list[float], list[float]]] = {}
    for score in scores:
        label = labels[score.candidate]
        if score.utility is not None and label is not None:
            right, wrong = pools.setdefault(score.group, ([], []))
            (right if label == "right" else wrong).append(score.utility)
    both = [pool for pool in pools.values() if all(pool)]
    return {
        "problems_with_both_labels": len(both),
        "problems_whose_candidates_differ": sum(len({*r, *w}) > 1 for r, w in pools.values()),
        "auc": _rounded(mean(auc(r, w) for r, w in both)),
        "acc_at_1": _rounded(mean(best_is_right(r, w) for r, w in both)),
        "recall_at_5": _rounded(mean(recall(r, w) for r, w in both)),
        "mean_win": _rounded(mean(mean_win(r, w) for r, w in both)),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 6)
