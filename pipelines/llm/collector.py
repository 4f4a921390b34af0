"""Python's collector of cycles, while requests are under way.

A request under way is some sixty objects that live until its answer is stored. Python by itself looks for
cycles among all young objects whenever there are 700 more, so mostly among those in use: an eighth of the
CPU of a new row. With THRESHOLD it is a fiftieth; what cycles there are wait for the same number of objects.

The collector also ends generators that nobody holds, in whichever thread it runs and whatever locks that one
has just then. Who ends so must not wait for another thread: `collecting` says it. That is noted by C alone: a
signal that came meanwhile is raised in the first Python code thereafter, and what a callback of the collector
raises is dropped, so one of Python would lose a Ctrl-C now and then.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import RLock

THRESHOLD = 10_000


class _Phase(set[str]):
    """What the collector tells at its start, until it tells the same at its end."""

    start = property(None, set.update)
    stop = property(None, set.difference_update)


class _Collector:
    def __init__(self) -> None:
        self._one = RLock()  # the collector itself may end a generator within, in the midst of this
        self._within = 0
        self._before = 0  # the threshold that is to be put back, if any
        self._phase = _Phase()
        gc.callbacks.append(partial(setattr, self._phase))  # called with "start" or "stop", and a mapping

    def collecting(self) -> bool:
        """Whether this thread, or another, is within the collector."""
        return bool(self._phase)

    @contextmanager
    def seldom(self) -> Iterator[None]:
        """Collect seldom while anybody, in any thread, is within; a threshold that is higher, or 0, stays."""
        with self._one:
            self._within += 1
            young, *older = gc.get_threshold()
            if self._within == 1 and 0 < young < THRESHOLD:
                self._before = young
                gc.set_threshold(THRESHOLD, *older)
        try:
            yield
        finally:
            with self._one:
                self._within -= 1
                if not self._within and self._before:
                    gc.set_threshold(self._before, *gc.get_threshold()[1:])
                    self._before = 0


_COLLECTOR = _Collector()
seldom, collecting = _COLLECTOR.seldom, _COLLECTOR.collecting
