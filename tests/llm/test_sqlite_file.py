"""The files of SQLite that several processes open: none is refused because another opens it too."""

from __future__ import annotations

import multiprocessing
import sqlite3
from multiprocessing.synchronize import Barrier
from pathlib import Path
from queue import Queue

import pytest

from pipelines.errors import EnvironmentFault
from pipelines.llm.backends.batch_ledger import Ledger
from pipelines.llm.spending import Spending
from pipelines.llm.store import Store

FILES = {"store": Store, "spending": Spending, "batches": Ledger}
PROCESSES, ROUNDS = 6, 25


def open_each(kind: str, folder: Path, barrier: Barrier, said: Queue[str]) -> None:
    for number in range(ROUNDS):
        barrier.wait()
        try:
            FILES[kind](folder / f"{number}.sqlite").close()
        except Exception as error:
            said.put(repr(error))
    said.put("")


@pytest.mark.parametrize("kind", FILES)
def test_processes_that_open_a_new_file_in_the_same_moment_all_may(kind: str, tmp_path: Path) -> None:
    spawned = multiprocessing.get_context("spawn")
    barrier, said = spawned.Barrier(PROCESSES), spawned.Queue()
    openers = [
        spawned.Process(target=open_each, args=(kind, tmp_path, barrier, said)) for _ in range(PROCESSES)
    ]
    for opener in openers:
        opener.start()
    told: list[str] = []
    while told.count("") < PROCESSES:
        told.append(said.get(timeout=120))
    for opener in openers:
        opener.join()
    assert [line for line in told if line] == []


@pytest.mark.parametrize("kind", FILES)
def test_a_file_of_another_program_is_refused_and_left_as_it_was(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "theirs.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (a)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(EnvironmentFault, match="is (a database|no ledger)"):
        FILES[kind](path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["theirs.sqlite"]
