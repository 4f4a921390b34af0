"""Who asks which questions of a store: a file for each client, in a folder beside it.

Law: a file says in its first line whose it is, then in words of 64 bits its pulse and the questions that it
asks, 0 where none. Its first byte is locked as long as its owner lives: what a dead one's file says counts
for nothing, also after SIGKILL. The pulse changes when a question ends, so others see that its owner gets on.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import struct
import time
import uuid
from array import array
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

BEAT_S = 1.0  # between two beats of a pulse at least
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
        self.id = uuid.uuid4().hex
        self.folder, self._stage = folder, stage
        self._file: int | None = None
        self._words_at = 0
        self._pulse, self._beaten = 0, 0.0

    def sign(self) -> None:
        """Lay our file, its lock first, and take away what the dead have left. Raises OSError."""
        if self._file is not None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.iterdir():
            with suppress(OSError):
                self._sweep(path)
        told = {"pid": os.getpid(), "stage": self._stage, "folder": str(Path.cwd())}
        head = json.dumps(told | {"run": os.environ.get(RUN_VARIABLE, "")}).encode() + b"\n"
        file = os.open(self.folder / self.id, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # A lock of the open file, not of the process: two clients of one process are two askers.
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, _first_byte())
            _write(file, head + bytes(BYTES), 0)
        except OSError:
            os.close(file)
            raise
        self._file, self._words_at, self._beaten = file, len(head), time.monotonic()

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                (self.folder / self.id).unlink()
            os.close(self._file)
            self._file = None

    def write(self, first: int, asks: Sequence[int]) -> None:
        """Say what we ask, from the place `first` (from 0) on. Raises OSError; nothing when not signed."""
        if self._file is not None:
            _write(self._file, array(WORD, asks).tobytes(), self._words_at + (1 + first) * BYTES)

    def beat(self) -> None:
        """Let others see that we get on."""
        now = time.monotonic()
        if self._file is not None and now - self._beaten >= BEAT_S:
            self._pulse, self._beaten = self._pulse + 1, now
            with suppress(OSError):
                os.pwrite(self._file, array(WORD, [self._pulse]).tobytes(), self._words_at)

    def others(self, besides: Collection[str] = ()) -> list[Seen]:
        """All others that live, in the order of their ids, but for some. Raises OSError."""
        paths = self.folder.iterdir() if self.folder.is_dir() else ()
        ids = sorted({path.name for path in paths} - {self.id, *besides})
        return [seen for seen in map(self.other, ids) if seen is not None]

    def other(self, claimant: str) -> Seen | None:
        """One of them; None when it lives no more. Raises OSError."""
        try:
            file = os.open(self.folder / claimant, os.O_RDONLY | os.O_CLOEXEC)
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

    @staticmethod
    def _sweep(path: Path) -> None:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if os.fstat(file).st_size and not _is_locked(file):  # an empty one is about to be locked
                path.unlink()
        finally:
            os.close(file)


def _write(file: int, raw: bytes, at: int) -> None:
    if os.pwrite(file, raw, at) < len(raw):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _first_byte() -> bytes:
    return struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)


def _is_locked(file: int) -> bool:
    """Whether its owner lives: another open file has the lock."""
    kind: int = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_OFD_GETLK, _first_byte()))[0]
    return kind != fcntl.F_UNLCK
