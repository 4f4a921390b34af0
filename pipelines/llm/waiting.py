"""Waiting for what other runs ask: for whom, since when, and until when.

Law: who waits for longer than NOTICE_S says so, for whom and for how many answers, and again when that
changes or after AGAIN_S. A claimant that got nowhere for `stalled_s`, all of them watched by a clock that
stands while this machine sleeps, is waited for no longer: its questions are asked here, and it is told
what that may cost. One that died is no claimant: the kernel frees its questions at once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection

from pipelines.llm.claimants import Claimant
from pipelines.llm.claims import Claims

LOOK_S = 0.5  # between two looks at who holds what
NOTICE_S = 3.0
AGAIN_S = 60.0


class Waiting:
    """The waits of one asker. `stalled`: who stands in its way no longer, with the pulse of then."""

    def __init__(
        self,
        claims: Claims,
        say: Callable[[str], None],
        stalled_s: float,
        what: str = "answers",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._claims, self._say, self._stalled_s, self._what = claims, say, stalled_s, what
        self._clock = clock
        self.stalled: dict[str, int] = {}
        self._since: float | None = None
        self._look_at = 0.0
        self._seen: dict[str, tuple[int, float]] = {}  # its last pulse, and when we first saw that
        self._told: frozenset[str] = frozenset()
        self._told_at = 0.0

    def look(self, keys: Collection[str]) -> None:
        """See who asks `keys`, which we wait for; none when we wait for nothing."""
        now = self._clock()
        if not keys:
            self._since, self._told = None, frozenset()
            self._seen.clear()
            return
        self._since = now if self._since is None else self._since
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S
        holders = self._claims.holders(keys, self.stalled)
        self._seen = {claimant: seen for claimant, seen in self._seen.items() if claimant in holders}
        for claimant in holders.keys() - {self._claims.claimants.id}:
            self._watch(claimant, holders[claimant], now)
        if now - self._since >= NOTICE_S:
            self._tell(Counter({c: n for c, n in holders.items() if c not in self.stalled}), now)

    def _watch(self, claimant: str, count: int, now: float) -> None:
        seen = self._claims.other(claimant)
        pulse = -1 if seen is None else seen.pulse
        if claimant not in self._seen or self._seen[claimant][0] != pulse:
            self._seen[claimant] = pulse, now
            self.stalled.pop(claimant, None)  # it goes on
        elif claimant not in self.stalled and now - self._seen[claimant][1] >= self._stalled_s:
            self.stalled[claimant] = pulse
            who = self._name(claimant)
            self._say(
                f"asks {count} questions itself: {who} holds them, and has answered nothing for "
                f"{self._stalled_s:g} s; what it asks all the same is paid for twice"
            )

    def _tell(self, holders: Counter[str], now: float) -> None:
        if not holders or (frozenset(holders) == self._told and now - self._told_at < AGAIN_S):
            return
        self._told, self._told_at = frozenset(holders), now
        for claimant, count in holders.most_common():
            whose = f"{self._name(claimant)} asks{self._more(claimant)}"
            self._say(f"waits for {count} {self._what} that {whose}")

    def _name(self, claimant: str) -> str:
        if claimant == self._claims.claimants.id:
            return "another call of this very run"
        return str(self._who(claimant) or "another run")

    def _who(self, claimant: str) -> Claimant | None:
        seen = self._claims.other(claimant)
        return None if seen is None else seen.who

    def _more(self, claimant: str) -> str:
        told = self._who(claimant)
        if told is None or not told.stopped:
            return ""
        return f"; it is stopped: `kill -CONT {told.pid}` lets it go on, `kill -9 {told.pid}` frees them"
