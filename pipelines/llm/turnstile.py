"""The one way to an endpoint: its admission, shared by all clients of this process, in fair turns.

Law: one address, one admission, whoever asks and from whichever thread. Who waits is let in by
turns of the lanes (`turns.py`). When the breaker opens, all who wait are told to choose their
address again: another replica may live.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from pipelines.llm.admission import Admission, End, Ticket
from pipelines.llm.limits import SILENT, Limits
from pipelines.llm.turns import Turns


@dataclass(frozen=True, slots=True)
class _Waiter:
    """Gets a ticket, or None: choose again."""

    loop: asyncio.AbstractEventLoop
    ticket: asyncio.Future[Ticket | None]


class Turnstile:
    """Before one address. Safe to use from the event loops of several threads."""

    def __init__(self, address: str, cap: int) -> None:
        self.address = address
        self.admission = Admission(cap)
        self._lock = threading.Lock()
        self._turns: Turns[tuple[int, Hashable], _Waiter] = Turns()
        self._timers: dict[asyncio.AbstractEventLoop, asyncio.TimerHandle] = {}
        self._members: dict[object, int] = {}
        self._answered_at = time.monotonic()

    async def enter(self, owner: object, lane: Hashable, *, first: bool = False) -> Ticket | None:
        """A ticket for one request, or None when the address should be chosen again."""
        with self._lock:
            ticket = None if self._turns else self.admission.admit(time.monotonic())
            if ticket is not None:
                return ticket
            loop = asyncio.get_running_loop()
            waiter = _Waiter(loop, loop.create_future())
            self._turns.push((id(owner), lane), waiter, first=first)
        self._pump()
        try:
            return await waiter.ticket
        except asyncio.CancelledError:
            done = waiter.ticket.done() and not waiter.ticket.cancelled()
            if done and (given := waiter.ticket.result()) is not None:
                self.ended(given, End.GONE)  # it was let in at the very moment
            raise

    def ended(self, ticket: Ticket, end: End, told: Limits = SILENT, tokens: int = 0) -> None:
        """The request of `ticket` is over."""
        with self._lock:
            was_open = self.admission.broken_since is not None
            now = time.monotonic()
            self.admission.ended(ticket, end, now, told, tokens)
            if end in (End.GOOD, End.REFUSED):
                self._answered_at = now
            opened = not was_open and self.admission.broken_since is not None
            turned_away = self._turns.pull(lambda _: True) if opened else []
        for waiter in turned_away:
            self._hand(waiter, None)
        if self._turns:
            self._pump()

    def turn_away(self, owner: object) -> None:
        """All of `owner` who wait are told to choose again."""
        with self._lock:
            waiting = self._turns.pull(lambda lane: lane[0] == id(owner))
        for waiter in waiting:
            self._hand(waiter, None)

    def broken_s(self) -> float:
        """Seconds since the breaker opened; 0 when it is closed."""
        since = self.admission.broken_since
        return 0.0 if since is None else time.monotonic() - since

    def silent_s(self) -> float:
        """Seconds since it answered, a refusal too, or since it was first asked."""
        return time.monotonic() - self._answered_at

    def _pump(self) -> None:
        """Let in who may go; then set the clock for the next."""
        let_in: list[tuple[_Waiter, Ticket]] = []
        with self._lock:
            now = time.monotonic()
            while self._turns:
                ticket = self.admission.admit(now)
                if ticket is None:
                    break
                while self._turns:
                    waiter = self._turns.pop()
                    if not waiter.ticket.done():
                        let_in.append((waiter, ticket))
                        break
                else:
                    self.admission.ended(ticket, End.GONE, now)
            wait_s = self.admission.opens_at(now) - now if self._turns else 0.0
            loops = {waiter.loop for waiter in self._turns.items()} if wait_s > 0 else set()
        for waiter, ticket in let_in:
            self._hand(waiter, ticket)
        for loop in loops:
            self._in(loop, self._arm, loop, wait_s)

    def _arm(self, loop: asyncio.AbstractEventLoop, wait_s: float) -> None:
        if (timer := self._timers.pop(loop, None)) is not None:
            timer.cancel()
        self._timers[loop] = loop.call_later(wait_s, self._pump)

    def _hand(self, waiter: _Waiter, ticket: Ticket | None) -> None:
        if not self._in(waiter.loop, self._give, waiter, ticket) and ticket is not None:
            self.ended(ticket, End.GONE)  # its loop is closed

    def _give(self, waiter: _Waiter, ticket: Ticket | None) -> None:
        if not waiter.ticket.done():
            waiter.ticket.set_result(ticket)
        elif ticket is not None:  # cancelled on the way
            self.ended(ticket, End.GONE)

    @staticmethod
    def _in(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *arguments: object) -> bool:
        """Run `call` in `loop`, at once where we are in it. False when the loop is closed."""
        if asyncio._get_running_loop() is loop:
            call(*arguments)
            return True
        try:
            loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            return False
        return True

    # -- members ------------------------------------------------------------------------------

    def join(self, owner: object, cap: int) -> None:
        """Requests of `owner` may come, at most `cap` in flight."""
        self._members[owner] = cap
        self._resize()

    def part(self, owner: object) -> bool:
        """Take `owner` away, from its own loop; whether nobody is left."""
        self.turn_away(owner)
        self._members.pop(owner, None)
        timer = self._timers.pop(asyncio.get_running_loop(), None)
        if timer is not None:
            timer.cancel()
        if self._members:
            self._resize()
        return not self._members

    def _resize(self) -> None:
        """The cap is the largest that a member's params allow."""
        with self._lock:
            self.admission.resize(max(self._members.values()))


_TURNSTILES: dict[str, Turnstile] = {}
_ALL = threading.Lock()


def join(address: str, owner: object, cap: int) -> Turnstile:
    """The turnstile before `address`, for requests of `owner`; `part` when done."""
    with _ALL:
        turnstile = _TURNSTILES.get(address)
        if turnstile is None:
            turnstile = _TURNSTILES[address] = Turnstile(address, cap)
        turnstile.join(owner, cap)
        return turnstile


def part(turnstile: Turnstile, owner: object) -> None:
    """`owner` asks no more; what was learnt of the address goes with the last owner."""
    with _ALL:
        if turnstile.part(owner):
            _TURNSTILES.pop(turnstile.address, None)
