"""Who asks which questions of a store: a file for each client, in a folder beside it.

Law: a file says in its first line whose it is, then in words of 64 bits its pulse and the questions that it
asks, 0 where none. Its first byte is locked as long as its owner lives: what a dead one's file says counts
for nothing, also after SIGKILL. The pulse changes whenever questions are taken or end, and now and then while
any is under way, so others see that its owner gets on. A forked child has no part in it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import struct
import uuid
from array import array
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakSet

RUN_VARIABLE = "HEADRACE_RUN_ID"
WORD = "Q"
BYTES = 8
_FLOCK = "@hhqqi0q"  # struct flock: type, whence, start, length, pid


@dataclass(frozen=True)
class Claimant:
    """Who asks: a process, with the stage that it runs, its folder and its run."""

    pid: int
    stage: str = ""
    folder: str = ""
    run: str = ""

    @property
    def stopped(self) -> bool:
        """Whether the process is stopped (SIGSTOP, Ctrl-Z)."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in ("T", "t")
        except (OSError, IndexError):
            return False

    def __str__(self) -> str:
        told = [self.stage, f"in {self.folder}" if self.folder else "", f"run {self.run}" if self.run else ""]
        more = ", ".join(t for t in told if t)
        return f"PID {self.pid}" + (f" ({more})" if more else "")


@dataclass(frozen=True)
class Seen:
    """What the file of a living claimant says."""

    claimant: str
    head: bytes
    pulse: int
    asks: Collection[int]

    @property
    def who(self) -> Claimant | None:
        """None when it cannot be read."""
        try:
            told = json.loads(self.head)
            return Claimant(int(told["pid"]), str(told["stage"]), str(told["folder"]), str(told["run"]))
        except (ValueError, KeyError, TypeError):
            return None


class Claimants:
    """The files in `folder`, of which one is ours once we `sign`. Their names are the claimants' ids."""

    def __init__(self, folder: Path, stage: str = "") -> None:
        self.id = ""
        self.folder, self._stage = folder, stage
        self._file: int | None = None
        self._words_at = self._size = 0
        self._pulse = 0

    def sign(self) -> bool:
        """Lay our file, unless it is there; whether it was laid now. Raises OSError.

        It is laid anew, under another id, where somebody took it away or cut it.
        """
        if self._is_there():
            return False
        self.close()
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.iterdir():
            with suppress(OSError):
                self._sweep(path)
        told = {"pid": os.getpid(), "stage": self._stage, "folder": str(Path.cwd())}
        head = json.dumps(told | {"run": os.environ.get(RUN_VARIABLE, "")}).encode() + b"\n"
        self.id = uuid.uuid4().hex
        self._file = os.open(self.folder / self.id, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        _OPEN.add(self)
        try:
            # A lock of the open file, not of the process: two clients of one process are two askers.
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _first_byte())
            self._words_at, self._size = len(head), 0
            self._put(head, 0)
            self.beat()
        except OSError:
            self.close()
            raise
        return True

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                path = self.folder / self.id
                if os.path.samestat(os.fstat(file), path.stat()):
                    path.unlink()
            os.close(file)

    def forget(self) -> None:
        """In a forked child: the file is its parent's."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def write(self, first: int, asks: Sequence[int]) -> None:
        """Say what we ask, from the place `first` (from 0) on. Raises OSError; nothing when not signed."""
        self._put(array(WORD, asks).tobytes(), self._words_at + (1 + first) * BYTES)

    def beat(self) -> None:
        """Let others see that we get on. Raises OSError; nothing when not signed."""
        self._pulse += 1
        self._put(array(WORD, [self._pulse]).tobytes(), self._words_at)

    def others(self, stalled: Mapping[str, int] | None = None) -> list[Seen]:
        """All others that live, in the order of their ids. Raises OSError.

        Those whose pulse is still what `stalled` says of them are left out.
        """
        paths = self.folder.iterdir() if self.folder.is_dir() else ()
        ids = sorted({path.name for path in paths} - {self.id})
        overlooked = stalled or {}
        return [s for s in map(self.other, ids) if s is not None and overlooked.get(s.claimant) != s.pulse]

    def other(self, claimant: str) -> Seen | None:
        """One of them; None when it lives no more. Raises OSError."""
        try:
            file = _opened(self.folder / claimant)
        except FileNotFoundError:
            return None
        try:
            if not _is_locked(file):
                return None
            head, _, told = os.pread(file, os.fstat(file).st_size, 0).partition(b"\n")
        finally:
            os.close(file)
        words = array(WORD, told[: len(told) // BYTES * BYTES])
        return Seen(claimant, head, words[0] if words else 0, words[1:])

    def _is_there(self) -> bool:
        if self._file is None:
            return False
        try:
            seen, ours = (self.folder / self.id).stat(), os.fstat(self._file)
        except FileNotFoundError:
            return False
        return os.path.samestat(seen, ours) and ours.st_size >= self._size

    def _put(self, raw: bytes, at: int) -> None:
        if self._file is None:
            return
        if os.pwrite(self._file, raw, at) < len(raw):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size = max(self._size, at + len(raw))

    @staticmethod
    def _sweep(path: Path) -> None:
        file = _opened(path)
        try:
            if os.fstat(file).st_size and not _is_locked(file):  # an empty one is about to be locked
                path.unlink()
        finally:
            os.close(file)


_OPEN: WeakSet[Claimants] = WeakSet()


def _forget() -> None:
    for claimants in _OPEN:
        claimants.forget()


os.register_at_fork(after_in_child=_forget)


def _opened(path: Path) -> int:
    """A descriptor to read a file by. Raises FileNotFoundError also for what is none, such as a FIFO."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise FileNotFoundError(errno.ENOENT, "no file", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FileNotFoundError(errno.ENOENT, "no file", str(path))
    return file


def _first_byte() -> bytes:
    return struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)


def _is_locked(file: int) -> bool:
    """Whether its owner lives: another open file has the lock."""
    kind: int = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_OFD_GETLK, _first_byte()))[0]
    return kind != fcntl.F_UNLCK
