"""Damaged question files: what is done to one row of a slice, and what must come through.

Law: equal seeds give equal damage. A slice is small enough to be read thousands of times.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import HeadraceError
from pipelines.evergreen import ingest
from pipelines.step import Step

TOKENS = (
    *(b'"', b"'", b'""', b"\\", b",", b"\t", b";", b"\r", b"\n", b"\r\n", b"\0", b"\xff", b"\xc3"),
    *(b"{", b"}", b"[", b"]", b"[[[[[[[[", b":", b"\\ud800", b"\\u0000", b"\xef\xbb\xbf", b"NaN"),
    *("\u2028".encode(), "\u061b".encode(), "\uff1b".encode(), b"null", b"9" * 5000, b"<!--", b"=cmd()"),
    *("\u200e".encode(), b'\\"', b"['", b"']", b"*/", b"\x1b[0m", b"\x7f", b"\x85", b"}{", b"},{"),
    *(b"1e999", b"-0", b"%s", b"\xed\xa0\x80"),
)
VALUES = (
    *(None, "", " ", "\u200b", 0, 1, -1, 2, 10**30, 0.5, 1.0, True, False, "maybe", "yes", "unknown"),
    *([], [None], ["a", "b"], [["a"]], {}, {"en": "A?"}, {"xx": 1}, {"en": 1, "English": 2}, "['a'"),
    *("['x', 'y']", "a; b", "2024-02-30", "x" * 5000, "TEST", "\u2028", "0001-01-01", {"text": 5}),
    *([{"text": "t"}], "\ud800", "[" * 900),
)


@dataclass(frozen=True)
class Case:
    """A slice of a file: `rows` are damaged one at a time, `name` tells the reader, the rest stays."""

    name: str
    rows: Sequence[Any]  # bytes, or JSON values
    write: Callable[[Path, Sequence[Any]], None]
    beside: dict[str, bytes] = field(default_factory=dict)  # further files


class Dry(Step):
    """A step that keeps what it made and publishes nothing."""

    def made(self) -> set[str]:
        """The accepted rows, each as one text; without ids, which count rows that say the same."""
        self.ledger.check()
        ids = ("row_id", "question_id")
        return {json.dumps({k: v for k, v in r.items() if k not in ids}, default=str) for r in self._rows}


def lines(head: bytes = b"", end: bytes = b"\n") -> Callable[[Path, Sequence[Any]], None]:
    """Writes rows as lines, below a head."""
    return lambda path, rows: _put(path, head + b"".join(row + end for row in rows))


def array(path: Path, rows: Sequence[Any]) -> None:
    """Writes rows as one JSON list, as a line."""
    _put(path, b"[" + b", ".join(rows) + b"]")


def table(path: Path, rows: Sequence[Any]) -> None:
    """Writes rows of JSON values as Parquet, each column as the types that its values have allow."""
    rows = [row if isinstance(row, dict) else {} for row in rows]
    columns = list(dict.fromkeys(c for row in rows for c in row))
    pq.write_table(pa.table({c: _column([row.get(c) for row in rows]) for c in columns}), path)


def _column(values: list[Any]) -> pa.Array:
    try:
        return pa.array([None if v == {} else v for v in values])  # Parquet has no empty object
    except (pa.ArrowException, TypeError, OverflowError, UnicodeEncodeError):
        kept = [
            json.dumps(v) if isinstance(v, dict | list) else None if v is None else str(v) for v in values
        ]
        return pa.array([v and v.encode("utf-8", "replace").decode() for v in kept])


def _put(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def damaged(row: Any, others: Sequence[Any], rng: random.Random) -> Any:
    """One row with one to three faults."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        row = _bytes(row, others, rng) if isinstance(row, bytes) else _values(row, others, rng)
    return row


