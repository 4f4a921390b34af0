"""Who is next: round robin over lanes, first come first served within one.

Law: a lane with one waiter waits at most one turn of each other lane, however many wait there.
A lane is one stage's (purpose's) line; a retry goes to its head, for its row is the oldest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

L = TypeVar("L", bound=Hashable)
T = TypeVar("T")


class Turns(Generic[L, T]):
    """Items that wait, by lane."""

    def __init__(self) -> None:
        self._lanes: dict[L, deque[T]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def push(self, lane: L, item: T, *, first: bool = False) -> None:
        waiting = self._lanes.setdefault(lane, deque())
        if first:
            waiting.appendleft(item)
        else:
            waiting.append(item)
        self._count += 1

    def pop(self) -> T:
        """The next item; its lane goes behind the others. Raises StopIteration when none waits."""
        lane = next(iter(self._lanes))
        waiting = self._lanes.pop(lane)
        item = waiting.popleft()
        if waiting:
            self._lanes[lane] = waiting
        self._count -= 1
        return item

    def items(self) -> list[T]:
        """All that wait."""
        return [item for lane in self._lanes.values() for item in lane]

    def pull(self, of: Callable[[L], bool]) -> list[T]:
        """The items of the lanes chosen, which wait no longer."""
        lanes = [lane for lane in self._lanes if of(lane)]
        items = [item for lane in lanes for item in self._lanes.pop(lane)]
        self._count -= len(items)
        return items


class Places:
    """A number of places in one event loop, taken in fair turns. `take` never exceeds `limit`."""

    def __init__(self, limit: int) -> None:
        self.limit, self.taken = limit, 0
        self._turns: Turns[Hashable, asyncio.Future[None]] = Turns()
        self._failure: BaseException | None = None

    async def take(self, lane: Hashable, *, first: bool = False) -> None:
        """Returns with a place. Raises what `fail` was given."""
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if self.taken < self.limit and not self._turns:
            self.taken += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.push(lane, place, first=first)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self.give()  # it was given in the very moment
            raise

    def give(self) -> None:
        """Give one back."""
        self.taken -= 1
        while self._turns and self.taken < self.limit:
            place = self._turns.pop()
            if not place.done():
                place.set_result(None)
                self.taken += 1

    def add(self, more: int) -> None:
        """Places taken beyond the limit, by answers that came in one call: less is let in until they go."""
        self.taken += more

    def fail(self, why: BaseException) -> None:
        """Give no more: whoever waits, or comes later, gets `why`."""
        self._failure = why
        for place in self._turns.pull(lambda _: True):
            if not place.done():
                place.set_exception(why)
