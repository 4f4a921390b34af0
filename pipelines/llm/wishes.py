"""What is said to a wish to spend, and what a dead holder's holdings come to: the pure part of the ledger.

Law: what is spent, held and granted together exceeds no limit. Of what a dead holder held, a question that
the store answers costs what its answer did. Of the rest at most as many as were in flight at once can have
been billed: the dearest of them count in full, the others never left and are given back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pipelines.llm.prices import NANO, Amount

NOTHING = Amount()
Place = tuple[str, str]  # ("run", its id): whose sum it is


@dataclass(frozen=True, slots=True)
class Limit:
    """A cap on one sum; None where money or tokens have none."""

    place: Place
    usd: float | None = None
    tokens: int | None = None

    def over(self, amount: Amount) -> str:
        """Which cap `amount` exceeds, as params.yaml names it; "" for none."""
        if self.usd is not None and amount.nano > int(self.usd * NANO):
            return f"llm.caps.{self.place[0]}.usd of {self.usd:g}"
        if self.tokens is not None and amount.tokens > self.tokens:
            return f"llm.caps.{self.place[0]}.tokens of {self.tokens}"
        return ""


class Word(StrEnum):
    """What is said to a wish."""

    WITHIN = "within"
    LATER = "later"  # it would fit if what is held turned out cheaper
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The word on one wish, and the cap in its way."""

    word: Word
    cap: str = ""


def decide(
    limits: Sequence[Limit],
    spent: Mapping[Place, Amount],
    held: Mapping[Place, Amount],
    wishes: Sequence[Amount],
) -> list[Verdict]:
    """A verdict on each wish, in order: none passes one that waits before it."""
    taken = {limit.place: held.get(limit.place, NOTHING) for limit in limits}
    verdicts: list[Verdict] = []
    waiting = ""
    for wish in wishes:
        never = next((c for x in limits if (c := x.over(spent.get(x.place, NOTHING) + wish))), "")
        if never:
            verdicts.append(Verdict(Word.OVER, never))
            continue
        sums = {x.place: spent.get(x.place, NOTHING) + taken[x.place] + wish for x in limits}
        waiting = waiting or next((c for x in limits if (c := x.over(sums[x.place]))), "")
        if waiting:
            verdicts.append(Verdict(Word.LATER, waiting))
            continue
        verdicts.append(Verdict(Word.WITHIN))
        for place in taken:
            taken[place] += wish
    return verdicts


@dataclass(frozen=True, slots=True)
class Holding:
    """A question that a holder held for, in `places`, under the key of its answer."""

    key: str
    places: tuple[Place, ...]
    amount: Amount


def left_by(
    holdings: Sequence[Holding], stored: Mapping[str, Amount], in_flight: int | None
) -> Iterator[tuple[Holding, Amount]]:
    """What each holding of a dead holder came to; `in_flight` None: all of them may have left."""
    open_ = [h for h in holdings if h.key not in stored]
    dearest = sorted(open_, key=lambda h: (-h.amount.nano, -h.amount.tokens, h.key))
    billed = {id(h) for h in dearest[:in_flight]}
    for holding in holdings:
        paid = holding.amount if id(holding) in billed else NOTHING
        yield holding, stored.get(holding.key, paid)
