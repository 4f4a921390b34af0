"""How long to go on asking, as a pure state machine.

Law: a failure that may pass (5xx, time-out, broken connection or body) spends one of `retries`;
being told to wait (429) spends none, only the total patience; everything else ends at once. To be told to
wait for no time at all, or until what is past, is to be told nothing. Only such refusals in a row make the
next wait longer: who was told how long waited as told, and is owed no longer wait for that.
While the endpoint answers others well (`steady`), a failure was this request's bad luck, and a long
wait would help nobody: it is asked again within STEADY_BACKOFF_S.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.llm.answer import TRANSIENT
from pipelines.llm.protocol import Reply

FIRST_BACKOFF_S = 0.5  # doubles with each failure
MAX_BACKOFF_S = 30.0
STEADY_BACKOFF_S = 1.0
LEAST_S = 0.1  # of patience that a 429 spends, so that thousands of short waits end too


@dataclass
class Patience:
    """State of one request over its attempts."""

    retries: int
    patience_s: float
    failed: int = 0
    untold: int = 0  # refusals in a row that did not tell how long to wait
    waited_s: float = 0.0

    def wait_after(self, reply: Reply, jitter: float, *, steady: bool = False) -> float | None:
        """Seconds until the next attempt, or None when `reply` is final. `jitter` in [0, 1)."""
        if reply.kept.failure not in TRANSIENT:
            return None
        if reply.throttled:
            return self.after_refusal(reply.retry_after_s, jitter)
        return self.after_failure(reply.retry_after_s, jitter, steady=steady)

    def after_refusal(self, told_s: float | None, jitter: float) -> float | None:
        """`wait_after` a 429 that told to wait for `told_s`."""
        self.untold = 0 if told_s else self.untold + 1
        wait = _told_or_backoff(told_s, self.untold, jitter, MAX_BACKOFF_S)
        self.waited_s += max(wait, LEAST_S)
        return wait if self.waited_s <= self.patience_s else None

    def after_failure(self, told_s: float | None, jitter: float, *, steady: bool = False) -> float | None:
        """`wait_after` a failure that may pass."""
        self.failed += 1
        if self.failed > self.retries:
            return None
        wait = _told_or_backoff(told_s, self.failed, jitter, STEADY_BACKOFF_S if steady else MAX_BACKOFF_S)
        return wait if wait <= self.patience_s else None


def _told_or_backoff(told_s: float | None, count: int, jitter: float, most_s: float) -> float:
    """As told, plus up to a tenth so that not all come back at once; else full jitter in [b/2, b)."""
    if told_s:
        return told_s * (1 + jitter / 10)
    backoff = min(most_s, FIRST_BACKOFF_S * 2.0 ** min(count - 1, 10))
    return backoff * (0.5 + jitter / 2)
