"""Waiting for whoever writes now: another of ours, or a bare `dvc`.

Law: one process at a time writes, the second waits and says for whom, and a
lock ends with its process, however that ends. A bare `dvc` does not know our lock:
what it writes in place is read and mended under its own.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from pipelines.errors import EnvironmentFault

T = TypeVar("T")
WAIT_S = 1.0
BUSY = re.compile(r"busy, it is being blocked|Unable to acquire lock|being blocked by", re.I)


class Busy(Exception):
    pass


def to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def writer(root: Path, who: str, say: Callable[[str], None] = print) -> Iterator[None]:
    """The one writer's lock of this workspace."""
    with held(root / ".headrace" / "writer.lock", who, say):
        yield


@contextmanager
def held(path: Path, who: str, say: Callable[[str], None] = print) -> Iterator[None]:
    """A lock that ends with the process, however it ends. Waits for its holder and says for whom."""
    import fcntl

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = open(path, "ab+", buffering=0)  # noqa: SIM115 - held until the end of the block
    except OSError as e:
        raise EnvironmentFault(f"cannot take the lock: {e.strerror}", where=str(path)) from e
    with handle:
        said = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not said:
                    handle.seek(0)
                    say(f"waiting for {handle.read().decode(errors='replace').strip() or 'another run'}")
                    said = True
                time.sleep(WAIT_S / 4)
        with suppress(OSError):  # a full disk: the lock holds without a name
            handle.truncate(0)
            handle.write(f"{who} (PID {os.getpid()})\n".encode())
        yield


@contextmanager
def dvc_lock(root: Path) -> Iterator[None]:
    """DVC's own lock, under which a bare `dvc` writes dvc.lock. Raises Busy when one holds it for seconds."""
    from dvc.config import Config
    from dvc.lock import LockError, make_lock

    dvc = root / ".dvc"
    if not dvc.is_dir():
        yield
        return
    (dvc / "tmp").mkdir(exist_ok=True)
    hard = bool(Config(str(dvc))["core"].get("hardlink_lock"))
    lock = make_lock(str(dvc / "tmp" / "lock"), tmp_dir=str(dvc / "tmp"), hardlink_lock=hard)
    try:
        lock.lock()
    except LockError as e:
        raise Busy("it holds DVC's lock") from e
    try:
        yield
    finally:
        lock.unlock()


def until_free(act: Callable[[], T], say: Callable[[str], None]) -> T:
    """Runs `act` again while a bare `dvc` holds DVC's own locks."""
    said = False
    while True:
        try:
            return act()
        except Busy as e:
            if not said:
                say(f"waiting for a dvc command: {e}")
                said = True
            time.sleep(WAIT_S)


def by_whom(error: BaseException) -> str:
    """What is busy and the PID and command that hold it; without DVC's advice to remove the lock."""
    return " ".join(str(error).split("If there are no processes")[0].split())
