"""What answers cost, and the most that a question can cost before it is asked.

Law: money is counted in whole nano-dollars, rounded up, so that sums add up in any order. What a
seller says that it charges wins over the table; where the table is used, tokens that the seller had
cached cost their own price.

What an answer cost is known when it cost anything, when its model is named by the hash of its weights (so
that it ran here, or with nobody who bills), or when the table says that it is free. Else it is unknown,
which is never told as 0: a sum over such answers is told as "at least".

The bound on a question, which is what is held while it is under way: each token of a prompt is at
least one byte, so the bytes of the canonical request (some 200 more than the prompt's own, which
stand for the chat template) bound the prompt, and `max_tokens` the completion. For an image, sound
or film it is an allowance. The likely prompt, which `headrace preview` shows, is a third of its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.llm.answer import Usage
from pipelines.llm.request import Media, Request

MEDIA_TOKENS = {"image": 16_384, "audio": 32_768, "video": 131_072}
NANO = 10**9  # in a dollar
BY_NAME = "name:"  # how the identity of a model begins whose weights are unknown
BYTES_PER_TOKEN = 3  # likely, over languages and numbers


@dataclass(frozen=True)
class Price:
    """USD per million tokens; cached ones cost as much as others unless told."""

    prompt: float
    completion: float
    cached: float | None = None

    @property
    def free(self) -> bool:
        return not (self.prompt or self.completion or self.cached)

    def nano(self, usage: Usage) -> int:
        """What `usage` costs by this price, in nano-dollars, rounded up."""
        cached = min(usage.cached_tokens, usage.prompt_tokens)
        pico = (
            (usage.prompt_tokens - cached) * _pico(self.prompt)
            + cached * _pico(self.prompt if self.cached is None else self.cached)
            + usage.completion_tokens * _pico(self.completion)
        )
        return -(-pico // 1000)


FREE = Price(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Amount:
    """Money and tokens, as they are held and spent."""

    nano: int = 0
    tokens: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.nano + other.nano, self.tokens + other.tokens)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.nano - other.nano, self.tokens - other.tokens)

    def __bool__(self) -> bool:
        return bool(self.nano or self.tokens)


def charge(price: Price | None, usage: Usage) -> Amount:
    """What an answer cost: as the seller says, else by the price, else nothing in money."""
    nano = -(-round(usage.cost_usd * 1000 * NANO) // 1000) if usage.billed else 0
    if not usage.billed and price is not None:
        nano = price.nano(usage)
    return Amount(nano, usage.prompt_tokens + usage.completion_tokens)


def paid(usage: Usage) -> Amount:
    """What a stored answer cost, as it was charged then."""
    return Amount(round(usage.cost_usd * NANO), usage.prompt_tokens + usage.completion_tokens)


def unpriced(identity: str, usage: Usage, price: Price | None) -> bool:
    """Whether it is unknown what an answer cost, by what is stored of it and its model's price of now."""
    return not usage.cost_usd and identity.startswith(BY_NAME) and not (price is not None and price.free)


def told_usd(usd: float, unpriced: int, digits: int = 4) -> str:
    """A sum of money in words; `unpriced` of the answers in it have no known price."""
    if unpriced and not usd:
        return "unknown"
    return f"{'at least ' if unpriced else ''}{usd:,.{digits}f}"


def most(request: Request, canonical: str) -> Usage:
    """More tokens than the request can take, or as many."""
    parts = [p for _, said in request.messages if not isinstance(said, str) for p in said]
    media = sum(MEDIA_TOKENS[p.kind] for p in parts if isinstance(p, Media))
    completion = request.sampling.max_tokens if request.sampling is not None else 0
    return Usage(len(canonical.encode("utf-8", "replace")) + media, completion)


def likely_prompt_tokens(request: Request) -> int:
    """About how many tokens the prompt has."""
    total, media = len((request.prompt or "").encode("utf-8", "replace")), 0
    for _, said in request.messages:
        for part in (said,) if isinstance(said, str) else said:
            if isinstance(part, str):
                total += len(part.encode("utf-8", "replace"))
            else:
                media += MEDIA_TOKENS[part.kind] // 8
    return -(-total // BYTES_PER_TOKEN) + media


def price_of(prices: Mapping[str, Price], model: str, *, ours: bool) -> Price | None:
    """The price of a model; what runs here by our doing is free unless the table has it."""
    return prices.get(model) or (FREE if ours else None)


def _pico(usd_per_million: float) -> int:
    """Pico-dollars for one token."""
    return round(usd_per_million * 1_000_000)
