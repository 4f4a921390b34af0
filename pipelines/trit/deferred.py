"""The deferred reward: a translation is as good as the chance to solve it (TRIT, stage 2; T5, T6).

Law: a rollout belongs to the translation whose id it carries. One that could not
be verified is left out of Acc and counted; one that gave no answer is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from pipelines.trit.repetition import tokens


@dataclass(frozen=True)
class Rollout:
    """One response to one translation. `acc` is None when the comparison could not decide."""

    translation: str  # row id
    sample: int
    member: str  # row id of the response, accepted or not
    acc: int | None
    reward: float | None


@dataclass(frozen=True)
class Standing:
    """What the rollouts say of a translation. `acc` and `reward` are None when none could be verified."""

    acc: float | None
    reward: float | None
    verified: int
    unverified: int


def standing(rollouts: Iterable[Rollout]) -> Standing:
    """Acc = mean r_acc over the verified rollouts, r_trans = 1 iff Acc > 0."""
    known = list(rollouts)
    accs = [r.acc for r in known if r.acc is not None]
    if not accs:
        return Standing(None, None, 0, len(known))
    acc = sum(accs) / len(accs)
    return Standing(acc, 1.0 if acc > 0 else 0.0, len(accs), len(known) - len(accs))


INVALID = Standing(acc=None, reward=0.0, verified=0, unverified=0)  # no rollouts were spent on it


def likeness(text: str, reference: str | None) -> float | None:
    """Share of words (Dice, 0 to 1) that a translation has in common with a given one; None without one.

    It judges nothing (*ours*): it finds the rewarded translations that say something
    else, which the deferred reward cannot see ("boxes" that became "spoons").
    """
    if reference is None:
        return None
    own, given = Counter(tokens(text.casefold())), Counter(tokens(reference.casefold()))
    both = own.total() + given.total()
    return round(2 * (own & given).total() / both, 6) if both else None


def false_zero(p: float, g: int) -> float:
    """Chance that a faithful translation gets reward 0 when a rollout is right with probability p (T5)."""
    return float((1 - p) ** g)
