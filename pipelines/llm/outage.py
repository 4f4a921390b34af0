"""When an endpoint is given up, as a pure state machine; time is an argument.

Law: it is gone when it answered nothing for `outage_s`, and that is known: nothing could be sent, or the
first attempts of GONE_BY questions failed in a row as probes. Else the fault may be that of a few questions
which always fail; they spend their retries. It refuses all when for `patience_s` it only told us to wait.
What would end the run does so at once, but for what may be one question's own (`stops.DOUBTFUL`): that has to
come for GONE_BY of them with no answer between, and the endpoint must not have vouched for key and model.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pipelines.llm.protocol import Reply
from pipelines.llm.stops import gone, refuses_all

GONE_BY = 3


@dataclass(slots=True)
class Outage:
    """What is known of one backend. `where` in messages is an address."""

    outage_s: float
    patience_s: float
    _failed_first: int = 0  # probes in a row that were the first attempt of their question
    _refused_since: float | None = None  # with nothing else between
    vouched: bool = False  # the endpoint says by other means that key and model are right
    _turned_away: set[str] = field(default_factory=set)  # questions, with no answer between

    def ended(self, reply: Reply, where: str, now: float) -> None:
        """An attempt came to `reply`. Raises RefusesAll."""
        if 200 <= reply.status < 300:
            self._turned_away.clear()
        if not reply.throttled:
            self._refused_since = None
            return
        self._refused_since = now if self._refused_since is None else self._refused_since
        if (refused_s := now - self._refused_since) > self.patience_s:
            raise refuses_all(where, refused_s, reply.kept.detail)

    def turned_away(self, question: str) -> bool:
        """So was a question, by what may be its own fault. Whether that ends the run."""
        self._turned_away.add(question)
        return not self.vouched and len(self._turned_away) >= GONE_BY

    def probe_failed(self, reply: Reply, where: str, silent_s: float, *, first: bool) -> bool:
        """So did a probe, `silent_s` after the last answer. Whether it is free. Raises EndpointGone."""
        self._failed_first += first
        known = not reply.left or self._failed_first >= GONE_BY
        if known and silent_s > self.outage_s:
            raise gone(where, silent_s, reply.kept.detail)
        return first or not reply.left

    def probe_answered(self) -> None:
        self._failed_first = 0
