"""How many requests one endpoint is sent at once, as a pure state machine; time is an argument.

Law: the limit rises while answers are good and is halved when the endpoint refuses (429) or is
overloaded (503, time-out), at most once per round trip, always within [floor, cap]; a halving that
does not help is taken back. It starts at the cap, which is what params allow.

- *Rise.* A good answer adds 1 below `threshold` (a doubling per round trip), then rise / limit, where rise
  is limit / 8 within [1, cap / 32]: from floor to cap in at most RISE_ROUNDS round trips.
- *Cut.* Only requests sent since the last change of the limit count, so a burst of refusals is one
  halving, not one each. A halving is a trial: were refusals caused by our load, half the load would take
  their share s to max(0, 2 s - 1). If the share after it is not nearer to that than to s, the endpoint
  refuses at random, the limit is restored, and that share (at most ACCEPTED_MOST) is henceforth
  `accepted`: only clearly more refusals than that are a new storm. Every TRUST_ROUNDS rounds it is
  tried anew. More than half refused is always overload.
- *Wait.* When more than half were refused, or the limit is at the floor, nothing is sent until the time
  that the refusals told. When the rate-limit headers say how much is left until a reset, no more than
  that is sent before it. The refused request itself always waits as told (`patience.py`).
- *Breaker.* BREAK_AFTER failures in a row (5xx, network, time-out, broken body), with no answer
  between, open it: nothing is sent for OPEN_S, doubling to OPEN_MOST_S, or ERRED_MOST_S while there is an
  endpoint that answers with errors; then one request alone is the probe. Its answer closes the breaker at
  the floor, its failure opens it again, its being cancelled lets another.

So in flight is never negative nor above the cap, and there is always a next instant to send.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from pipelines.llm.limits import SILENT, Limits

RISE_ROUNDS = 52
ROUND_LEAST = 16  # answers that a share is judged by
ACCEPTED_MOST = 0.5
TRUST_ROUNDS = 64
SIGMAS = 2.0  # of chance above `accepted`, before it counts as a storm
BREAK_AFTER = 16
OPEN_S, OPEN_MOST_S, ERRED_MOST_S = 0.5, 30.0, 2.0
PAUSE_S, PAUSE_MOST_S = 0.1, 60.0  # untold, doubling; and at most, whatever is told
WEIGHT = 1 / 16  # of the newest answer in the running means


class End(Enum):
    """How a request ended, as far as the endpoint's health goes."""

    GOOD = "good"  # any answer about the request itself, a 400 too
    REFUSED = "refused"  # 429
    OVERLOADED = "overloaded"  # 503, 529, time-out: refused, and a failure too
    FAILED = "failed"  # network: nobody answered
    ERRED = "erred"  # 5xx, broken body
    GONE = "gone"  # cancelled here: says nothing


FAILURES = frozenset({End.OVERLOADED, End.FAILED, End.ERRED})


@dataclass(frozen=True, slots=True)
class Ticket:
    """The right to send one request. `number` counts from 1; `probe`: sent alone, by a half-open breaker."""

    number: int
    epoch: int
    probe: bool = False


@dataclass(slots=True)
class Share:
    """Refused among answered."""

    answered: int = 0
    refused: int = 0

    def add(self, refused: bool) -> None:
        self.answered += 1
        self.refused += refused

    @property
    def value(self) -> float:
        return self.refused / self.answered if self.answered else 0.0


@dataclass(slots=True)
class Trial:
    """A halving under judgement: the limit and the share of refusals before it."""

    limit: float
    before: Share
    epoch: int  # of the requests sent before it, whose answers still come in


