"""What no signal may cut in two: a commit and the note of it, a lock and its release, a start and its name.

Python runs a signal's handler between any two instructions of the main thread, and Ctrl-C raises there.
Within `UNINTERRUPTED` the handlers wait for its end, in whatever depth. Other threads run no handlers.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _Uninterrupted:
    """A context manager of the process. Not a generator: between its start and its body a handler may run."""

    def __init__(self) -> None:
        self._depth = 0
        self._before: dict[int, Any] = {}
        self._came: list[int] = []

    def __enter__(self) -> None:
        if threading.get_ident() != threading.main_thread().ident:
            return
        if self._depth == 0:
            try:
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    if callable(handler := signal.getsignal(number)):
                        self._before[number] = handler
                        signal.signal(number, self._note)
            except BaseException:  # one whose turn was still to come
                self._put_back()
                raise
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        if threading.get_ident() != threading.main_thread().ident:
            return
        self._depth -= 1
        if self._depth == 0:
            came, self._came = self._came, []
            self._put_back()
            for number in came:
                signal.raise_signal(number)

    def _note(self, number: int, _: object) -> None:
        self._came.append(number)

    def _put_back(self) -> None:
        before, self._before, put = self._before, {}, signal.signal
        # A handler runs, and may raise, as soon as it is back; so all others are put back after it.
        try:
            if signal.SIGHUP in before:
                put(signal.SIGHUP, before[signal.SIGHUP])
        finally:
            try:
                if signal.SIGTERM in before:
                    put(signal.SIGTERM, before[signal.SIGTERM])
            finally:
                if signal.SIGINT in before:
                    put(signal.SIGINT, before[signal.SIGINT])


UNINTERRUPTED = _Uninterrupted()


def uninterrupted(call: Callable[P, T]) -> Callable[P, T]:
    """The call, within UNINTERRUPTED."""

    @wraps(call)
    def whole(*args: P.args, **named: P.kwargs) -> T:
        with UNINTERRUPTED:
            return call(*args, **named)

    return whole
