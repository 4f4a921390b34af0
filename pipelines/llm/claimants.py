"""Who holds claims on the questions of a store: a file for each client, beside the store's claims.

Law: a file here says who its owner is, is locked as long as the owner lives, and is touched when one of its
questions ends; so others can say for whom they wait, and see that nothing moves. Nobody's answer hangs on it.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

BEAT_S = 1.0  # between two touches at least
RUN_VARIABLE = "HEADRACE_RUN_ID"
_FLOCK = "@hhqqi0q"  # struct flock: type, whence, start, length, pid


def set_lock(file: int, kind: int, start: int, length: int = 1) -> None:
    """A lock of the open file, not of the process: two clients of one process are two askers."""
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, os.SEEK_SET, start, length, 0))


def locked_at(file: int, start: int, length: int = 1) -> int | None:
    """Where another open file has a lock within these bytes, the first such place."""
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    kind, _, at, _, _ = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_OFD_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else max(int(at), start)


@dataclass(frozen=True)
class Claimant:
    """Who holds claims: a process, with the stage that it runs, its folder and its run."""

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


class Claimants:
    """The files in `folder`, of which one is ours once we `sign`. Its names are the claimants' ids."""

    def __init__(self, folder: Path, stage: str = "") -> None:
        self.id = uuid.uuid4().hex
        self._folder, self._stage = folder, stage
        self._file: int | None = None
        self._beaten = 0.0

    def sign(self) -> None:
        """Lay our file, its lock first, and take away what the dead have left. Raises OSError."""
        if self._file is not None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in self._folder.iterdir():
            with suppress(OSError):
                self._sweep(path)
        file = os.open(self._folder / self.id, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        told = {"pid": os.getpid(), "stage": self._stage, "folder": str(Path.cwd())}
        os.write(file, json.dumps(told | {"run": os.environ.get(RUN_VARIABLE, "")}).encode())
        self._file, self._beaten = file, time.monotonic()

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                (self._folder / self.id).unlink()
            os.close(self._file)
            self._file = None

    def hold(self, place: int) -> None:
        """Note that the claim at this place is ours."""
        if self._file is not None:
            set_lock(self._file, fcntl.F_WRLCK, place)

    def give(self, place: int) -> None:
        """It is no more; something has ended."""
        if self._file is not None:
            with suppress(OSError):
                set_lock(self._file, fcntl.F_UNLCK, place)
            self.beat()

    def beat(self) -> None:
        """Let others see that we get on."""
        now = time.monotonic()
        if self._file is not None and now - self._beaten >= BEAT_S:
            self._beaten = now
            with suppress(OSError):
                os.utime(self._file)

    @contextmanager
    def others(self) -> Iterator[Mapping[str, int]]:
        """The files of all others, open, by their id; those of the dead hold nothing."""
        files: dict[str, int] = {}
        try:
            with suppress(OSError):
                for path in sorted(self._folder.iterdir()):
                    if path.name != self.id:
                        with suppress(OSError):
                            files[path.name] = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            yield files
        finally:
            for file in files.values():
                os.close(file)

    def tell(self, claimant: str) -> Claimant | None:
        """Who that is; None when it cannot be read."""
        try:
            told = json.loads((self._folder / claimant).read_text(encoding="utf-8"))
            return Claimant(int(told["pid"]), str(told["stage"]), str(told["folder"]), str(told["run"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def beaten(self, claimant: str) -> int:
        """A number that changes whenever that claimant gets on; 0 when it is gone."""
        try:
            return (self._folder / claimant).stat().st_mtime_ns
        except OSError:
            return 0

    @staticmethod
    def _sweep(path: Path) -> None:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if os.fstat(file).st_size:  # an empty one is about to be locked
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
        finally:
            os.close(file)
