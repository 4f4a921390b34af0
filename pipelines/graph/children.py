"""Ending what was started: a stage, its shell, its model server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM as an exception in the main thread, so that what was started is ended."""
    import signal

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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
