"""Who asks a question, where several processes share a store.

Law: of all who want an answer at once, one asks and the others wait for what it stores. A claim is
a lock of the kernel's on one byte of a file beside the store, at the place that the question's key
names; so it ends with its holder, also by SIGKILL, and another takes it up.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections import Counter
from contextlib import suppress
from pathlib import Path
from threading import Lock

from pipelines.errors import EnvironmentFault

PLACE_DIGITS = 15  # of the key: 60 bits, within the largest offset of a file
_FLOCK = "@hhqqi0q"  # struct flock: type, whence, start, length, pid


class Claims:
    """The claims of one client on the questions of the store at `store`. Safe to use from several threads."""

    def __init__(self, store: Path) -> None:
        self._path = store.with_name(f"{store.stem}.claims")
        self._file: int | None = None
        self._held: Counter[str] = Counter()
        self._one = Lock()

    def take(self, key: str) -> bool:
        """Whether the question is ours to ask; each yes wants a `give`. Raises EnvironmentFault."""
        with self._one:
            if not self._held[key]:
                try:
                    self._lock(key, fcntl.F_WRLCK)
                except BlockingIOError:
                    return False
                except OSError as error:
                    what = f"questions cannot be claimed: {error.strerror}"
                    cure = "name a store on a disk whose files can be locked"
                    raise EnvironmentFault(what, where=str(self._path), cure=cure) from error
            self._held[key] += 1
            return True

    def give(self, key: str) -> None:
        """The question is over."""
        with self._one:
            self._held[key] -= 1
            if self._held[key] <= 0:
                del self._held[key]
                with suppress(OSError):
                    self._lock(key, fcntl.F_UNLCK)

    def close(self) -> None:
        """Give back all."""
        with self._one:
            if self._file is not None:
                os.close(self._file)
                self._file = None
            self._held.clear()

    def _lock(self, key: str, kind: int) -> None:
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        place = int(key[:PLACE_DIGITS], 16)
        # Locks of the open file, not of the process: two clients of one process are two askers.
        fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, os.SEEK_SET, place, 1, 0))
