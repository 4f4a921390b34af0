"""A signal at the worst instant: the ledger adds up, no lock stays, nothing is lost, bought twice or left."""

from __future__ import annotations

import json
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from questions import settings
from running import VECTORS, begun, ended, ran

from pipelines.llm.client import open_client
from pipelines.llm.stops import ClientClosed
from pipelines.llm.store import Store
from pipelines.llm.uninterrupted import UNINTERRUPTED, uninterrupted

MONEY = """
import contextlib, json, sqlite3
from pipelines.llm.caps import Cap, Caps
from pipelines.llm.prices import Price
from pipelines.llm import spending
from pipelines.llm.spending import Spending, ledger_path
os.environ["HEADRACE_RUN_ID"] = "run1"
PRICED = {"prices": {"scripted": Price(10.0, 100.0)}}
CAPPED = PRICED | {"caps": Caps(run=Cap(usd=100.0))}
def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
def tell():
    ledger = Spending(ledger_path(store))
    spent, held = ledger.sums(("run", "run1"))
    ledger.close()
    with Store(store) as opened:
        cost = sum(round(r[0] * 1e9) for r in opened.query("SELECT cost_usd FROM answers"))
        print(json.dumps([spent.nano, held.nano, cost, opened.count()]))
"""

AFTER_A_COMMIT = (
    MONEY
    + """
settle, came = Spending.settle, []
def then(ledger, entries):
    settle(ledger, entries)
    if len(entries) > 20 and not came:
        came.append(1)
        interrupt()
Spending.settle = then
try:
    with open_client(settings(url, concurrency=8, **HOW), store) as client:
        list(client.answers(map(question, range(400))))
except KeyboardInterrupt:
    tell()
"""
)


@pytest.mark.parametrize("how", ["CAPPED", "PRICED"])
def test_what_was_settled_is_not_settled_again_after_an_interrupt(serve, tmp_path: Path, how: str) -> None:
    said, errors, status = ran(AFTER_A_COMMIT.replace("HOW", how), serve().url, tmp_path / "s.sqlite")
    spent, held, cost, _ = json.loads(said)
    bound = 4_000_000 * 8  # at most what was in flight is charged more than it cost
    assert (errors, status, held) == ("", 0, 0) and 0 < cost <= spent <= cost + bound


HELD = (
    MONEY
    + """
reserve, settle, closing = Spending.reserve, Spending.settle, []
def reserved(*args):
    got = reserve(*args)
    if INSTANT == "reserve":
        interrupt()
    return got
def settled(*args):
    if INSTANT == "close" and closing:
        closing.clear()
        interrupt()
    return settle(*args)
Spending.reserve, Spending.settle = reserved, settled
try:
    with open_client(settings(url, concurrency=4, **CAPPED), store) as client:
        answers = client.answers(map(question, range(200)))
        for _ in range(3):
            next(answers)
        answers.close()
        closing.append(1)
except KeyboardInterrupt:
    tell()
"""
)


@pytest.mark.parametrize("instant", ["reserve", "close"])
def test_what_never_left_is_free_also_after_an_interrupt(serve, tmp_path: Path, instant: str) -> None:
    server = serve()
    said, errors, status = ran(HELD.replace("INSTANT", repr(instant)), server.url, tmp_path / "s.sqlite")
    spent, held, _, _ = json.loads(said)
    assert (errors, status, held) == ("", 0, 0) and spent <= 4_000_000 * len(server.requests())


LOCKED = """
import contextlib
armed = []
def enter(self):  # contextlib's own; a signal is taken when the generator is at its yield
    del self.args, self.kwds, self.func
    got = next(self.gen)
    here = threading.current_thread() is threading.main_thread()
    if armed and here and self.gen.gi_code.co_qualname == WHERE:
        armed.clear()
        os.kill(os.getpid(), signal.SIGINT)
    return got
contextlib._GeneratorContextManager.__enter__ = enter
try:
    with open_client(settings(url, concurrency=16, **MORE), store) as client:
        for nth, _ in enumerate(client.answers(map(question, range(3000)))):
            if nth == 300:
                armed.append(1)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("where", ["Database._guard", "Spending._guard", "Spending._change"])
def test_an_interrupt_leaves_no_lock_and_no_transaction_behind(serve, tmp_path: Path, where: str) -> None:
    more = "{}" if where.startswith("Database") else "CAPPED"
    script = MONEY + LOCKED.replace("WHERE", repr(where)).replace("MORE", more)
    assert ran(script, serve(latency_ms=5).url, tmp_path / "s.sqlite") == ("interrupted\n", "", 0)


BEGUN = (
    MONEY
    + """
