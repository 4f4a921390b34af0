"""Which problems may be neighbors of a problem, and which is nearest.

Law: a neighbor is another problem, its answer can be checked, and it gives away
nothing of the answer that is judged (Section 3 of the paper; the leak rules are
ours). Ranks are a function of the problems alone, never of their order.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.data.answers import checkable, mentions, share


@dataclass(frozen=True)
class Problem:
    """A problem as neighbors see it. `key` is that of its question."""

    key: str
    name: str
    question: str
    answer: str | None
    concepts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pair:
    """A problem that may become a neighbor. `near` is cosine plus the weight of shared concepts."""

    problem: Problem
    cosine: float
    shared: tuple[str, ...]
    near: float
    given: bool = False


def pair(
    target: Problem, other: Problem, cosine: float, concept_weight: float, *, given: bool = False
) -> Pair:
    """Scores one pair. Shared concepts count by their Jaccard index, in [0, 1]."""
    mine, theirs = set(target.concepts), set(other.concepts)
    shared = mine & theirs
    overlap = len(shared) / len(mine | theirs) if shared else 0.0
    near = round(cosine + concept_weight * overlap, 6)
    return Pair(other, round(cosine, 6), tuple(sorted(shared)), near, given)


def shortlist(pairs: Sequence[Pair], consider: int) -> list[Pair]:
    """Given neighbors first, then the nearest, at most `consider`; ties by key."""
    return sorted(pairs, key=lambda p: (not p.given, -p.near, p.problem.key))[:consider]


def objection(target: Problem, pair: Pair, min_near: float) -> tuple[str, str] | None:
    """Why a problem is no neighbor of `target` (a stable word, and more), or None."""
    other = pair.problem
    if same_text(target.question, other.question):
        return "same_question", other.name
    if not checkable(other.answer):
        return "no_checkable_answer", other.answer or "no answer is known"
    if target.answer is not None and mentions(other.question, target.answer):
        return "leak", f"its question states {target.answer!r}"
    if target.answer is not None and share(other.answer or "", target.answer):
        return "leak", f"its answer is {target.answer!r} too"
    if not pair.given and pair.near < min_near:
        return "too_far", f"{pair.near:.3f} < {min_near:g}"
    return None


def same_text(one: str, other: str) -> bool:
    """Whether two questions differ in case, punctuation, blanks or Unicode form alone."""
    return _bare(one) == _bare(other)


def _bare(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(c for c in folded if c.isalnum())
