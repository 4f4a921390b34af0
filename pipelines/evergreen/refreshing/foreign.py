"""Somebody's own code, loaded and called: a source of answers, a search tool.

Law: whatever it raises is a `Fault` of one line, whatever it prints goes to standard error, and a call
that takes longer than it may is broken off. Only Ctrl-C passes.

A call is timed by a signal, so in the main thread alone, where `headrace` and Dagster's runs ask; in
another thread it takes as long as it takes. What was timed around it goes on being timed.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

DETAIL_CHARS = 300


class Fault(Exception):
    """What somebody's code raised, as one line."""


class OutOfTime(BaseException):
    """No `Exception`, so that code which goes on after any of those does not go on after this one."""


def called(act: Callable[..., Any], *args: object, limit_s: float = 0.0) -> Any:
    """What `act` returns. `limit_s`: seconds that it may take, 0 for any. Raises Fault."""
    timed = limit_s > 0 and threading.current_thread() is threading.main_thread()
    try:
        with redirect_stdout(sys.stderr):
            return _timed(act, args, limit_s) if timed else act(*args)
    except KeyboardInterrupt:
        raise
    except OutOfTime as e:
        raise Fault(f"took longer than {limit_s:g} s") from e
    except BaseException as e:  # asyncio and others have ends of their own that are no Exception
        raise Fault(told_of(e)) from e


def told_of(error: BaseException) -> str:
    """An exception as one line."""
    try:
        said = str(error)
    except Exception as e:
        said = f"cannot be told: {type(e).__name__}"
    text = f"{type(error).__name__}: {said}".encode("utf-8", "backslashreplace").decode()
    return " ".join(text.split())[:DETAIL_CHARS]


def _timed(act: Callable[..., Any], args: tuple[object, ...], limit_s: float) -> Any:
    running = True

    def ring(*_: object) -> None:
        if running:
            raise OutOfTime

    started, before = time.monotonic(), signal.signal(signal.SIGALRM, ring)
    left, every = signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        return act(*args)
    finally:
        running = False
        signal.signal(signal.SIGALRM, before)
        after = max(1e-3, left - (time.monotonic() - started)) if left else 0.0
        signal.setitimer(signal.ITIMER_REAL, after, every)
