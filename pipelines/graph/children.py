"""Ending what was started: a stage, its shell, its model server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM and SIGHUP as an exception in the main thread, so that what was started is ended.

    One that is ignored stays so: `nohup` is meant to outlive its terminal.
    """
    import signal

    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    heard = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) is not signal.SIG_IGN]
    before = {s: signal.signal(s, stop) for s in heard}
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def end_children() -> None:
    """Ends all processes below this one: the stage, its shell, its model server."""
    import psutil

    children = psutil.Process().children(recursive=True)
    for child in children:
        with suppress(psutil.NoSuchProcess):
            child.terminate()
    _, alive = psutil.wait_procs(children, timeout=3)
    for child in alive:
        with suppress(psutil.NoSuchProcess):
            child.kill()
