"""What comes back for a request: a text, or a failure of a named kind.

Law: a failure is a value with a kind, never an empty text, None or an error
message that could pass for an answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from pipelines.llm.request import Request


class Failure(StrEnum):
    """Why there is no usable text. `TRANSIENT` ones may pass if asked again."""

    LENGTH = "length"  # cut by max_tokens: kept, typed, not success
    FILTERED = "content_filter"
    REFUSED = "refused"
    BAD_REQUEST = "bad_request"  # 4xx of the request itself: never retried
    EMPTY = "empty"
    NETWORK = "network"
    TIMEOUT = "timeout"
    OVERLOADED = "overloaded"  # 429 or 503 to the end
    SERVER = "server_error"
    BROKEN_BODY = "broken_body"
    OVER_BUDGET = "over_budget"


TRANSIENT = frozenset(
    {Failure.NETWORK, Failure.TIMEOUT, Failure.OVERLOADED, Failure.SERVER, Failure.BROKEN_BODY}
)


@dataclass(frozen=True)
class Usage:
    """Tokens as the server counted them, and money in USD (0 for embedded models).

    `cached_tokens` are those of the prompt's that the server had computed before and charges less for;
    `billed`: `cost_usd` is what the server itself said that it charges.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    cached_tokens: int = 0
    billed: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Answer:
    """The answer to `request`. `id` is its key in the store; `stored` says it was not asked now.

    `text` is set when `failure` is None, and also for LENGTH (the cut text).
    """

    request: Request
    id: str
    text: str = ""
    finish: str = ""
    usage: Usage = Usage()
    failure: Failure | None = None
    detail: str = ""
    stored: bool = False

    @property
    def ok(self) -> bool:
        return self.failure is None
