"""Of several runs that want one answer at once, one asks and the others take what it stored."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipelines.llm.answer import Answer, Failure
from pipelines.llm.claims import Claims
from pipelines.llm.client import open_client
from pipelines.llm.request import Request, Sampling
from pipelines.llm.settings import Settings
from tests.llm.scripted_server import ScriptedServer

KEYS = [f"{n:064x}" for n in (0, 16**50, 16**63, 16**64 - 1)]
HOLDER = """
import sys
from pathlib import Path
from pipelines.llm.claims import Claims
claims = Claims(Path(sys.argv[1]))
assert claims.take(sys.argv[2])
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
    assert all(ours.take(key) for key in KEYS)
    assert not any(theirs.take(key) for key in KEYS)
    ours.give(KEYS[0])
    assert [theirs.take(key) for key in KEYS] == [True, False, False, False]
    ours.close()
    assert all(theirs.take(key) for key in KEYS)
    theirs.close()


def test_a_claim_taken_twice_is_free_when_it_was_given_back_twice(tmp_path: Path) -> None:
    ours, theirs = Claims(tmp_path / "s.sqlite"), Claims(tmp_path / "s.sqlite")
    assert ours.take(KEYS[1]) and ours.take(KEYS[1])
    ours.give(KEYS[1])
    assert not theirs.take(KEYS[1])
    ours.give(KEYS[1])
    assert theirs.take(KEYS[1])


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(store), KEYS[2]], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None and holder.stdin is not None
    assert holder.stdout.readline() == b"held\n"
    claims = Claims(store)
    assert not claims.take(KEYS[2])
    holder.kill()
    holder.wait()
    assert claims.take(KEYS[2])
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
