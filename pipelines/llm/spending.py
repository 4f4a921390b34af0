"""What is spent and what is held, in one SQLite file that all processes over a store share.

Law: what is spent and held together never exceeds a cap. A holding is made, and synced to the disk,
before anything is sent; it becomes what was really spent when the bill is known, and never more than
was held unless the seller bills more. What a dead process held counts as spent, in full: it may
have been billed. (A holder is alive as long as it has its file locked; the kernel unlocks it.)
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pipelines.errors import EnvironmentFault
from pipelines.llm.prices import NANO, Amount
from pipelines.llm.sqlite_file import mark, open_shared, write_ahead

VERSION = 1
APPLICATION_ID = 0x48445350  # "HDSP"
NOTHING = Amount()
Place = tuple[str, str]  # ("run", its id): whose sum it is

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS spent (scope TEXT, name TEXT, nano INTEGER NOT NULL, tokens INTEGER NOT NULL,
  PRIMARY KEY (scope, name));
CREATE TABLE IF NOT EXISTS holders (holder TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS held (holder TEXT, scope TEXT, name TEXT, nano INTEGER NOT NULL,
  tokens INTEGER NOT NULL, PRIMARY KEY (holder, scope, name));
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
"""


@dataclass(frozen=True, slots=True)
class Limit:
    """A cap on one sum; None where money or tokens have none."""

    place: Place
    usd: float | None = None
    tokens: int | None = None

    def over(self, amount: Amount) -> str:
        """Which cap `amount` exceeds, as params.yaml names it; "" for none."""
        if self.usd is not None and amount.nano > int(self.usd * NANO):
            return f"llm.caps.{self.place[0]}.usd of {self.usd:g}"
        if self.tokens is not None and amount.tokens > self.tokens:
            return f"llm.caps.{self.place[0]}.tokens of {self.tokens}"
        return ""


