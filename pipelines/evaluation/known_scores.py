"""The uncertainty scores that files bring, each turned so that higher = less sure.

Law: a score's direction is stated here once and used everywhere; a value that is no finite number is
none. AdaRAGUE's energy_score is high where the answer is sure (its AUROC for wrong answers is below one
half as it stands), and so is any confidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

LESS_SURE = (
    "perplexity", "mean_entropy", "max_entropy", "ln_entropy", "eigen_score", "lexical_similarity",
    "token_sar", "sar", "eigval_laplacian", "retrieval_need",
)  # fmt: skip
SURER = ("energy_score",)
PREFIXES = {"uncertainty_": 1.0, "confidence_": -1.0}  # of columns with names of their own


def direction(name: str) -> float | None:
    """1 where higher = less sure, -1 where lower is, None for no known score."""
    word = name.strip().casefold()
    if word in LESS_SURE:
        return 1.0
    if word in SURER:
        return -1.0
    return next((sign for prefix, sign in PREFIXES.items() if word.startswith(prefix)), None)


def oriented(name: str, value: Any) -> float | None:
    """The value turned; None for an empty one. Raises ValueError for what is no finite number."""
    sign = direction(name)
    if sign is None:
        raise ValueError(f"no known score: {name!r}")
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is no number")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as e:
        raise ValueError(f"{str(value)[:40]!r} is no number") from e
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not finite")
    return sign * number + 0.0


def scores_of(values: Mapping[str, Any]) -> dict[str, float]:
    """All scores of a record, by name, turned. Raises ValueError naming the column."""
    found: dict[str, float] = {}
    for name, value in values.items():
        if direction(name) is None:
            continue
        try:
            number = oriented(name, value)
        except ValueError as e:
            raise ValueError(f"{name}: {e}") from e
        if number is not None:
            found[name.strip().casefold()] = number
    return found
