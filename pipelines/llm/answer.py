"""What comes back for a request: a text, or a failure of a named kind.

Law: a failure is a value with a kind, never an empty text, None or an error message that could pass
for an answer; each kind has one policy. A row's failure never fails its neighbours; what would meet
every row alike stops the run, with all that was answered kept.

| kind           | what came                                    | asked again                | kept in store |
|----------------|----------------------------------------------|----------------------------|---------------|
| refused        | the model declined (`refusal`)               | never                      | yes           |
| length         | cut at max_tokens                            | never                      | with its text |
| content_filter | the seller's filter or moderation stopped it | never                      | yes           |
| empty          | white space alone                            | never                      | yes           |
| bad_request    | a 4xx of the request itself, unfit media     | in the next run            | no            |
| overloaded     | 429, a 402 that tells to wait                | as told, spends no retry,  | no            |
|                |                                              | at most `patience_s`       |               |
|                | 498, 503, 529                                | `retries` times            | no            |
| server_error   | another 5xx, 409, 499, an error within a 200 | `retries` times            | no            |
| timeout        | no connection, first byte or end in time,    | `retries` times            | no            |
|                | 408, 504                                     |                            |               |
| network        | the connection failed or broke               | `retries` times            | no            |
| broken_body    | no JSON of the protocol, a text broken off   | `retries` times            | no            |
| html           | a page in place of JSON                      | `retries` times            | no            |
| over_budget    | never sent: a cap of money                   | when the cap is raised     | no            |
| (stops all)    | 401: KeyRefused; 402, or a 429 or 400 for an | nothing more is sent; what | all before it |
|                | empty account: NoFunds; nothing answered     | is in flight is awaited    |               |
|                | for `outage_s`: EndpointGone; 3xx:           |                            |               |
|                | ConfigError; an untrusted certificate        |                            |               |
| (stops all)    | 403: KeyRefused; 404, 405: ConfigError, when | likewise; one alone is a   |               |
|                | they come in a row                           | bad_request of its row     |               |

"Asked again" waits with jitter, doubling from half a second, or as the server told (`patience.py`).
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
    HTML = "html"  # a gateway's or a portal's page
    OVER_BUDGET = "over_budget"


TRANSIENT = frozenset(
    {
        Failure.NETWORK,
        Failure.TIMEOUT,
        Failure.OVERLOADED,
        Failure.SERVER,
        Failure.BROKEN_BODY,
        Failure.HTML,
    }
)

# Failures of which nothing is stored: there is no answer.
UNANSWERED = TRANSIENT | {Failure.BAD_REQUEST, Failure.OVER_BUDGET}


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

    `text` is set when `failure` is None, and also for LENGTH (the cut text). `unpriced`: nobody knows what
    it cost; its `cost_usd` is 0.
    """

    request: Request
    id: str
    text: str = ""
    finish: str = ""
    usage: Usage = Usage()
    failure: Failure | None = None
    detail: str = ""
    stored: bool = False
    unpriced: bool = field(default=False, compare=False)

    @property
    def ok(self) -> bool:
        return self.failure is None
