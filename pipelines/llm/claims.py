"""Who asks a question, where several processes share a store.

Law: of all who want an answer at once, one asks and the others wait for what it stores. Who wants to ask
first says so, in a file of its own (`claimants.py`), and then reads the others': where somebody alive says
the same, it takes its word back. So of two never both ask, for whoever reads later finds the other's word;
in the same instant both may step back, and try again by turns. A claim ends with its holder, also by SIGKILL.

A holder that lives and gets nowhere (stopped, hung; not: slowly answered) keeps its claims. Whoever has
watched it do so for `llm.stalled_s` overlooks it until its pulse changes, and among those who do again one
asks. Should the stalled one have asked, or ask when it goes on, the answer is paid for twice: only then, and
it is told. Who takes questions lets its pulse change and reads once more: whoever overlooked it until then
has said so.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from types import MappingProxyType

from pipelines.errors import EnvironmentFault
from pipelines.llm.claimants import WORD, Claimants, Seen
from pipelines.llm.stops import ClientClosed

DIGITS = 15  # of the key, by which a claim names its question: 60 bits
NONE = 0  # where a file names no question
NOBODY: Mapping[str, int] = MappingProxyType({})


class Claims:
    """The claims of one client on the questions of the store at `store`. Safe to use from several threads.

    An owner is whoever takes and gives: one call of `Client.answers`, by the queue that it reads. `stage` is
    what others are told of us.
    """

    def __init__(self, store: Path, stage: str = "") -> None:
        self.claimants = Claimants(store.with_name(f"{store.stem}.claimants"), stage)
        self._held: dict[str, tuple[object, int]] = {}  # owner, and place in our file
        self._asks = array(WORD)  # our file's questions, by place
        self._free: list[int] = []  # places that name none
        self._closed = False
        self._one = RLock()  # a generator that the collector ends gives its claims back within a `take`

    def take(self, keys: Iterable[str], owner: object, stalled: Mapping[str, int] = NOBODY) -> set[str]:
        """Which of the questions are the owner's to ask, from now on.

        `stalled` are claimants to overlook, each by its pulse of then. Raises EnvironmentFault, ClientClosed
        after the end.
        """
        with self._one:
            if self._closed:
                raise ClientClosed()
            wanted = {key for key in keys if key not in self._held}
            if not wanted:
                return wanted
            for key in wanted:
                self._held[key] = owner, self._place(_question(key))
            lost = wanted
            try:
                with self._claimable():
                    lost = self._announced(wanted, stalled)
            finally:
                self._end(lost, owner)
            return wanted - lost

    def _announced(self, wanted: set[str], stalled: Mapping[str, int]) -> set[str]:
        """Say in our file that we ask `wanted`; those of them that others say too. Raises OSError."""
        anew = self.claimants.sign()
        self._write(range(len(self._asks)) if anew else [self._held[key][1] for key in wanted])
        lost = self._asked(wanted, stalled)
        if lost == wanted:
            return lost
        self.claimants.beat()
        return lost | self._asked(wanted - lost, stalled)

    def _asked(self, keys: set[str], stalled: Mapping[str, int]) -> set[str]:
        """Those that others ask, the stalled aside."""
        asked = {question for seen in self.claimants.others(stalled) for question in seen.asks}
        return {key for key in keys if _question(key) in asked} if asked else set()

    def give(self, keys: Iterable[str], owner: object) -> None:
        """The questions are over for this owner; nothing of those that are another's."""
        with self._one:
            if self._end(keys, owner):
                self.beat()

    def beat(self) -> None:
        """Let others see that we get on."""
        with self._one, suppress(OSError):
            self.claimants.beat()

    def give_all(self, owner: object) -> None:
        """The owner asks nothing more."""
        with self._one:
            held = self._held.copy()  # in one go: the collector may end another generator meanwhile
            self.give([key for key, (held_by, _) in held.items() if held_by is owner], owner)

    def close(self) -> None:
        """Give back all."""
        with self._one:
            self._closed = True
            self._held.clear()
            self.claimants.close()

    def holders(self, keys: Iterable[str], stalled: Collection[str] = ()) -> Counter[str]:
        """For how many of `keys` one waits for which claimant: of a key one that is not stalled, if any."""
        with self._claimable():
            others = sorted(self.claimants.others(), key=lambda seen: seen.claimant not in stalled)
        by: dict[int, str] = {}
        for seen in others:
            by |= dict.fromkeys(seen.asks, seen.claimant)
        found: Counter[str] = Counter()
        for key in keys:
            if key in self._held:  # another call of this very client asks it
                found[self.claimants.id] += 1
            elif claimant := by.get(_question(key)):
                found[claimant] += 1
        return found

    def other(self, claimant: str) -> Seen | None:
        """What another's file says; None when it lives no more."""
        with self._claimable():
            return self.claimants.other(claimant)

    @contextmanager
    def _claimable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = f"questions cannot be claimed: {error.strerror}"
            cure = "make it and what lies in it writable, on a disk with room whose files can be locked"
            where = str(error.filename or self.claimants.folder)
            raise EnvironmentFault(what, where=where, cure=cure) from error

    def _place(self, question: int) -> int:
        if self._free:
            place = self._free.pop()
            self._asks[place] = question
            return place
        self._asks.append(question)
        return len(self._asks) - 1

    def _end(self, keys: Iterable[str], owner: object) -> bool:
        """Whether any of the claims was the owner's."""
        places = []
        for key in keys:
            held_by, place = self._held.get(key, (None, 0))
            if held_by is owner:
                del self._held[key]
                self._asks[place] = NONE
                places.append(place)
        with suppress(OSError):
            self._write(places)
        self._free += places
        return bool(places)

    def _write(self, places: Collection[int]) -> None:
        """Say in our file what these places hold; those between them are written again as they are."""
        if places:
            first = min(places)
            self.claimants.write(first, self._asks[first : max(places) + 1])


def _question(key: str) -> int:
    """By which a file names it; never NONE."""
    return int(key[:DIGITS], 16) + 1
