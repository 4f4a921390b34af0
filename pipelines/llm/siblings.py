"""One sample of a question after the other, where each slot of a server reads a prompt anew.

Law: of those that share a key one has the turn, first come first served; the others hold nothing
meanwhile. So the slot that read the prompt takes its next sample too (llama.cpp chooses the free
slot that has most of it), and as many questions are under way as there are slots.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Siblings:
    """Turns by key, in one event loop. Of a key that nobody has or awaits nothing is kept."""

    def __init__(self) -> None:
        self._turns: dict[str, asyncio.Lock] = {}
        self._members: Counter[str] = Counter()

    @property
    def empty(self) -> bool:
        return not self._turns and not self._members

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[bool]:
        """Holds the turn of `key`; says whether another had it before."""
        lock = self._turns.setdefault(key, asyncio.Lock())
        follows = self._members[key] > 0
        self._members[key] += 1
        try:
            async with lock:
                yield follows
        finally:
            self._members[key] -= 1
            if not self._members[key]:
                del self._turns[key], self._members[key]