class Word(StrEnum):
    """What is said to a wish."""

    WITHIN = "within"
    LATER = "later"  # it would fit if what is held turned out cheaper
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The word on one wish, and the cap in its way."""

    word: Word
    cap: str = ""


def decide(
    limits: Sequence[Limit],
    spent: Mapping[Place, Amount],
    held: Mapping[Place, Amount],
    wishes: Sequence[Amount],
) -> list[Verdict]:
    """A verdict on each wish, in order: none passes one that waits before it."""
    taken = {limit.place: held.get(limit.place, NOTHING) for limit in limits}
    verdicts: list[Verdict] = []
    waiting = ""
    for wish in wishes:
        never = next((c for x in limits if (c := x.over(spent.get(x.place, NOTHING) + wish))), "")
        if never:
            verdicts.append(Verdict(Word.OVER, never))
            continue
        sums = {x.place: spent.get(x.place, NOTHING) + taken[x.place] + wish for x in limits}
        waiting = waiting or next((c for x in limits if (c := x.over(sums[x.place]))), "")
        if waiting:
            verdicts.append(Verdict(Word.LATER, waiting))
            continue
        verdicts.append(Verdict(Word.WITHIN))
        for place in taken:
            taken[place] += wish
    return verdicts


class Spending:
    """The ledger at `path`, made when absent, as one holder sees it. Safe to use from several threads.

    Raises EnvironmentFault: no ledger, a newer one, a full disk, a lock that does not end.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.holder = path, uuid.uuid4().hex
        self._lock = threading.RLock()
        self._folder = path.with_suffix(".holders")
        self._file: int | None = None
        with self._guard():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = open_shared(path)
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def reserve(
        self, places: Sequence[Place], limits: Sequence[Limit], wishes: Sequence[Amount]
    ) -> list[Verdict]:
        """Hold in `places` what of `wishes` fits `limits` now; a verdict on each."""
        with self._guard(), self._change(durable=True):
            self._sign()
            verdicts = self._decide(limits, wishes)
            if any(v.word is Word.LATER for v in verdicts) and self._bury():
                verdicts = self._decide(limits, wishes)
            let = [w for w, v in zip(wishes, verdicts, strict=True) if v.word is Word.WITHIN]
            self._hold(places, sum(let, NOTHING))
        return verdicts

    def settle(self, entries: Sequence[tuple[Sequence[Place], Amount, Amount]]) -> None:
        """For each (places, what was held, what it came to): give back the one, spend the other."""
        with self._guard(), self._change(durable=False):
            given_back: defaultdict[Place, Amount] = defaultdict(Amount)
            paid: defaultdict[Place, Amount] = defaultdict(Amount)
            for places, held, came_to in entries:
                for place in places:
                    given_back[place] += held
                    paid[place] += came_to
            for place in paid:
                self._hold([place], NOTHING - given_back[place])
                self._spend([place], paid[place])

    def sums(self, place: Place) -> tuple[Amount, Amount]:
        """What is spent and what is held in one place, by all."""
        with self._guard():
            return self._sum("spent", place), self._sum("held", place)

    def close(self) -> None:
        """End this holder. What it still holds counts as spent."""
        with self._guard():
            if self._file is not None:
                with self._change(durable=False):
                    self._inherit(self.holder)
                (self._folder / self.holder).unlink(missing_ok=True)
                os.close(self._file)
                self._file = None
            self._db.close()

    def _decide(self, limits: Sequence[Limit], wishes: Sequence[Amount]) -> list[Verdict]:
        spent = {x.place: self._sum("spent", x.place) for x in limits}
        held = {x.place: self._sum("held", x.place) for x in limits}
        return decide(limits, spent, held, wishes)

    def _sign(self) -> None:
        """Name this holder, its file locked first."""
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = os.open(self._folder / self.holder, os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._file = file
            self._db.execute("INSERT OR IGNORE INTO holders VALUES (?)", (self.holder,))

    def _bury(self) -> int:
        """Count as spent what the dead held; returns how many they were."""
        rows = self._db.execute("SELECT holder FROM holders WHERE holder != ?", (self.holder,)).fetchall()
        dead = [holder for (holder,) in rows if not self._lives(holder)]
        for holder in dead:
            self._inherit(holder)
            (self._folder / holder).unlink(missing_ok=True)
        return len(dead)

    def _lives(self, holder: str) -> bool:
        try:
            file = os.open(self._folder / holder, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False

    def _inherit(self, holder: str) -> None:
        rows = self._db.execute("SELECT scope, name, nano, tokens FROM held WHERE holder = ?", (holder,))
        for scope, name, nano, tokens in rows.fetchall():
            self._spend([(scope, name)], Amount(nano, tokens))
        self._db.execute("DELETE FROM held WHERE holder = ?", (holder,))
        self._db.execute("DELETE FROM holders WHERE holder = ?", (holder,))

    def _hold(self, places: Sequence[Place], amount: Amount) -> None:
        for scope, name in places:
            self._db.execute(
                "INSERT INTO held VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                "nano = nano + excluded.nano, tokens = tokens + excluded.tokens",
                (self.holder, scope, name, amount.nano, amount.tokens),
            )

    def _spend(self, places: Sequence[Place], amount: Amount) -> None:
        for scope, name in places:
            self._db.execute(
                "INSERT INTO spent VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                "nano = nano + excluded.nano, tokens = tokens + excluded.tokens",
                (scope, name, amount.nano, amount.tokens),
            )

    def _sum(self, table: str, place: Place) -> Amount:
        query = f"SELECT sum(nano), sum(tokens) FROM {table} WHERE scope = ? AND name = ?"
        nano, tokens = self._db.execute(query, place).fetchone()
        return Amount(nano or 0, tokens or 0)

    def _prepare(self) -> None:
        tables, application, version = mark(self._db)
        if tables and application != APPLICATION_ID:
            raise EnvironmentFault("is no ledger of spending", where=str(self.path), cure="move it away")
        if version > VERSION:
            what = f"the ledger of spending has version {version}, this headrace knows {VERSION}"
            raise EnvironmentFault(what, where=str(self.path), cure="use the headrace that wrote it")
        write_ahead(self._db)
        with self._change(durable=True):
            for statement in filter(str.strip, _SCHEMA.split(";")):
                self._db.execute(statement)

    @contextmanager
    def _change(self, *, durable: bool) -> Iterator[None]:
        """One transaction. A holding must be on the disk before a request leaves; a bill may be lost,
        for then the holding stands."""
        self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _guard(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except (sqlite3.Error, OSError) as error:
                cure = "free some disk space, make its folder writable, or end what holds it"
                what = f"the ledger of spending cannot be used: {error}"
                raise EnvironmentFault(what, where=str(self.path), cure=cure) from error
