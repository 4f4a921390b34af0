"""Of several runs that want one answer at once, one asks and the others take what it stored."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipelines.errors import EnvironmentFault
from pipelines.llm.answer import Answer, Failure
from pipelines.llm.claims import Claims
from pipelines.llm.client import open_client
from pipelines.llm.embeddings import keys_of
from pipelines.llm.request import Request, Sampling
from pipelines.llm.settings import Settings
from tests.llm.scripted_server import ScriptedServer

KEYS = [f"{n:064x}" for n in (0, 16**50, 16**63, 16**64 - 1)]
HOLDER = """
import sys
from pathlib import Path
from pipelines.llm.claims import Claims
claims = Claims(Path(sys.argv[1]))
assert claims.take(sys.argv[2], "holder")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def no_endpoint_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADRACE_LLM_BACKEND", "HEADRACE_LLM_BASE_URL", "HEADRACE_LLM_MODEL"):
        monkeypatch.delenv(name, raising=False)


def questions(count: int) -> list[Request]:
    return [Request("completion", "m", Sampling(8), prompt=f"question {n}") for n in range(count)]


def ask(server: ScriptedServer, store: Path, count: int) -> list[Answer]:
    with open_client(Settings("openai", "m", server.url, concurrency=4), store) as client:
        return sorted(client.answers(questions(count)), key=lambda a: a.request.prompt or "")


def test_a_claim_keeps_others_off_until_it_is_given_back(tmp_path: Path) -> None:
    ours, theirs = Claims(tmp_path / "s.sqlite"), Claims(tmp_path / "s.sqlite")
    assert all(ours.take(key, "a") for key in KEYS)
    assert not any(theirs.take(key, "b") for key in KEYS)
    ours.give(KEYS[0], "a")
    assert [theirs.take(key, "b") for key in KEYS] == [True, False, False, False]
    ours.give_all("a")
    assert theirs.take(KEYS[1], "b")
    theirs.close()
    assert all(ours.take(key, "a") for key in KEYS)
    ours.close()


def test_one_owner_gives_nothing_of_another(tmp_path: Path) -> None:
    claims = Claims(tmp_path / "s.sqlite")
    assert claims.take(KEYS[1], "a")
    assert not claims.take(KEYS[1], "b")
    claims.give(KEYS[1], "b")
    claims.give_all("b")
    assert not claims.take(KEYS[1], "b")
    claims.close()


def test_a_claim_given_back_after_the_end_opens_no_file(tmp_path: Path) -> None:
    claims = Claims(tmp_path / "s.sqlite")
    assert claims.take(KEYS[0], "a")
    claims.close()
    claims.give(KEYS[0], "a")
    claims.give_all("a")
    assert claims._file is None


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(store), KEYS[2]], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None and holder.stdin is not None
    assert holder.stdout.readline() == b"held\n"
    claims = Claims(store)
    assert not claims.take(KEYS[2], "us")
    holder.kill()
    holder.wait()
    assert claims.take(KEYS[2], "us")
    holder.stdin.close()
    holder.stdout.close()


def test_two_clients_that_want_the_same_answers_at_once_pay_for_each_once(tmp_path: Path) -> None:
    with ScriptedServer(latency_ms=20) as server, ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(ask, server, tmp_path / "s.sqlite", 60) for _ in range(2)]
        one, other = (run.result() for run in runs)
        assert [a.text for a in one] == [a.text for a in other]
        assert len(one) == 60 and all(a.ok for a in one)
        assert len(server.asked()) == 60 and set(server.asked().values()) == {1}
        assert sum(a.stored for a in (*one, *other)) == 60


def test_what_another_could_not_get_is_asked_by_who_waited_for_it(tmp_path: Path) -> None:
    fault = {"status": 400, "body": "no"}
    with ScriptedServer({"faults": [fault]}, latency_ms=200) as server, ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(ask, server, tmp_path / "s.sqlite", 1) for _ in range(2)]
        ends = [run.result()[0] for run in runs]
        assert {a.failure for a in ends} == {Failure.BAD_REQUEST, None}
        assert list(server.asked().values()) == [2]


