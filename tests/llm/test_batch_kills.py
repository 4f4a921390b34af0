"""SIGKILL at every instant of a batch's life: the next run submits nothing twice and loses nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from batch_server import BatchServer
from chaos_batches import INSTANTS
from questions import question
from scripted_server import answer_to

from pipelines.llm.backends.batch_ledger import Ledger, ledger_path
from pipelines.llm.protocol import request_body
from pipelines.llm.request import named_request

HERE = Path(__file__).parent
COUNT = 20  # three files
Sell = Callable[..., BatchServer]


@pytest.fixture
def sell(tmp_path: Path) -> Iterator[Sell]:
    started: list[BatchServer] = []

    def start(**script: object) -> BatchServer:
        started.append(BatchServer(script, log=tmp_path / f"batches{len(started)}.jsonl"))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def start(server: BatchServer, folder: Path, kill: str = "") -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])])}
    command = [sys.executable, str(HERE / "chaos_batches.py"), server.url]
    command += [str(folder / "s.sqlite"), str(folder / "out"), str(COUNT)]
    return subprocess.Popen([*command, *([kill] if kill else [])], env=environment)


def end_of(process: subprocess.Popen[bytes]) -> int:
    """Its exit status; one that hangs is not left behind."""
    try:
        return process.wait(60)
    finally:
        process.kill()


def right() -> str:
    """What an undisturbed run writes: the server's answer is a function of the question."""
    lines = []
    for n in range(COUNT):
        named = named_request(question(n), "scripted", "name:scripted")
        lines.append(f"{named.key} {answer_to(json.loads(request_body(named.canonical, 'scripted')))}\n")
    return "".join(sorted(lines))


def check(server: BatchServer, folder: Path) -> None:
    assert (folder / "out").read_text() == right()
    assert set(server.batched().values()) == {1} and len(server.batched()) == COUNT
    assert not server.single()
    ledger = Ledger(ledger_path(folder / "s.sqlite"))
    assert ledger.batches() == []
    ledger.close()


@pytest.mark.slow
@pytest.mark.parametrize("instant", INSTANTS)
def test_a_kill_at_any_instant_submits_nothing_twice_and_loses_nothing(
    sell, tmp_path: Path, instant: str
) -> None:
    server = sell()
    for number in (1, 2):
        assert end_of(start(server, tmp_path, f"{instant}:{number}")) == -signal.SIGKILL
        assert not (tmp_path / "out").exists()
    assert end_of(start(server, tmp_path)) == 0
    check(server, tmp_path)


@pytest.mark.slow
def test_a_batch_taken_whole_by_a_run_that_died_is_ended_by_the_next_which_asks_nothing(
    sell, tmp_path: Path
) -> None:
    server = sell()
    assert end_of(start(server, tmp_path, "before the end:3")) == -signal.SIGKILL
    seen = len(server.events())
    assert end_of(start(server, tmp_path)) == 0
    assert len(server.events()) == seen
    check(server, tmp_path)


@pytest.mark.slow
def test_kills_at_seeded_moments_submit_nothing_twice_and_lose_nothing(sell, tmp_path: Path) -> None:
    drawn = random.Random(11)
    server = sell(looks=4)
    for _ in range(6):
        process, until = start(server, tmp_path), len(server.events()) + drawn.randint(1, 8)
        while len(server.events()) < until and process.poll() is None:
            time.sleep(0.002)
        process.kill()
        if process.wait() == 0:
            break
    assert end_of(start(server, tmp_path)) == 0
    check(server, tmp_path)
