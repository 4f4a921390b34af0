"""The end of a client, wherever it comes from: a thread, Ctrl-C, the collector, a fork, a file that is gone.

Whoever waits is told, what was answered is stored, and nothing strange is said.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

import pytest
from questions import question, settings
from running import VECTORS, begun, ended, ran
from test_batches import batched, sell

from pipelines.errors import EnvironmentFault
from pipelines.llm import courier
from pipelines.llm.caps import Cap, Caps
from pipelines.llm.client import Client, open_client
from pipelines.llm.collector import collecting
from pipelines.llm.job import Job
from pipelines.llm.prices import Price
from pipelines.llm.spending import Spending, ledger_path
from pipelines.llm.stops import ClientClosed, KeyRefused
from pipelines.llm.store import Store
from pipelines.llm.store_errors import GoneStore
from pipelines.llm.tally import Spent

__all__ = ["sell"]
CAPPED = {"prices": {"scripted": Price(10.0, 100.0), "vectors": Price(10.0, 0.0)}}


def count(store: Path) -> int:
    with Store(store, readonly=True) as opened:
        return opened.count()


def used(client: Client, what: str, number: int = 1) -> None:
    if what == "embed":
        client.embed([f"tea {number}"], **VECTORS)
    else:
        list(client.answers(map(question, range(number, number + 9))))


@pytest.mark.parametrize("what", ["answers", "embed"])
def test_whoever_waits_is_told_when_another_thread_closes_the_client(
    serve, tmp_path: Path, what: str
) -> None:
    server, told = serve({"faults": [{"hang": True}] * 3}), []
    client = open_client(settings(server.url, concurrency=3), tmp_path / "s.sqlite")

    def ask() -> None:
        with pytest.raises(ClientClosed):
            used(client, what)
        told.append(what)

    asker = begun(ask)
    while not server.requests():
        assert asker.is_alive()
    client.close()
    assert ended(asker) and told == [what]
    for again in ("answers", "embed"):
        with pytest.raises(ClientClosed):
            used(client, again)


@pytest.mark.parametrize("what", ["answers", "embed"])
def test_whoever_waits_for_money_is_told_when_another_thread_closes_the_client(
    serve, tmp_path: Path, what: str
) -> None:
    server, told = serve({"faults": [{"hang": True}]}), []
    patient = {"first_byte_timeout_s": 60.0, "timeout_s": 60.0, "caps": Caps(run=Cap(tokens=350))}
    client = open_client(settings(server.url, **patient, **CAPPED), tmp_path / "s.sqlite")

    def first() -> None:
        with pytest.raises(ClientClosed):
            list(client.answers([question(100)]))

    def second() -> None:
        with pytest.raises(ClientClosed):
            if what == "embed":
                client.embed(["tea"], **VECTORS)
            list(client.answers([question(200)]))
        told.append(what)

    begun(first)
    while not server.requests():
        time.sleep(0.01)
    waiting = begun(second)
    time.sleep(0.5)
    assert waiting.is_alive()
    client.close()
    assert ended(waiting) and told == [what]
    ledger = Spending(ledger_path(tmp_path / "s.sqlite"))
    ledger.close()
    assert not list(tmp_path.glob("*spending*-wal"))  # nobody opened it again


def test_of_two_who_close_a_client_none_closes_the_store_before_all_is_in_it(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, failed = Store.put, []

    def slow(store, records):
        time.sleep(0.2)
        try:
            return put(store, records)
        except BaseException as error:
            failed.append(error)
            raise

    monkeypatch.setattr(Store, "put", slow)
    server = serve(latency_ms=10)
    client = open_client(settings(server.url, concurrency=16), tmp_path / "s.sqlite")
    answers = client.answers(map(question, range(400)))
    next(answers)
    closers = [begun(client.close) for _ in range(2)]
    assert all(map(ended, closers)) and failed == []


def test_a_batching_client_is_closed_twice_and_by_two(sell, tmp_path: Path) -> None:
    client = open_client(batched(sell().url), tmp_path / "s.sqlite")
    assert len(list(client.answers(map(question, range(5))))) == 5
    client.close()
    client.close()
    assert all(map(ended, [begun(client.close) for _ in range(2)]))


def test_a_closed_courier_takes_nothing_and_keeps_nobody_waiting(serve, tmp_path: Path) -> None:
    with open_client(settings(serve().url), tmp_path / "s.sqlite") as client:
        list(client.answers([question(1)]))
        courier, done, gone = client.courier(), SimpleQueue(), []
        courier.close()
        courier.close()
        courier.recall(done)
        courier.recall_later(done, lambda: gone.append(done))
        courier.send([Job("k", "", "", "m", question(1), done)])
        assert isinstance(done.get(timeout=5), ClientClosed) and gone == [done]
        with pytest.raises(ClientClosed):
            courier.embed("vectors", ["tea"], gone.append)


def test_a_generator_that_the_endpoint_s_own_thread_drops_is_not_waited_for(serve, tmp_path: Path) -> None:
    """The error that stopped the endpoint holds the caller's frame, and so its generator."""
    server = serve({"poison": {"What is 500 +": {"status": 401}}})
    done = []

    def ask() -> None:
        with open_client(settings(server.url, concurrency=4), tmp_path / "s.sqlite") as client:

            def leaves_one() -> None:
                outer = client.answers(map(question, range(50)))
                next(outer)
                list(client.answers([question(500)]))

            with pytest.raises(EnvironmentFault):
                leaves_one()
            while not done:
                with suppress(EnvironmentFault):  # until the endpoint that was stopped has nobody
                    done.extend(client.answers(map(question, range(600, 610))))

    assert ended(begun(ask)) and len(done) == 10


