"""Consequence-based utility: what a candidate solution is worth as a worked example.

    U(C) = mean over Q* in N(Q) of mean over its counted rollouts of v(Q*, C*)

Law: the mean is macro, neighbor by neighbor (arXiv 2602.06291, Section 3). Only
right and wrong count; whatever could not be decided is left out of U and of n, and
counted. The result depends on no order.

Pure: a solver and a verifier are handed in, so that whatever is a candidate (a
solution, a translation, a narration, an answer) is scored here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pipelines.data.answers import Verdict

A = TypeVar("A")
Z95 = 1.959963984540054


@dataclass(frozen=True)
class Candidate:
    """What is judged. `group` names those that are ranked against each other."""

    key: str
    group: str
    text: str = ""


@dataclass(frozen=True)
class Neighbor:
    """A question whose answer can be checked."""

    key: str
    question: str = ""
    answer: str = ""


@dataclass(frozen=True)
class Trials:
    """The rollouts on one neighbor: v of the counted ones, in order; how many were left out."""

    neighbor: str
    values: tuple[int, ...]
    excluded: int = 0

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values)


@dataclass(frozen=True)
class Utility:
    """U of one candidate. None where a neighbor has no counted rollout.

    low, high: Wilson 95 % at the effective n of the macro mean. baseline: the same
    mean without any candidate; lift = utility - baseline. rank: 1 is best in its
    group, ties share the best place.
    """

    candidate: str
    group: str
    trials: tuple[Trials, ...]
    utility: float | None
    low: float | None = None
    high: float | None = None
    baseline: float | None = None
    lift: float | None = None
    rank: int | None = None

    @property
    def n(self) -> int:
        return sum(len(t.values) for t in self.trials)

    @property
    def excluded(self) -> int:
        return sum(t.excluded for t in self.trials)


Solver = Callable[["Candidate | None", Neighbor], Iterable[A]]  # attempts; None asks without a candidate
Verify = Callable[[A, Neighbor], Verdict]


def utility(
    candidates: Iterable[Candidate],
    neighbors: Callable[[Candidate], Iterable[Neighbor]],
    solver: Solver[A],
    verify: Verify[A],
) -> list[Utility]:
    """U of every candidate, ranked within its group, sorted by group, rank and key."""
    baselines: dict[str, Trials] = {}
    scored = []
    for candidate in candidates:
        near = sorted(neighbors(candidate), key=lambda n: n.key)
        for neighbor in near:
            if neighbor.key not in baselines:
                baselines[neighbor.key] = _trials(None, neighbor, solver, verify)
        trials = tuple(_trials(candidate, n, solver, verify) for n in near)
        scored.append(_score(candidate, trials, [baselines[n.key] for n in near]))
    return ranked(scored)


def _trials(candidate: Candidate | None, neighbor: Neighbor, solver: Solver[A], verify: Verify[A]) -> Trials:
    verdicts = [verify(attempt, neighbor) for attempt in solver(candidate, neighbor)]
    counted = [int(v is Verdict.RIGHT) for v in verdicts if v is not Verdict.UNVERIFIED]
    return Trials(neighbor.key, tuple(counted), len(verdicts) - len(counted))


def _score(candidate: Candidate, trials: tuple[Trials, ...], baseline: Sequence[Trials]) -> Utility:
    value, without = macro_mean(trials), macro_mean(baseline)
    if value is None:
        return Utility(candidate.key, candidate.group, trials, None, baseline=without)
    low, high = wilson(value, effective_n(trials))
    lift = None if without is None else value - without
    return Utility(candidate.key, candidate.group, trials, value, low, high, without, lift)


def macro_mean(trials: Sequence[Trials]) -> float | None:
    """Mean over neighbors of the mean over their counted rollouts; None when one has none."""
    if not trials or any(not t.values for t in trials):
        return None
    return math.fsum(t.mean for t in trials) / len(trials)


def effective_n(trials: Sequence[Trials]) -> float:
    """Rollouts that a plain mean of the same variance would need: k^2 / sum(1 / n_j), k neighbors."""
    return len(trials) ** 2 / math.fsum(1 / len(t.values) for t in trials)


def wilson(share: float, n: float, z: float = Z95) -> tuple[float, float]:
    """Wilson interval of a share of n trials, within [0, 1]. Raises ValueError unless n > 0."""
    if not n > 0:
        raise ValueError("an interval needs at least one trial")
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def ranked(scored: Iterable[Utility]) -> list[Utility]:
    """The same with ranks: 1 + how many of the group are better; equal U share a rank."""
    from dataclasses import replace

    groups: dict[str, list[Utility]] = {}
    for one in scored:
        groups.setdefault(one.group, []).append(one)
    result = []
    for group in groups.values():
        values = [o.utility for o in group if o.utility is not None]
        for one in group:
            mine = one.utility
            place = None if mine is None else 1 + sum(v > mine + 1e-12 for v in values)
            result.append(replace(one, rank=place))
    return sorted(result, key=lambda o: (o.group, o.rank is None, o.rank or 0, o.candidate))
