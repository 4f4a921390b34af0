"""Who asks a question, where several processes share a store.

Law: of all who want an answer at once, one asks and the others wait for what it stores. A claim is
a lock of the kernel's on one byte of a file beside the store, at the place that the question's key
names; so it ends with its holder, also by SIGKILL, and another takes it up.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path
from threading import RLock

from pipelines.errors import EnvironmentFault

PLACE_DIGITS = 15  # of the key: 60 bits, within the largest offset of a file
_FLOCK = "@hhqqi0q"  # struct flock: type, whence, start, length, pid


class Claims:
    """The claims of one client on the questions of the store at `store`. Safe to use from several threads.

    An owner is whoever takes and gives: one call of `Client.answers`, by the queue that it reads.
    """

    def __init__(self, store: Path) -> None:
        self._path = store.with_name(f"{store.stem}.claims")
        self._file: int | None = None
        self._held: dict[str, object] = {}
        self._one = RLock()  # a generator that the collector ends gives its claims back within a `take`

    def take(self, key: str, owner: object) -> bool:
        """Whether the question is the owner's to ask, from now on. Raises EnvironmentFault."""
        with self._one:
            if key in self._held:
                return False
            try:
                self._lock(key, fcntl.F_WRLCK)
            except BlockingIOError:
                return False
            except OSError as error:
                what = f"questions cannot be claimed: {error.strerror}"
                cure = "make its folder writable, on a disk whose files can be locked"
                raise EnvironmentFault(what, where=str(self._path), cure=cure) from error
            self._held[key] = owner
            return True

    def give(self, key: str, owner: object) -> None:
        """The question is over for this owner; nothing if it is another's."""
        with self._one:
            if self._held.get(key) is owner:
                del self._held[key]
                with suppress(OSError):
                    self._lock(key, fcntl.F_UNLCK)

    def give_all(self, owner: object) -> None:
        """The owner asks nothing more."""
        with self._one:
            for key in [k for k, held_by in self._held.items() if held_by is owner]:
                self.give(key, owner)

    def close(self) -> None:
        """Give back all."""
        with self._one:
            self._held.clear()
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _lock(self, key: str, kind: int) -> None:
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        place = int(key[:PLACE_DIGITS], 16)
        # Locks of the open file, not of the process: two clients of one process are two askers.
        fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, os.SEEK_SET, place, 1, 0))
