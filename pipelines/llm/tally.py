"""What a client did since it was opened, as figures.

Law: each answer is counted once, where it ended; what the store already had is no money spent now.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipelines.llm.answer import Failure

if TYPE_CHECKING:
    from pipelines.llm.store import Kept


@dataclass
class Spent:
    """What this client did since it was opened; tokens and money of requests asked now only.

    Tokens that a row cost, whoever asked, are in its answer's `usage`, which the store keeps.
    """

    asked: int = 0  # answers that came from the backend, failures included
    stored: int = 0  # answers that the store already had
    attempts: int = 0  # requests sent, retries included
    embedded: int = 0  # texts embedded now
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0  # answers asked now of which nobody knows what they cost
    failures: dict[Failure, int] = field(default_factory=dict)

    def count(self, kept: Kept, attempts: int) -> None:
        self.asked += 1
        self.attempts += attempts
        self.prompt_tokens += kept.usage.prompt_tokens
        self.completion_tokens += kept.usage.completion_tokens
        self.cost_usd += kept.usage.cost_usd
        if kept.failure is not None:
            self.failures[kept.failure] = self.failures.get(kept.failure, 0) + 1


@dataclass(frozen=True, slots=True)
class Pulse:
    """How a client stands: answers from the backend and from the store, and what is under way."""

    asked: int
    stored: int
    in_flight: int
    limit: int  # most in flight at present; 0 before the first question
    attempts: int
    embedded: int
    cost_usd: float
    unpriced: int = 0