def test_a_fault_of_ours_between_commit_and_handing_out_is_raised_and_the_answer_stored(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(*_: object) -> None:
        raise ZeroDivisionError("a fault in the count")

    monkeypatch.setattr(Spent, "count", faulty)
    with open_client(settings(serve().url, concurrency=1), tmp_path / "s.sqlite") as client:
        with pytest.raises(ZeroDivisionError, match="in the count"):
            list(client.answers(map(question, range(3))))
        assert client.store.count() >= 1


BUSY_DISK = """
put = Store.put
Store.put = lambda store, records: (time.sleep(0.2), put(store, records))[1]
try:
    with open_client(settings(url, concurrency=16), store) as client:
        answers = client.answers(map(question, range(200)))
        for _ in range(20):
            next(answers)
        time.sleep(0.3)  # the next group is answered whole
        threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
except KeyboardInterrupt:
    print("interrupted")
"""


def test_what_is_answered_is_stored_also_when_the_closing_is_interrupted(serve, tmp_path: Path) -> None:
    server, store = serve(), tmp_path / "s.sqlite"
    assert ran(BUSY_DISK, server.url, store) == ("interrupted\n", "", 0)
    assert count(store) == len(server.requests())


MAIN_ENDED = """
def work():
    with open_client(settings(url, concurrency=16), store) as client:
        print(len(list(client.answers(map(question, range(100))))))
threading.Thread(target=work).start()
time.sleep(0.3)
"""


def test_a_thread_that_asks_goes_on_when_the_main_thread_has_ended(serve, tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    assert ran(MAIN_ENDED, serve(latency_ms=50).url, store) == ("100\n", "", 0)
    assert count(store) == 100


IN_A_COLLECTION = """
def told(*_):
    raise InterruptedError
signal.signal(signal.SIGVTALRM, told)
heap = [[i] for i in range(2_000_000)]
signal.setitimer(signal.ITIMER_VIRTUAL, 0.005)
try:
    gc.collect()
    print("the signal was lost")
except InterruptedError:
    print("told")
"""


def test_a_signal_that_comes_during_a_collection_is_not_lost(tmp_path: Path) -> None:
    assert ran(IN_A_COLLECTION, "", tmp_path / "s.sqlite") == ("told\n", "", 0)


def test_whether_python_collects_is_known_within_and_after() -> None:
    seen = []

    class Last:
        def __del__(self) -> None:
            seen.append(collecting())

    one, one.itself = (last := Last()), last
    del one, last
    gc.collect()
    assert seen == [True] and not collecting()
    Last()
    assert seen == [True, False]


FORKED = """
client = open_client(settings(url, concurrency=2), store)
with client:
    answers = client.answers(map(question, range(40)))
    next(answers)
    if (child := os.fork()) == 0:
        signal.alarm(20)
        answers.close()
        client.close()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    print(1 + len(list(answers)))
"""


def test_a_forked_child_leaves_the_client_of_its_parent_alone(serve, tmp_path: Path) -> None:
    assert ran(FORKED, serve(latency_ms=5).url, tmp_path / "s.sqlite") == ("40\n", "", 0)


def removed(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    path.rename(path.with_suffix(".old"))
    path.touch()


@pytest.mark.parametrize("change", [removed, replaced])
def test_a_store_that_is_gone_stops_the_run_before_more_is_bought(
    serve, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    server, store = serve(), tmp_path / "s.sqlite"
    with open_client(settings(server.url, concurrency=4), store) as client:
        answers = client.answers(map(question, range(300)))
        next(answers)
        change(store)
        with pytest.raises(GoneStore, match="it was removed, or replaced, while it was used"):
            list(answers)
    assert len(server.requests()) < 50


def test_a_ledger_of_spending_that_is_gone_stops_the_run(serve, tmp_path: Path) -> None:
    server, store = serve(), tmp_path / "s.sqlite"
    client = open_client(settings(server.url, concurrency=4, caps=Caps(run=Cap(usd=5.0)), **CAPPED), store)
    answers = client.answers(map(question, range(900)))
    next(answers)
    ledger_path(store).unlink()
    with pytest.raises(EnvironmentFault, match="ledger of spending cannot be used.*removed"):
        list(answers)
    with pytest.raises(EnvironmentFault, match="ledger of spending cannot be used.*removed"):
        client.close()


def test_words_that_nobody_reads_end_nothing(serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Nobody:
        def write(self, *_: object) -> None:
            raise BrokenPipeError

    late = {"late_s": 1.0}
    server = serve({"faults": [late, late, late, {"status": 401}]})
    monkeypatch.setattr(courier, "NOTICE_S", 0.1)
    monkeypatch.setattr(sys, "stderr", Nobody())
    patient = {"stream": True, "first_byte_timeout_s": 20.0, "timeout_s": 20.0}
    with open_client(settings(server.url, concurrency=4, **patient), tmp_path / "s.sqlite") as client:
        with pytest.raises(KeyRefused):
            list(client.answers(map(question, range(8))))
        assert client.store.count() == 3


@pytest.mark.parametrize("how", ["dropped", "collected"])
def test_a_generator_dropped_while_the_ledger_cannot_be_written_says_nothing_and_close_tells_it(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def full(*_: object) -> None:
        raise EnvironmentFault("no room for the ledger")

    said = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    monkeypatch.setattr("pipelines.llm.budget.FLUSH_S", 0.0)
    client = open_client(settings(serve().url, concurrency=4, **CAPPED), tmp_path / "s.sqlite")
    kept = {"answers": client.answers(map(question, range(60)))}
    next(kept["answers"])
    time.sleep(0.3)
    monkeypatch.setattr(Spending, "settle", full)
    if how == "collected":
        kept["kept"] = kept
    del kept
    gc.collect()
    with pytest.raises(EnvironmentFault, match="no room for the ledger"):
        client.close()
    assert said == []
