"""How far a piece of work without model calls is: shown while it runs, never part of what it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pipelines.pace import Sight
from pipelines.progress import Progress


@contextmanager
def watched(name: str, what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Shows the work of a stage; what it yields is told how much more was done. None: total unknown."""
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more

    with Progress(name, what, lambda: Sight(done=done, total=total)):
        yield count
