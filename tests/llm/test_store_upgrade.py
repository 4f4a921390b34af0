"""A store of version 1 is taken over in place: whole before, whole after, and nothing in between."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from old_store import write

from pipelines.llm.answer import Usage
from pipelines.llm.request import Request, Sampling, canonical, key_of
from pipelines.llm.store import Kept, Record, Store
from pipelines.llm.store_file import VERSION
from pipelines.llm.store_upkeep import verify

REQUESTS = [
    canonical(Request("completion", "m", Sampling(4), prompt=f"{n} + {n} =\u2028é"), "name:m")
    for n in range(40)
]
ANSWERS = {key_of(r): (r, f"viér {n}") for n, r in enumerate(REQUESTS)}
KEYS = list(ANSWERS)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    write(tmp_path / "s.sqlite", ANSWERS)
    return tmp_path / "s.sqlite"


def version(path: Path) -> int:
    with sqlite3.connect(path) as raw:
        return int(raw.execute("PRAGMA user_version").fetchone()[0])


def texts(store: Store) -> dict[str, str]:
    return {k: v.text for k, v in store.answers(KEYS).items()}


EXPECTED = {k: text for k, (_, text) in ANSWERS.items()}


def test_an_old_store_is_upgraded_and_every_row_is_as_it_was(old: Path) -> None:
    with Store(old) as store:
        assert texts(store) == EXPECTED
        request, text = ANSWERS[KEYS[3]]
        kept = Kept(text, "stop", Usage(5, 2, 0.25))
        told = Record(KEYS[3], "completion", "m", "name:m", request, kept, b'{"raw": true}', 12, 1, "r1", "p")
        assert store.record(KEYS[3]) == told
        assert store.record(KEYS[3]).made_at == 1_700_000_000  # type: ignore[union-attr]
        assert np.array_equal(store.embeddings(["ee" * 32])["ee" * 32], np.ones(4, np.float32))
        found = verify(store)
        assert (found.answers, found.embeddings, found.count) == (40, 1, 0)
        store.put([replace(told, key=key_of("new"), request="new", history='[{"outcome": "ok"}]')])
        assert store.record(key_of("new")).history == '[{"outcome": "ok"}]'  # type: ignore[union-attr]
    assert version(old) == VERSION


def test_after_the_upgrade_damage_of_any_column_is_found(old: Path) -> None:
    with Store(old) as store, sqlite3.connect(old) as raw:
        raw.execute("UPDATE answers SET request = request || ' ' WHERE key = ?", (bytes.fromhex(KEYS[0]),))
        raw.execute("UPDATE answers SET body = x'00' WHERE key = ?", (bytes.fromhex(KEYS[1]),))
        raw.commit()
        assert verify(store).damaged["answers"] == sorted(bytes.fromhex(k) for k in KEYS[:2])


def test_a_row_that_was_damaged_before_the_upgrade_is_still_known_as_such(old: Path) -> None:
    with sqlite3.connect(old) as raw:
        raw.execute("UPDATE answers SET text = 'other' WHERE key = ?", (bytes.fromhex(KEYS[5]),))
    with Store(old) as store:
        assert set(store.answers(KEYS)) == set(KEYS) - {KEYS[5]}
        assert verify(store).damaged["answers"] == [bytes.fromhex(KEYS[5])]


def test_a_reader_leaves_an_old_store_old(old: Path) -> None:
    before = old.read_bytes()
    with Store(old, readonly=True) as store:
        assert texts(store) == EXPECTED
        assert store.record(KEYS[0]).body == b'{"raw": true}'  # type: ignore[union-attr]
        assert verify(store).count == 0
    assert old.read_bytes() == before
    assert version(old) == 1


@pytest.mark.parametrize("step", ["1", "4", "5", "6", "7", "row:1", "row:25", "row:40"])
def test_a_kill_while_upgrading_leaves_a_whole_old_store(old: Path, step: str) -> None:
    script = Path(__file__).with_name("old_store.py")
    ended = subprocess.run([sys.executable, str(script), str(old), step], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert version(old) == 1
    with Store(old, readonly=True) as store:
        assert texts(store) == EXPECTED
    with Store(old) as store:
        assert texts(store) == EXPECTED
        assert verify(store).count == 0
    assert version(old) == VERSION


def test_processes_that_open_an_old_store_at_once_upgrade_it_once(old: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from pipelines.llm.store import Store\n"
        "Store(Path(sys.argv[1])).close()"
    )
    started = [subprocess.Popen([sys.executable, "-c", code, str(old)]) for _ in range(3)]
    assert [p.wait() for p in started] == [0, 0, 0]
    with Store(old) as store:
        assert texts(store) == EXPECTED


def test_a_disk_that_fills_up_while_upgrading_leaves_the_old_store(old: Path) -> None:
    """The files may grow no further: SQLite's write fails as on a full disk."""
    code = (
        "import resource, signal, sys; from pathlib import Path\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from pipelines.llm.store import Store; from pipelines.errors import HeadraceError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n    Store(Path(sys.argv[1]))\nexcept HeadraceError as e:\n    print(type(e).__name__, e)"
    )
    told = subprocess.run([sys.executable, "-c", code, str(old)], capture_output=True, text=True, check=True)
    assert told.stdout.startswith("FullDisk")
    assert "check the disk and its free space" in told.stdout
    assert version(old) == 1
    with Store(old) as store:
        assert texts(store) == EXPECTED