real, count = sqlite3.connect, [0]
class Connection(sqlite3.Connection):
    def execute(self, query, *values):
        got = super().execute(query, *values)
        if query == "BEGIN IMMEDIATE":
            count[0] += 1
            if count[0] == NTH:
                interrupt()
        return got
spending.open_shared = lambda path: real(
    path, timeout=2, isolation_level=None, check_same_thread=False, factory=Connection)
try:
    with open_client(settings(url, **CAPPED), store) as client:
        list(client.answers(map(question, range(300))))
except KeyboardInterrupt:
    print("interrupted")
"""
)


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_an_interrupt_at_the_begin_of_a_transaction_is_an_interrupt(serve, tmp_path: Path, nth: int) -> None:
    script = BEGUN.replace("NTH", str(nth))
    assert ran(script, serve().url, tmp_path / "s.sqlite") == ("interrupted\n", "", 0)


def test_vectors_that_came_are_stored_though_another_thread_closes_the_client(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, asked = Store.put_vectors, threading.Event()

    def slow(*args: object) -> None:
        asked.set()
        time.sleep(0.3)
        put(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "put_vectors", slow)
    server, store, told = serve(), tmp_path / "s.sqlite", []
    client = open_client(settings(server.url), store)

    def embed() -> None:
        with suppress(ClientClosed):  # or they were handed out just before
            client.embed([f"text {i}" for i in range(64)], **VECTORS)
        told.append(True)

    asker = begun(embed)
    assert asked.wait(30)
    client.close()
    assert ended(asker) and told == [True]
    with open_client(settings(server.url), store) as again:
        assert len(again.embed([f"text {i}" for i in range(64)], **VECTORS)) == 64
    assert len(server.requests()) == 1


EMBEDDING = """
put = Store.put_vectors
def slow(opened, rows):
    if not said:
        said.append(1)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
    put(opened, rows)
said, Store.put_vectors = [], slow
for _ in range(2):
    try:
        with open_client(settings(url), store) as client:
            print(len(client.embed([f"text {i}" for i in range(64)], model="vectors", prefix="")))
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_an_interrupted_embedding_pays_for_no_vector_twice(serve, tmp_path: Path) -> None:
    server = serve()
    assert ran(EMBEDDING, server.url, tmp_path / "s.sqlite") == ("interrupted\n64\n", "", 0)
    assert len(server.requests()) == 1


HANDLER = """
client = open_client(settings(url), store)
def end(*_):
    client.close()
    sys.exit(5)
signal.signal(signal.SIGTERM, end)
threading.Timer(float(AFTER), os.kill, (os.getpid(), signal.SIGTERM)).start()
list(client.answers(map(question, range(100000))))
"""


@pytest.mark.parametrize("after", [0.02, 0.05, 0.1, 0.4])
def test_a_handler_of_a_signal_may_close_the_client(serve, tmp_path: Path, after: float) -> None:
    script = HANDLER.replace("AFTER", str(after))
    assert ran(script, serve(latency_ms=3).url, tmp_path / "s.sqlite") == ("", "", 5)


STARTED = """
start = threading.Thread.start
def started(thread):
    start(thread)
    if thread.name == "headrace-llm":
        os.kill(os.getpid(), signal.SIGINT)
threading.Thread.start = started
for _ in range(3):
    try:
        with open_client(settings(url), store) as client:
            list(client.answers(map(question, range(9))))
    except KeyboardInterrupt:
        print("interrupted")
print([thread.name for thread in threading.enumerate()])
"""


def test_a_thread_that_starts_during_an_interrupt_ends_with_its_client(serve, tmp_path: Path) -> None:
    said = ran(STARTED, serve().url, tmp_path / "s.sqlite")
    assert said == ("interrupted\n" * 3 + "['MainThread']\n", "", 0)


def test_handlers_wait_for_the_outermost_end_and_all_are_as_before() -> None:
    heard, before = [], [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    signal.signal(signal.SIGHUP, lambda *_: heard.append("HUP"))
    try:
        with pytest.raises(KeyboardInterrupt), UNINTERRUPTED:
            with UNINTERRUPTED:
                signal.raise_signal(signal.SIGHUP)
                signal.raise_signal(signal.SIGINT)
            assert heard == []
        assert heard == ["HUP"]
        with pytest.raises(KeyboardInterrupt):
            uninterrupted(signal.raise_signal)(signal.SIGINT)
    finally:
        signal.signal(signal.SIGHUP, before[2])
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_in_another_thread_nothing_waits() -> None:
    seen = []

    def look() -> None:
        with UNINTERRUPTED:
            seen.append(signal.getsignal(signal.SIGINT))

    assert ended(begun(look)) and seen == [signal.getsignal(signal.SIGINT)]