def _bytes(row: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    at = rng.randrange(len(row) + 1)
    to = min(len(row), at + rng.randrange(1, 40))
    act = rng.randrange(7)
    if act == 0:
        return row[:at] + rng.choice(TOKENS) + row[at:]
    if act == 1:
        return row[:at] + row[at + 1 :]
    if act == 2:
        return row[:at] + row[to:]
    if act == 3:
        return row[:at] + bytes([rng.randrange(256)]) + row[at + 1 :]
    if act == 4:
        return row[:at]
    if act == 5:
        return row[:at] + row[at:to] * rng.randrange(2, 5) + row[to:]
    if row[:1] == b"{":
        try:
            return json.dumps(_values(json.loads(row), [json.loads(o) for o in others[:1]], rng)).encode()
        except ValueError:
            return b""
    other = rng.choice(others) if others else b""
    return row[:at] + other[at:]


def _values(row: Any, others: Sequence[Any], rng: random.Random) -> Any:
    if not isinstance(row, dict) or not row:
        return rng.choice(VALUES)
    key = rng.choice(list(row))
    act = rng.randrange(5)
    if act == 0:
        return {k: v for k, v in row.items() if k != key}
    if act == 1:
        return {(k + "x" if k == key else k): v for k, v in row.items()}
    if act == 2 and isinstance(row[key], str) and row[key]:
        at = rng.randrange(len(row[key]))
        return row | {
            key: row[key][:at] + rng.choice(("\u2028", "\ud800", '"', ";", "\0", "[")) + row[key][at:]
        }
    return row | {key: rng.choice(VALUES)}


def read(case: Case, root: Path, rows: Sequence[Any]) -> set[str] | HeadraceError:
    """What an ingest makes of the rows, or how it refuses the file."""
    folder = root / "data/raw/evergreen"
    case.write(folder / case.name, rows)
    step = Dry("evergreen.ingest", None, root, 7)
    try:
        ingest.take(step, ingest.Params())
    except HeadraceError as e:
        return e
    return step.made()


def lay(case: Case, root: Path) -> None:
    """Makes the folder and the files beside."""
    folder = root / "data/raw/evergreen"
    (folder / case.name).parent.mkdir(parents=True, exist_ok=True)
    for name, data in case.beside.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def _claims(row: Any, whole: Any, others: Sequence[Any]) -> bool:
    """Whether a damaged row touches others: it bears another's id, or ends the list that all stand in."""
    if not isinstance(row, bytes):
        return False
    if row[:1] in b'{"' and _least_depth(row) < 0 <= _least_depth(whole):
        return True
    told = [re.split(b"[,:]", r, maxsplit=1)[0].strip() for r in (row, whole, *others)]
    return told[0] in told[2:] and told[1] not in told[2:]


def _least_depth(row: bytes) -> int:
    """How deep a row's brackets go below where they began, those in texts aside."""
    depth = least = 0
    for sign in re.findall(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', row):
        depth += (sign in (b"[", b"{")) - (sign in (b"]", b"}"))
        least = min(least, depth)
    return least


def attack(case: Case, root: Path, count: int, seed: int) -> list[str]:
    """Damages one row at a time, `count` times; returns what went wrong: rows lost, files refused."""
    lay(case, root)
    rng = random.Random(seed)
    wrong = []
    whole = read(case, root, case.rows)
    assert isinstance(whole, set)
    assert whole
    without = {}
    for at in range(len(case.rows)):
        found = read(case, root, [r for n, r in enumerate(case.rows) if n != at])
        assert isinstance(found, set)
        without[at] = found
    for n in range(count):
        at = rng.randrange(len(case.rows))
        others = [r for m, r in enumerate(case.rows) if m != at]
        row = damaged(case.rows[at], others, rng)
        if _claims(row, case.rows[at], others):
            continue
        found = read(case, root, [*case.rows[:at], row, *case.rows[at + 1 :]])
        if isinstance(found, HeadraceError):
            wrong.append(f"{n}: refused: {found} <- {row!r:.300}")
        elif not without[at] & whole <= found:
            lost = sorted((without[at] & whole) - found)
            wrong.append(f"{n}: lost {len(lost)}: {lost[0]:.200} <- {row!r:.300}")
    return wrong
