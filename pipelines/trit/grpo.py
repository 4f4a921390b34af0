"""Groups and advantages of GRPO (facts 1.2 rules 1 and 2; T3, T4, T6).

Law: a group is the members that share a key, whatever order they come in, and
it is whole or not used at all. Nothing here knows a position.
"""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

EPSILON = 1e-6  # added to the standard deviation

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Member(Generic[K]):
    """One sample of a group: the group's key, its sample index in it, its reward."""

    group: K
    sample: int
    reward: float


def groups(members: Iterable[Member[K]]) -> dict[K, list[Member[K]]]:
    """Members by key, each group in order of sample index."""
    found: dict[K, list[Member[K]]] = {}
    for member in members:
        found.setdefault(member.group, []).append(member)
    return {key: sorted(group, key=lambda m: m.sample) for key, group in found.items()}


def whole(samples: Iterable[int], size: int) -> bool:
    """True when the sample indices are 0 .. size-1, each once."""
    return sorted(samples) == list(range(size))


def mixed(rewards: Sequence[float]) -> bool:
    """True when the rewards differ: only then does a group teach anything."""
    return len(set(rewards)) > 1


def advantages(rewards: Sequence[float]) -> list[float]:
    """(r - mean) / (sample std + EPSILON) within one group; all 0 for equal rewards or a single member."""
    if not mixed(rewards):
        return [0.0] * len(rewards)
    mean, deviation = statistics.fmean(rewards), statistics.stdev(rewards)
    return [(r - mean) / (deviation + EPSILON) for r in rewards]
