"""Calls that wait for a disk, beside an event loop.

`ThreadPoolExecutor` takes no more calls once the main thread has ended, though others still run and ask:
an answer that came then was paid for and could not be kept. These threads go on to the end of the process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Call = tuple["Future[Any]", Callable[[], Any]]


class Aside:
    """Threads that make the calls in their order; started by the first one."""

    def __init__(self, name: str, most: int = 1) -> None:
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._live, name=f"{name}-{i}", daemon=True) for i in range(most)
        ]

    async def call(self, call: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """What the call returns or raises. If it has begun it is made, also when its caller is cancelled.

        One that comes after the end is made here and now.
        """
        if self._closed:
            return call(*args, **named)
        for thread in self._threads:
            if thread.ident is None:
                thread.start()
        future: Future[T] = Future()
        self._calls.put((future, partial(call, *args, **named)))
        return await asyncio.wrap_future(future)

    def is_current(self) -> bool:
        """Whether the caller runs in one of the threads."""
        return threading.current_thread() in self._threads

    def close(self, *, wait: bool) -> None:
        """End the threads once the calls that wait are made."""
        self._closed = True
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            if wait and thread.ident is not None:
                thread.join()

    def _live(self) -> None:
        while (one := self._calls.get()) is not None:
            future, call = one
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            del one, future, call  # what a caller dropped is not held until the next call
