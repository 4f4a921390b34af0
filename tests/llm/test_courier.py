"""What is in flight, committed, handed out: in this order, whatever fails."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from questions import question, settings

from pipelines.errors import EnvironmentFault
from pipelines.llm.client import open_client
from pipelines.llm.store import Kept, Record, Store
from pipelines.llm.store_errors import FullDisk


class Gate:
    """`Store.put` that stops before its commit until it is let through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        self.groups: list[int] = []
        put = Store.put

        def gated(store: Store, records: Sequence[Record]) -> dict[str, Kept]:
            self.groups.append(len(records))
            self.reached.set()
            assert self.open.wait(60)
            return put(store, records)

        monkeypatch.setattr(Store, "put", gated)


def test_no_answer_is_handed_out_and_no_place_is_free_before_the_commit(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, server = Gate(monkeypatch), serve()
    handed: list[str] = []
    with open_client(settings(server.url, concurrency=3), tmp_path / "s.sqlite") as client:

        def take() -> None:
            handed.extend(a.id for a in client.answers(map(question, range(12))))

        taker = threading.Thread(target=take)
        taker.start()
        assert gate.reached.wait(30)
        while len(server.requests()) < 3:
            assert taker.is_alive()
        threading.Event().wait(0.3)  # room for a fourth request, were a place free
        assert handed == [] and len(server.requests()) == 3 and client.pulse().in_flight == 3
        gate.open.set()
        taker.join(60)
        assert len(handed) == 12 == sum(gate.groups) == client.store.count()


def test_answers_that_came_during_a_commit_are_committed_together(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, server = Gate(monkeypatch), serve()
    with open_client(settings(server.url, concurrency=8), tmp_path / "s.sqlite") as client:
        taker = threading.Thread(target=lambda: list(client.answers(map(question, range(8)))))
        taker.start()
        assert gate.reached.wait(30)
        while len(server.requests()) < 8:
            assert taker.is_alive()
        threading.Event().wait(0.3)  # for the replies to come back
        gate.open.set()
        taker.join(60)
    assert sum(gate.groups) == 8 and len(gate.groups) <= 3


@pytest.mark.parametrize("status", [401, 402])
def test_a_client_whose_run_was_stopped_can_be_asked_again(serve, tmp_path: Path, status: int) -> None:
    server = serve({"faults": [None, {"status": status}]})
    with open_client(settings(server.url, concurrency=1), tmp_path / "s.sqlite") as client:
        with pytest.raises(EnvironmentFault):
            list(client.answers(map(question, range(5))))
        assert client.store.count() == 1 and len(server.requests()) == 2
        assert all(a.ok for a in client.answers(map(question, range(5))))
    assert sorted(server.asked().values()) == [1, 1, 1, 1, 2]


def test_two_who_ask_at_once_are_both_told_that_the_disk_is_full_and_go_on_when_there_is_room(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(store: Store, records: Sequence[Record]) -> dict[str, Kept]:
        raise FullDisk("no disk space for the response store")

    put, told = Store.put, []
    monkeypatch.setattr(Store, "put", full)
    server = serve(latency_ms=50)
    with open_client(settings(server.url, concurrency=2), tmp_path / "s.sqlite") as client:

        def ask(numbers: range) -> None:
            with pytest.raises(FullDisk):
                list(client.answers(map(question, numbers)))
            told.append(numbers)

        askers = [threading.Thread(target=ask, args=(n,)) for n in (range(10), range(10, 20))]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join(60)
        assert len(told) == 2 and client.store.count() == 0
        monkeypatch.setattr(Store, "put", put)
        assert len([a for a in client.answers(map(question, range(20))) if a.ok]) == 20


INTERRUPTED = """
import asyncio, sys
from pathlib import Path
sys.path[:0] = [{tests!r}]
from questions import question, settings
from pipelines.llm import courier
from pipelines.llm.client import open_client
from pipelines.llm.transport import Transport
url, store, what, slowly = sys.argv[1:]

async def close(transport, at_once=Transport.close):
    await asyncio.sleep(float(slowly))
    await at_once(transport)

Transport.close, courier.NOTICE_S = close, 0.1
told = settings(url, concurrency=4, stream=True, first_byte_timeout_s=60.0, timeout_s=60.0)
try:
    with open_client(told, Path(store)) as client:
        if what == "embed":
            client.embed(["a text"], model="vectors", prefix="")
        list(client.answers(map(question, range(8))))
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.fixture
def interrupted(serve, tmp_path: Path):
    """What a client says, on both streams, that is interrupted while it waits for the endpoint."""
    script = INTERRUPTED.format(tests=str(Path(__file__).parent))

    def run(faults: list[dict[str, float]], what: str, *, slowly: float) -> tuple[str, str]:
        server = serve({"faults": faults})
        command = [sys.executable, "-c", script, server.url, str(tmp_path / "s.sqlite"), what, str(slowly)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, cwd=Path(__file__).parents[2], **pipes) as client:  # type: ignore[call-overload]
            if what == "answers":
                assert "waits for 3 answers in flight" in client.stderr.readline()
            while len(server.requests()) < len(faults):
                assert client.poll() is None
            client.send_signal(signal.SIGINT)
            said: tuple[str, str] = client.communicate(timeout=20)
        return said

    return run


@pytest.mark.parametrize("slowly", [0.0, 0.3])
def test_whoever_interrupts_the_wait_for_what_is_in_flight_ends_it_at_once(
    interrupted, slowly: float
) -> None:
    late = {"late_s": 30.0}
    said = interrupted([late, late, late, {"status": 401}], "answers", slowly=slowly)
    assert said == ("interrupted\n", "")


def test_whoever_interrupts_an_embedding_ends_it_at_once(interrupted) -> None:
    assert interrupted([{"hang": True}], "embed", slowly=0.0) == ("interrupted\n", "")
