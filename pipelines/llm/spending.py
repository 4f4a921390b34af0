"""What is spent and what is held, in one SQLite file that all processes over a store share.

Law: what is spent and held together never exceeds a cap. A holding is made, and synced to the disk,
before anything is sent; it becomes what was really spent when the bill is known, and never more than
was held unless the seller bills more. What a dead process held is settled by whoever reserves next, before
it is granted anything: by the answers that the store has, and else by how many requests the dead one had in
flight at most (`wishes.left_by`). A holder is alive as long as it has its file locked; the kernel unlocks it.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pipelines.errors import EnvironmentFault
from pipelines.llm.prices import NANO, Amount, told_usd
from pipelines.llm.sqlite_file import Whereabouts, mark, open_shared, transaction, write_ahead
from pipelines.llm.store_file import connect
from pipelines.llm.uninterrupted import UNINTERRUPTED
from pipelines.llm.wishes import NOTHING, Holding, Limit, Place, Verdict, Word, decide, left_by

VERSION = 2
APPLICATION_ID = 0x48445350  # "HDSP"
Bills = Callable[[Sequence[str]], Mapping[str, Amount]]  # what the stored answers to these keys cost

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS spent (scope TEXT, name TEXT, nano INTEGER NOT NULL, tokens INTEGER NOT NULL,
  PRIMARY KEY (scope, name));
CREATE TABLE IF NOT EXISTS holders (holder TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS held (holder TEXT, scope TEXT, name TEXT, nano INTEGER NOT NULL,
  tokens INTEGER NOT NULL, PRIMARY KEY (holder, scope, name));
CREATE TABLE IF NOT EXISTS questions (holder TEXT NOT NULL, key TEXT NOT NULL, places TEXT NOT NULL,
  nano INTEGER NOT NULL, tokens INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS questions_of_holder ON questions (holder, key);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
"""
_ALL = Amount(1 << 62, 1 << 62)  # exceeds every cap
_FROM_1 = "ALTER TABLE holders ADD COLUMN in_flight INTEGER"  # NULL: as many as it holds


@dataclass(frozen=True, slots=True)
class Entry:
    """A question that is over: what was held for it, and what it came to."""

    key: str
    places: Sequence[Place]
    held: Amount
    came_to: Amount


def ledger_path(store: Path) -> Path:
    """The ledger of spending beside a response store."""
    return store.with_name(f"{store.stem}.spending.sqlite")


def month_of(when: datetime) -> Place:
    """The month, in UTC, whose sum a question counts in."""
    return "month", when.astimezone(UTC).strftime("%Y-%m")


def read_sums(path: Path, place: Place) -> tuple[Amount, Amount] | None:
    """What is spent and what is held in one place, by all, and nothing is written; None without a ledger.

    Raises EnvironmentFault: no ledger, a newer one, a broken one.
    """
    if not path.is_file():
        return None
    with _named(path), closing(connect(path, readonly=True)) as db:
        if not _is_made(db, path):
            return None
        return _sum(db, "spent", place), _sum(db, "held", place)