@dataclass(slots=True)
class Admission:
    """State of one endpoint. `cap` and `floor` in requests; all times are of one monotonic clock."""

    cap: int
    floor: int = 1
    limit: float = 0.0
    threshold: float = 0.0
    in_flight: int = 0
    sent: int = 0
    accepted: float = 0.0
    paused_until: float = 0.0
    failed_in_row: int = 0
    failed_probes: int = 0
    failing: float = 0.0  # running share of failures
    broken_since: float | None = None
    _epoch: int = 0
    _round: Share = field(default_factory=Share)
    _trial: Trial | None = None
    _rounds: int = 0
    _pauses: int = 0  # since the last good answer
    _told_until: float = 0.0
    _open_until: float = 0.0
    _probing: bool = False
    _left: int | None = None  # requests that the rate limit still allows
    _left_until: float = 0.0
    _tokens: float = 0.0  # running mean of a request

    def __post_init__(self) -> None:
        if not 1 <= self.floor <= self.cap:
            raise ValueError(f"floor {self.floor} and cap {self.cap}")
        self.limit = self.limit or float(self.cap)
        self.threshold = self.threshold or float(self.cap)

    def resize(self, cap: int) -> None:
        """Another cap; a limit that was at the cap stays there."""
        if cap != self.cap:
            top = float(cap)
            self.limit = top if self.limit >= self.cap else min(self.limit, top)
            self.threshold = top if self.threshold >= self.cap else min(self.threshold, top)
            self.cap = cap

    # -- in -----------------------------------------------------------------------------------

    def admit(self, now: float) -> Ticket | None:
        """A ticket when one more request may be sent now."""
        if self.broken_since is not None:
            if self._probing or now < self._open_until:
                return None
            self._probing = True
            return self._send(probe=True)
        if self.in_flight >= int(self.limit) or now < self.opens_at(now):
            return None
        if self._left is not None:
            self._left = None if now >= self._left_until else self._left - 1
        return self._send(probe=False)

    def opens_at(self, now: float) -> float:
        """When time alone would let the next request through; `now` when only an end can, or at once."""
        if self.broken_since is not None:
            return now if self._probing else max(now, self._open_until)
        spent = self._left is not None and self._left <= 0
        return max(now, self.paused_until, self._left_until if spent else now)

    def _send(self, *, probe: bool) -> Ticket:
        self.in_flight += 1
        self.sent += 1
        return Ticket(self.sent, self._epoch, probe)

    # -- out ----------------------------------------------------------------------------------

    def ended(self, ticket: Ticket, end: End, now: float, told: Limits = SILENT, tokens: int = 0) -> None:
        """The request of `ticket` ended; `told` is what its headers said, `tokens` what it used."""
        self.in_flight -= 1
        if ticket.probe:
            self._probed(end, now)
        if end is End.GONE:
            return
        failed = end in FAILURES
        self.failing += WEIGHT * (failed - self.failing)
        if tokens:
            self._tokens += (tokens - self._tokens) * (WEIGHT if self._tokens else 1)
        if told is not SILENT:
            self._heed(ticket, told, now)
        if ticket.epoch == self._epoch and not ticket.probe:
            self._count_failure(end, now)
        if end is End.GOOD:
            self._rise()
        if end not in (End.FAILED, End.ERRED):
            self._judge(ticket, end is not End.GOOD, now)

    def _heed(self, ticket: Ticket, told: Limits, now: float) -> None:
        if told.retry_after_s is not None:
            self._told_until = max(self._told_until, now + min(told.retry_after_s, PAUSE_MOST_S))
        left = told.requests_left
        if told.tokens_left is not None:
            fits = int(told.tokens_left / max(1.0, self._tokens))
            left = fits if left is None else min(left, fits)
        if left is not None and told.reset_s is not None:
            since = self.sent - ticket.number  # sent after it: the endpoint may not have counted them yet
            self._left = max(0, left - since)
            self._left_until = now + min(told.reset_s, PAUSE_MOST_S)

    # -- the limit ----------------------------------------------------------------------------

    def _rise(self) -> None:
        self._pauses = 0
        if self._trial is not None:  # its share is of one limit
            return
        rise = max(1.0, min(self.limit / 8, self.cap / 32))  # lest it leap over a small capacity
        step = 1.0 if self.limit < self.threshold else rise / self.limit
        self.limit = min(float(self.cap), self.limit + step)

    def _judge(self, ticket: Ticket, refused: bool, now: float) -> None:
        trial = self._trial
        if trial is not None and ticket.epoch == trial.epoch:
            trial.before.add(refused)
        if ticket.epoch != self._epoch or self.broken_since is not None:
            return
        self._round.add(refused)
        size = max(ROUND_LEAST, int(self.limit))
        if trial is not None:
            self._judge_trial(trial, size, now)
        elif refused and self._round.refused > self._chance(size):
            self._cut(now, Share(1, 1))
        elif self._round.answered >= size:
            self._end_round()

    def _chance(self, size: int) -> float:
        """The most refusals of a round that `accepted` explains."""
        a = self.accepted
        return a * size + SIGMAS * (size * a * (1 - a)) ** 0.5 if a < ACCEPTED_MOST else size / 2

    def _judge_trial(self, trial: Trial, size: int, now: float) -> None:
        share = self._round
        if share.refused > size / 2:  # far more than could be accepted: on downwards
            self._cut(now, Share(share.answered, share.refused), wait=True)
        elif share.answered >= size:
            s = trial.before.value
            helped = share.value <= (s + max(0.0, 2 * s - 1)) / 2
            self._trial = None
            if not helped:
                both = (trial.before.refused + share.refused) / (trial.before.answered + share.answered)
                self.accepted = min(ACCEPTED_MOST, both)
                self.limit = max(self.limit, trial.limit)
                self.threshold = max(self.threshold, trial.limit)
                self._epoch += 1
                self._rounds = 0
            self._round = Share()

    def _end_round(self) -> None:
        self.accepted += (self._round.value - self.accepted) / 8 if self.accepted else 0.0
        self.accepted = min(ACCEPTED_MOST, self.accepted)
        self._round = Share()
        self._rounds += 1
        if self._rounds >= TRUST_ROUNDS:
            self._rounds, self.accepted = 0, 0.0

    def _cut(self, now: float, before: Share, *, wait: bool = False) -> None:
        """Halve, to be judged by what follows; at the floor, or to `wait`, nothing is sent until told."""
        halved = max(float(self.floor), self.limit / 2)
        lower = halved < self.limit
        if wait or not lower:
            untold = now + min(PAUSE_MOST_S, PAUSE_S * 2.0 ** min(self._pauses, 10))
            self.paused_until = max(self.paused_until, self._told_until if self._told_until > now else untold)
            self._pauses += 1
        self._trial = Trial(self.limit, before, self._epoch) if lower else None
        self.limit = self.threshold = halved
        self._round = Share()
        self._epoch += 1

    # -- the breaker --------------------------------------------------------------------------

    def _count_failure(self, end: End, now: float) -> None:
        self.failed_in_row = self.failed_in_row + 1 if end in FAILURES else 0
        if self.failed_in_row >= BREAK_AFTER and self.broken_since is None:
            self.broken_since = now
            self._open(end, now)

    def _open(self, end: End, now: float) -> None:
        most = ERRED_MOST_S if end is End.ERRED else OPEN_MOST_S
        self._open_until = now + min(most, OPEN_S * 2.0 ** min(self.failed_probes, 10))

    def _probed(self, end: End, now: float) -> None:
        self._probing = False
        if end is End.GONE:
            return
        if end in FAILURES:
            self.failed_probes += 1
            self._open(end, now)
            return
        self.broken_since, self.failed_probes, self.failed_in_row = None, 0, 0
        self.threshold = max(float(self.floor), self.limit / 2)
        self.limit = float(self.floor)
        self._trial, self._round = None, Share()
        self._epoch += 1