def test_who_leaves_early_leaves_the_question_to_others(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    with ScriptedServer(latency_ms=20) as server:
        client = open_client(Settings("openai", "m", server.url, concurrency=1), store)
        answers = client.answers(questions(30))
        next(answers)
        answers.close()
        assert all(a.ok for a in ask(server, store, 30))
        client.close()


def test_two_calls_of_one_client_in_turns_pay_for_each_question_once(tmp_path: Path) -> None:
    with (
        ScriptedServer(latency_ms=20) as server,
        open_client(Settings("openai", "m", server.url, concurrency=2), tmp_path / "s.sqlite") as client,
    ):
        one, other = client.answers(questions(8)), client.answers(questions(8))
        firsts = [next(one), next(other)]
        assert len(firsts) + len(list(one)) + len(list(other)) == 16
        assert set(server.asked().values()) == {1} and len(server.asked()) == 8


def test_a_question_that_failed_is_free_although_nobody_has_read_its_end(tmp_path: Path) -> None:
    fault = {"status": 400, "body": "no"}
    store = tmp_path / "s.sqlite"
    with ScriptedServer({"faults": [None, fault]}, latency_ms=20) as server:
        settings = Settings("openai", "m", server.url, concurrency=1)
        with open_client(settings, store) as one, open_client(settings, store) as other:
            suspended = one.answers(questions(2))
            assert next(suspended).ok
            [answer] = other.answers(questions(2)[1:])
            assert answer.ok
            suspended.close()


def test_what_stopped_one_client_stops_nobody_who_waits_for_it(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    with ScriptedServer({"faults": [None, {"status": 401}]}) as bad, ScriptedServer() as good:
        refused = Settings("openai", "m", bad.url, concurrency=1)
        served = Settings("openai", "m", good.url)
        with open_client(refused, store) as one, open_client(served, store) as other:
            suspended = one.answers(questions(6))
            assert next(suspended).ok
            assert all(a.ok for a in other.answers(questions(6)))
            with pytest.raises(EnvironmentFault):
                list(suspended)


def test_a_call_that_the_collector_ends_in_the_couriers_own_thread_stops_nothing(tmp_path: Path) -> None:
    with (
        ScriptedServer(latency_ms=20) as server,
        open_client(Settings("openai", "m", server.url), tmp_path / "s.sqlite") as client,
    ):
        held: dict[str, object] = {}
        held["itself"], held["rows"] = held, client.answers(questions(300))
        next(held["rows"])  # type: ignore[call-overload]
        del held
        client.courier()._loop.call_soon_threadsafe(gc.collect)  # type: ignore[union-attr]
        others = [Request("completion", "m", Sampling(8), prompt=f"other {n}") for n in range(5)]
        assert all(a.ok for a in client.answers(others))


def test_a_batch_and_a_run_at_once_pay_for_each_question_once(tmp_path: Path) -> None:
    """The batch finds all of its questions asked, and takes what the run stores: it sends nothing."""
    store = tmp_path / "s.sqlite"
    with ScriptedServer(latency_ms=300) as server, ThreadPoolExecutor(1) as pool:
        run = pool.submit(ask, server, store, 4)
        while not server.requests():
            time.sleep(0.01)
        with open_client(Settings("batch", "m", server.url), store) as client:
            assert all(a.stored for a in client.answers(questions(4)))
        assert all(a.ok for a in run.result())
        assert set(server.asked().values()) == {1} and len(server.asked()) == 4


def test_a_store_by_another_name_has_the_same_claims(tmp_path: Path) -> None:
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "r.sqlite").symlink_to(tmp_path / "s.sqlite")
    with ScriptedServer(latency_ms=50) as server, ThreadPoolExecutor(2) as pool:
        paths = (tmp_path / "s.sqlite", tmp_path / "link" / "r.sqlite")
        ask(server, paths[0], 1)
        for run in [pool.submit(ask, server, path, 12) for path in paths]:
            assert len(run.result()) == 12
        assert set(server.asked().values()) == {1}


def test_runs_that_embed_the_same_texts_at_once_pay_once_and_share_the_work(tmp_path: Path) -> None:
    texts = [f"text {n}" for n in range(640)]

    def embed(store: Path) -> list[list[float]]:
        with open_client(Settings("openai", "m", server.url), store) as client:
            return [list(map(float, v)) for v in client.embed(texts, model="e", prefix="")]

    with ScriptedServer(latency_ms=50) as server, ThreadPoolExecutor(3) as pool:
        got = list(pool.map(embed, [tmp_path / "s.sqlite"] * 3))
        paid = [text for r in server.requests() for text in r["body"]["input"]]
    assert got[0] == got[1] == got[2] and len(got[0]) == 640
    assert sorted(paid) == sorted(texts)


def test_the_texts_of_a_run_that_died_are_embedded_by_another(tmp_path: Path) -> None:
    ours = Claims(tmp_path / "s.sqlite")
    with (
        ScriptedServer() as server,
        open_client(Settings("openai", "m", server.url), tmp_path / "s.sqlite") as client,
    ):
        (key,) = keys_of(client, ["a text"], model="e", prefix="")
        assert ours.take(key, "the dying")
        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(client.embed, ["a text"], model="e", prefix="")
            time.sleep(0.3)
            assert not waits.done() and not server.requests()
            ours.close()
            assert len(waits.result(timeout=20)) == 1