class Spending:
    """The ledger at `path`, made when absent, as one holder sees it. Safe to use from several threads.

    `in_flight`: most questions of this holder that can be with the seller at once, None: all that it holds;
    `bills` says what the dead have paid. Raises EnvironmentFault: no ledger, a newer one, a full disk, a lock
    that does not end.
    """

    def __init__(self, path: Path, in_flight: int | None = None, bills: Bills = lambda _: {}) -> None:
        self.path, self.holder, self._in_flight, self._bills = path, uuid.uuid4().hex, in_flight, bills
        self._lock = threading.RLock()
        self._folder = path.with_suffix(".holders")
        self._file: int | None = None
        with self._guard():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = open_shared(path)
            try:
                self._where = Whereabouts(path)
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def reserve(
        self, places: Sequence[Place], limits: Sequence[Limit], wishes: Mapping[str, Amount]
    ) -> list[Verdict]:
        """Hold in `places` what of `wishes`, by the questions' keys, fits `limits` now; a verdict on each.

        The cap of one that does not fit is told with its sum: "llm.caps.run.usd of 1 is reached: ...".
        """
        with self._guard(), self._change(durable=True):
            self._sign()
            self._bury()
            verdicts = self._decide(limits, list(wishes.values()))
            let = {k: w for (k, w), v in zip(wishes.items(), verdicts, strict=True) if v.word is Word.WITHIN}
            self._hold(places, sum(let.values(), NOTHING))
            of, named = self.holder, json.dumps(list(places))
            rows = [(of, key, named, wish.nano, wish.tokens) for key, wish in let.items()]
            self._db.executemany("INSERT INTO questions VALUES (?, ?, ?, ?, ?)", rows)
            if len(let) == len(wishes):
                return verdicts
            sums = self._by_cap(limits)
        return [replace(v, cap=f"{v.cap} is reached: {sums[v.cap]}") if v.cap else v for v in verdicts]

    def settle(self, entries: Sequence[Entry]) -> None:
        """Give back what was held for each, spend what it came to."""
        with self._guard(), self._change(durable=False):
            given_back: defaultdict[Place, Amount] = defaultdict(Amount)
            paid: defaultdict[Place, Amount] = defaultdict(Amount)
            for entry in entries:
                for place in entry.places:
                    given_back[place] += entry.held
                    paid[place] += entry.came_to
            one = "SELECT rowid FROM questions WHERE holder = ? AND key = ? LIMIT 1"
            over = [(self.holder, entry.key) for entry in entries if entry.held]
            self._db.executemany(f"DELETE FROM questions WHERE rowid = ({one})", over)
            for place in paid:
                self._hold([place], NOTHING - given_back[place])
                self._spend([place], paid[place])

    def sums(self, place: Place) -> tuple[Amount, Amount]:
        """What is spent and what is held in one place, by all."""
        with self._guard():
            return _sum(self._db, "spent", place), _sum(self._db, "held", place)

    def close(self) -> None:
        """End this holder. What it still holds counts as spent."""
        with self._guard():
            if self._file is not None:
                with self._change(durable=False):
                    self._end(self.holder)
                (self._folder / self.holder).unlink(missing_ok=True)
                os.close(self._file)
                self._file = None
            self._db.close()

    def _decide(self, limits: Sequence[Limit], wishes: Sequence[Amount]) -> list[Verdict]:
        spent = {x.place: _sum(self._db, "spent", x.place) for x in limits}
        held = {x.place: _sum(self._db, "held", x.place) for x in limits}
        return decide(limits, spent, held, wishes)

    def _by_cap(self, limits: Sequence[Limit]) -> dict[str, str]:
        """What is spent or held of each cap, in words, by the cap's name."""
        told = {}
        for limit in limits:
            taken = _sum(self._db, "spent", limit.place) + _sum(self._db, "held", limit.place)
            usd = f"{told_usd(taken.nano / NANO, 0)} are spent or held"
            told[replace(limit, tokens=None).over(_ALL)] = usd
            told[replace(limit, usd=None).over(_ALL)] = f"{taken.tokens:,} are spent or held"
        return told

    def _sign(self) -> None:
        """Name this holder, its file locked first."""
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = os.open(self._folder / self.holder, os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._file = file
            self._db.execute("INSERT INTO holders VALUES (?, ?)", (self.holder, self._in_flight))

    def _bury(self) -> None:
        """Settle what the dead held."""
        rows = self._db.execute("SELECT holder, in_flight FROM holders WHERE holder != ?", (self.holder,))
        for holder, in_flight in rows.fetchall():
            if not self._lives(holder):
                self._give_back(holder, in_flight)
                self._end(holder)
                (self._folder / holder).unlink(missing_ok=True)

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

    def _give_back(self, holder: str, in_flight: int | None) -> None:
        """Of each question that the dead held for, what it came to in place of what was held."""
        query = "SELECT key, places, nano, tokens FROM questions WHERE holder = ?"
        holdings = [
            Holding(key, tuple((scope, name) for scope, name in json.loads(places)), Amount(nano, tokens))
            for key, places, nano, tokens in self._db.execute(query, (holder,)).fetchall()
        ]
        for holding, came_to in left_by(holdings, self._bills([h.key for h in holdings]), in_flight):
            self._hold(holding.places, NOTHING - holding.amount, holder)
            self._spend(holding.places, came_to)

    def _end(self, holder: str) -> None:
        """What a holder still holds, of no question that is known, counts as spent."""
        rows = self._db.execute("SELECT scope, name, nano, tokens FROM held WHERE holder = ?", (holder,))
        for scope, name, nano, tokens in rows.fetchall():
            self._spend([(scope, name)], Amount(nano, tokens))
        self._db.execute("DELETE FROM held WHERE holder = ?", (holder,))
        self._db.execute("DELETE FROM questions WHERE holder = ?", (holder,))
        self._db.execute("DELETE FROM holders WHERE holder = ?", (holder,))

    def _hold(self, places: Sequence[Place], amount: Amount, holder: str = "") -> None:
        for scope, name in places:
            self._db.execute(
                "INSERT INTO held VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                "nano = nano + excluded.nano, tokens = tokens + excluded.tokens",
                (holder or self.holder, scope, name, amount.nano, amount.tokens),
            )

    def _spend(self, places: Sequence[Place], amount: Amount) -> None:
        for scope, name in places:
            self._db.execute(
                "INSERT INTO spent VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                "nano = nano + excluded.nano, tokens = tokens + excluded.tokens",
                (scope, name, amount.nano, amount.tokens),
            )

    def _prepare(self) -> None:
        _is_made(self._db, self.path)
        write_ahead(self._db)
        with self._change(durable=True):
            for statement in filter(str.strip, _SCHEMA.split(";")):
                self._db.execute(statement)
            if all(column[1] != "in_flight" for column in self._db.execute("PRAGMA table_info(holders)")):
                self._db.execute(_FROM_1)

    @contextmanager
    def _change(self, *, durable: bool) -> Iterator[None]:
        """One transaction. A holding must be on the disk before a request leaves; a bill may be lost,
        for then the holding stands."""
        self._where.require()
        self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        with transaction(self._db):
            yield

    @contextmanager
    def _guard(self) -> Iterator[None]:
        with UNINTERRUPTED, self._lock, _named(self.path):
            yield


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Raises EnvironmentFault, which names the ledger, for what SQLite or the disk refuses."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        cure = "free some disk space, make its folder writable, or end what holds it"
        what = f"the ledger of spending cannot be used: {error}"
        raise EnvironmentFault(what, where=str(path), cure=cure) from error


def _is_made(db: sqlite3.Connection, path: Path) -> bool:
    """Whether the ledger has its tables. Raises EnvironmentFault: no ledger, or a newer one."""
    tables, application, version = mark(db)
    if tables and application != APPLICATION_ID:
        raise EnvironmentFault("is no ledger of spending", where=str(path), cure="move it away")
    if version > VERSION:
        what = f"the ledger of spending has version {version}, this headrace knows {VERSION}"
        raise EnvironmentFault(what, where=str(path), cure="use the headrace that wrote it")
    return tables


def _sum(db: sqlite3.Connection, table: str, place: Place) -> Amount:
    query = f"SELECT sum(nano), sum(tokens) FROM {table} WHERE scope = ? AND name = ?"
    nano, tokens = db.execute(query, place).fetchone()
    return Amount(nano or 0, tokens or 0)
