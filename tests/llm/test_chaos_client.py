"""SIGKILL at chosen instants: nothing stored is asked again, at most the requests in flight repeat."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from scripted_server import ScriptedServer

from pipelines.llm.store import Store

HERE = Path(__file__).parent
COUNT, CONCURRENCY = 60, 4


def start(server: ScriptedServer, store: Path, out: Path, kill: str = "") -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])])}
    command = [sys.executable, str(HERE / "chaos_client.py"), server.url, str(store), str(out), str(COUNT)]
    return subprocess.Popen([*command, *([kill] if kill else [])], env=environment)


def stored(path: Path) -> set[str]:
    """Keys in the store, read by a process that did not write them."""
    if not path.exists():
        return set()
    with Store(path) as store:
        return {row[0].hex() for row in store._db.execute("SELECT key FROM answers")}


def check(server: ScriptedServer, store: Path, kills: list[tuple[int, set[str]]]) -> None:
    """`kills`: after each, how many requests the log had and which keys were stored."""
    requests = server.requests()
    for seen, keys in kills:
        again = keys & {r["key"] for r in requests[seen:]}
        assert not again, f"{len(again)} stored answers were asked again"
    repeats = sum(n - 1 for n in Counter(r["key"] for r in requests).values())
    assert repeats <= CONCURRENCY * len(kills)
    assert len(stored(store)) == COUNT


@pytest.mark.parametrize("moment", ["before_commit", "in_commit", "after_commit"])
def test_a_kill_around_a_commit_loses_nothing_stored(serve, tmp_path: Path, moment: str) -> None:
    server, store, out = serve(latency_ms=3), tmp_path / "s.sqlite", tmp_path / "out"
    kills = []
    for number in (1, 4):
        assert start(server, store, out, f"{moment}:{number}").wait(60) == -signal.SIGKILL
        kills.append((len(server.requests()), stored(store)))
    assert not out.exists()
    assert start(server, store, out).wait(60) == 0
    check(server, store, kills)
    first = kills[0][1]  # what the first group, killed on its way, left
    assert bool(first) is (moment == "after_commit")


@pytest.mark.slow
def test_kills_at_seeded_instants_leave_the_bytes_of_an_undisturbed_run(serve, tmp_path: Path) -> None:
    calm = tmp_path / "calm"
    assert start(serve(latency_ms=3), tmp_path / "calm.sqlite", calm).wait(60) == 0
    drawn = random.Random(7)
    server, store, out = serve(latency_ms=10), tmp_path / "s.sqlite", tmp_path / "out"
    kills: list[tuple[int, set[str]]] = []
    for _ in range(8):
        process, until = start(server, store, out), len(server.requests()) + drawn.randint(1, 9)
        while len(server.requests()) < until and process.poll() is None:
            time.sleep(0.005)
        process.kill()
        process.wait()
        kills.append((len(server.requests()), stored(store)))
    assert start(server, store, out).wait(60) == 0
    check(server, store, kills)
    assert out.read_bytes() == calm.read_bytes()


def test_two_processes_on_one_store_share_the_answers(serve, tmp_path: Path) -> None:
    server, store = serve(latency_ms=2), tmp_path / "s.sqlite"
    both = [start(server, store, tmp_path / f"out{i}") for i in range(2)]
    assert [p.wait(60) for p in both] == [0, 0]
    assert (tmp_path / "out0").read_bytes() == (tmp_path / "out1").read_bytes()
    assert len(stored(store)) == COUNT


def test_ctrl_c_ends_a_client_at_once_and_keeps_what_was_answered(serve, tmp_path: Path) -> None:
    server, store = serve({"faults": [None] * 5 + [{"hang": True}] * 100}), tmp_path / "s.sqlite"
    process = start(server, store, tmp_path / "out")
    while len(stored(store)) < 5 and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) != 0
    assert len(stored(store)) >= 5 and not (tmp_path / "out").exists()
