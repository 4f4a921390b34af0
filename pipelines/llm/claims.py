"""Who asks a question, where several processes share a store.

Law: of all who want an answer at once, one asks and the others wait for what it stores. A claim is
a lock of the kernel's on one byte of a file beside the store, at the place that the question's key
names; so it ends with its holder, also by SIGKILL, and another takes it up.

A holder that lives and gets nowhere (stopped, hung) keeps its claims. Whoever has watched it do so
for `llm.stalled_s` claims the question in the next turn instead: a question has TURNS bytes, and is
asked by who holds one of them while nobody holds a later one, nor anybody but the stalled an earlier
one. So of those who wait for a stalled holder again one asks. Should the stalled one have asked, or ask
when it goes on, the answer is paid for twice: only then, and it is told.
"""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import RLock

from pipelines.errors import EnvironmentFault
from pipelines.llm.claimants import Claimants, locked_at, set_lock

PLACE_DIGITS = 15  # of the key: 60 bits; with the turns they are the largest offset of a file
TURNS = 8
UNKNOWN = ""  # the id of a claimant that left no file


class Claims:
    """The claims of one client on the questions of the store at `store`. Safe to use from several threads.

    An owner is whoever takes and gives: one call of `Client.answers`, by the queue that it reads. `stage` is
    what others are told of us.
    """

    def __init__(self, store: Path, stage: str = "") -> None:
        self._path = store.with_name(f"{store.stem}.claims")
        self.claimants = Claimants(store.with_name(f"{store.stem}.claimants"), stage)
        self._file: int | None = None
        self._held: dict[str, tuple[object, int]] = {}  # owner and place
        self._one = RLock()  # a generator that the collector ends gives its claims back within a `take`

    def take(self, key: str, owner: object, stalled: Collection[str] = ()) -> bool:
        """Whether the question is the owner's to ask, from now on; claimants `stalled` stand in nobody's way.

        Raises EnvironmentFault.
        """
        with self._one:
            if key in self._held:
                return False
            try:
                place = self._take(_place(key), stalled)
            except OSError as error:
                what = f"questions cannot be claimed: {error.strerror}"
                cure = "make its folder writable, on a disk whose files can be locked"
                raise EnvironmentFault(what, where=str(self._path), cure=cure) from error
            if place is not None:
                self._held[key] = owner, place
            return place is not None

    def give(self, key: str, owner: object) -> None:
        """The question is over for this owner; nothing if it is another's."""
        with self._one:
            held_by, place = self._held.get(key, (None, 0))
            if held_by is owner:
                del self._held[key]
                self._free(place)

    def give_all(self, owner: object) -> None:
        """The owner asks nothing more."""
        with self._one:
            for key in [k for k, (held_by, _) in self._held.items() if held_by is owner]:
                self.give(key, owner)

    def close(self) -> None:
        """Give back all."""
        with self._one:
            self._held.clear()
            self.claimants.close()
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def holders(self, keys: Iterable[str], stalled: Collection[str] = ()) -> Counter[str]:
        """For how many of `keys` one waits for which claimant: of a key the first that is not stalled."""
        found: Counter[str] = Counter()
        with self.claimants.others() as files:
            for key in keys:
                if key in self._held:  # another call of this very client asks it
                    found[self.claimants.id] += 1
                    continue
                by = _by(files, _place(key))
                if not by and (self._file is None or locked_at(self._file, _place(key), TURNS) is None):
                    continue  # free by now
                found[next((c for c in by if c not in stalled), by[0] if by else UNKNOWN)] += 1
        return found

    def _take(self, first: int, stalled: Collection[str]) -> int | None:
        """The place of our claim, in the first turn that is free and behind nobody but the stalled."""
        for place in range(first, first + TURNS):
            if not self._lock(place):
                if self._at(place) not in stalled:
                    return None
            elif self._is_ours(first, place, stalled):
                self.claimants.hold(place)
                return place
            else:
                self._free(place)
                if not stalled:
                    return None
        return None

    def _is_ours(self, first: int, place: int, stalled: Collection[str]) -> bool:
        """Whether, with the lock at `place`, nobody has a later turn, and only the stalled an earlier one."""
        assert self._file is not None
        later = first + TURNS - 1 - place
        if later and locked_at(self._file, place + 1, later) is not None:
            return False
        earlier = (p for p in range(first, place) if locked_at(self._file, p) is not None)
        return all(self._at(p) in stalled for p in earlier)

    def _at(self, place: int) -> str:
        """Who has the claim at a place."""
        with self.claimants.others() as files:
            return next((c for c, file in files.items() if locked_at(file, place) is not None), UNKNOWN)

    def _lock(self, place: int) -> bool:
        if self._file is None:
            self.claimants.sign()
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            set_lock(self._file, fcntl.F_WRLCK, place)
        except BlockingIOError:
            return False
        return True

    def _free(self, place: int) -> None:
        self.claimants.give(place)
        if self._file is not None:
            with suppress(OSError):
                set_lock(self._file, fcntl.F_UNLCK, place)


def _place(key: str) -> int:
    """Of the first turn."""
    return int(key[:PLACE_DIGITS], 16) * TURNS


def _by(files: Mapping[str, int], first: int) -> list[str]:
    """The claimants of one question, by their turns."""
    turns = ((locked_at(file, first, TURNS), claimant) for claimant, file in files.items())
    return [claimant for _, claimant in sorted((at, c) for at, c in turns if at is not None)]
