"""A client under caps, against an endpoint that bills: what is asked, what is not, and what it cost."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from questions import question, settings
from scripted_server import ScriptedServer

from pipelines.errors import ConfigError, StageError
from pipelines.llm.answer import Answer, Failure
from pipelines.llm.caps import Cap, Caps
from pipelines.llm.client import Client, open_client
from pipelines.llm.prices import NANO, Price, most
from pipelines.llm.request import Request, Sampling, named_request
from pipelines.llm.spending import Spending, ledger_path
from pipelines.llm.stops import KeyRefused
from pipelines.llm.store import Store

PRICE = Price(prompt=10.0, completion=100.0)  # an answer: 10 and 2 tokens, .0003 USD
ANSWER = 300_000  # nano-dollars
BOUND = 0.005  # USD, and a little more than a question of these can cost


@pytest.fixture(autouse=True)
def one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_RUN_ID", "run1")


def client(server: ScriptedServer, store: Path, stage: str = "s", **changes: Any) -> Client:
    changes = {"prices": {"scripted": PRICE}, "concurrency": 4} | changes
    return open_client(settings(server.url, **changes), store, stage=stage)


def ask(server: ScriptedServer, store: Path, *requests: Request, **changes: Any) -> list[Answer]:
    with client(server, store, **changes) as asker:
        return sorted(asker.answers(requests), key=lambda a: int(a.request.row[3:]))


def spent(store: Path, scope: str = "run", name: str = "run1") -> tuple[int, int]:
    """Nano-dollars spent and held."""
    ledger = Spending(ledger_path(store))
    sums = ledger.sums((scope, name))
    ledger.close()
    return sums[0].nano, sums[1].nano


def test_an_answer_is_stored_with_its_price_and_counted_once(serve, tmp_path: Path) -> None:
    server, store = serve(), tmp_path / "s.sqlite"
    first = ask(server, store, *map(question, range(5)))
    again = ask(server, store, *map(question, range(5)))
    assert [a.usage.cost_usd for a in first] == [a.usage.cost_usd for a in again] == [ANSWER / NANO] * 5
    assert spent(store) == (5 * ANSWER, 0)


def test_a_cap_leaves_the_rest_over_budget_and_raising_it_asks_just_them(serve, tmp_path: Path) -> None:
    server, store = serve(latency_ms=5), tmp_path / "s.sqlite"
    requests = [question(n) for n in range(400)]
    low = Caps(run=Cap(usd=0.06))
    first = ask(server, store, *requests, caps=low)
    over = [a for a in first if a.failure is Failure.OVER_BUDGET]
    asked = len(server.requests())
    assert len(first) == 400 and asked + len(over) == 400
    told = re.compile(r"llm\.caps\.run\.usd of 0\.06 is reached: (0\.0\d{3}) are spent or held")
    sums = [float(found[1]) for a in over if (found := told.fullmatch(a.detail))]
    assert len(sums) == len(over) and all(0.06 - BOUND < s <= 0.06 for s in sums)
    assert spent(store) == (asked * ANSWER, 0)
    assert 0.06 * NANO - BOUND * NANO < asked * ANSWER <= 0.06 * NANO  # used up, and not exceeded
    again = ask(server, store, *requests, caps=Caps(run=Cap(usd=1.0)))
    assert all(a.ok for a in again) and {a.request.row for a in again if not a.stored} == {
        a.request.row for a in over
    }
    assert len(server.requests()) == 400 and max(server.asked().values()) == 1


@pytest.mark.parametrize("scope", ["stage", "run", "month"])
def test_each_scope_holds_for_the_clients_that_share_it(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: str
) -> None:
    server, store = serve(), tmp_path / "s.sqlite"
    caps = Caps(**{scope: Cap(tokens=700)})  # one question holds some 450
    asked = []
    for number, (run, stage) in enumerate((("a", "x"), ("a", "y"), ("b", "x"))):
        monkeypatch.setenv("HEADRACE_RUN_ID", run)
        few = [question(100 * number + n) for n in range(60)]
        asked.append(sum(a.ok for a in ask(server, store, *few, caps=caps, stage=stage)))
    shared = {"stage": [False, False], "run": [True, False], "month": [True, True]}[scope]
    assert asked[0] > 10
    assert [a <= 2 for a in asked[1:]] == shared  # a longer question may fit less, a shorter one more


def test_without_a_price_a_cap_in_usd_stops_before_anything_is_sent(serve, tmp_path: Path) -> None:
    server = serve()
    with pytest.raises(ConfigError, match="has no price"):
        ask(server, tmp_path / "s", question(1), prices={}, caps=Caps(run=Cap(usd=9.0)))
    assert server.requests() == []


def test_a_lost_attempt_is_charged_and_a_refused_one_is_not(serve, tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    refused = serve({"faults": [{"status": 500}, {"status": 429, "headers": {"Retry-After": "0"}}]})
    ask(refused, store, question(1))
    assert spent(store) == (ANSWER, 0)
    lost = serve({"faults": [{"garbage": True}]})
    ask(lost, store, question(2))
    paid, held = spent(store)
    assert paid > 3 * ANSWER and held == 0


def bounds(requests: list[Request]) -> list[int]:
    """Nano-dollars that each can cost at most."""
    named = (named_request(r, "scripted", "name:scripted") for r in requests)
    return [PRICE.nano(most(n.request, n.canonical)) for n in named]


def test_samples_of_one_lost_call_are_each_charged_where_a_cap_ends_them(serve, tmp_path: Path) -> None:
    server, store = serve({"faults": [{"garbage": True}]}), tmp_path / "s.sqlite"
    requests = [question(1, sample=k) for k in range(4)]
    caps = Caps(run=Cap(usd=sum(bounds(requests)) / NANO))
    answers = ask(server, store, *requests, samples_per_call=4, caps=caps)
    assert {a.failure for a in answers} == {Failure.OVER_BUDGET} and len(server.requests()) == 1
    assert spent(store) == (sum(bounds(requests)), 0)


def test_answers_in_the_midst_of_their_commit_when_a_run_stops_cost_what_they_cost(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Store.put

    def slowly(store: Store, records):  # type: ignore[no-untyped-def]
        time.sleep(0.3)
        return put(store, records)

    monkeypatch.setattr(Store, "put", slowly)
    faults, store = [None, None, None, {"status": 401}], tmp_path / "s.sqlite"
    server = serve({"faults": faults}, latency_ms=20)
    with pytest.raises(KeyRefused):
        ask(server, store, *map(question, range(8)), caps=Caps(run=Cap(usd=100.0)))
    answered = sum(r["fault"] is None for r in server.requests())
    assert answered >= 3 and spent(store) == (answered * ANSWER, 0)


def test_an_endpoint_that_is_not_there_costs_nothing(serve, tmp_path: Path) -> None:
    server, store = serve(), tmp_path / "s.sqlite"
    server.stop()
    try:
        answers = ask(server, store, question(1), retries=0, caps=Caps(run=Cap(usd=1.0)))
    except Exception:
        answers = []
    assert not any(a.ok for a in answers) and spent(store) == (0, 0)


def test_leaving_early_pays_for_what_left_and_gives_back_the_rest(serve, tmp_path: Path) -> None:
    server, store = serve(latency_ms=30), tmp_path / "s.sqlite"
    with client(server, store, caps=Caps(run=Cap(usd=100.0))) as asker:
        next(asker.answers(question(n) for n in range(200)))
    paid, held = spent(store)
    asked = len(server.requests())
    assert held == 0 and asked < 200
    assert (asked - 8) * ANSWER <= paid <= asked * BOUND * NANO


KILLED = """
import sys
from pathlib import Path
sys.path[:0] = [{tests!r}]
from test_capped_client import Cap, Caps, PRICE, open_client, question, settings
caps = Caps(run=Cap(tokens=int(sys.argv[3])))
told = settings(sys.argv[1], prices={{"scripted": PRICE}}, concurrency=2, caps=caps)
with open_client(told, Path(sys.argv[2])) as asker:
    list(asker.answers(question(n) for n in range(40)))
"""


def test_a_killed_run_under_a_cap_spends_what_was_in_flight_and_not_its_whole_window(
    serve, tmp_path: Path
) -> None:
    store, cap = tmp_path / "s.sqlite", sum(tokens(question(n)) for n in range(40))
    hanging = serve({"faults": [None] * 10 + [{"hang": True}] * 40})
    script = KILLED.format(tests=str(Path(__file__).parent))
    command = [sys.executable, "-c", script, hanging.url, str(store), str(cap)]
    with subprocess.Popen(command) as killed:
        while len(hanging.requests()) < 12 and killed.poll() is None:
            time.sleep(0.02)
        killed.kill()
    caps = Caps(run=Cap(tokens=cap))
    server = serve()
    answers = ask(server, store, *map(question, range(40)), caps=caps, concurrency=2)
    assert all(a.ok for a in answers)
    assert sum(a.stored for a in answers) == 10
    used = sum(a.usage.prompt_tokens + a.usage.completion_tokens for a in answers)
    ledger = Spending(ledger_path(store))
    spent_, held = ledger.sums(("run", "run1"))
    ledger.close()
    lost = spent_.tokens - used
    assert held.tokens == 0 and 0 < lost <= 2 * max(tokens(question(n)) for n in range(40))


def test_a_repair_is_charged_as_any_other(serve, tmp_path: Path) -> None:
    from pipelines.llm.structured import structured

    server, store = serve({"faults": [{"text": "no"}, {"text": '{"n": 1}'}]}), tmp_path / "s.sqlite"
    schema = {"type": "object", "required": ["n"]}
    with client(server, store, caps=Caps(run=Cap(usd=1.0))) as asker:
        (end,) = structured(asker.answers, [replace(question(1), schema=schema)])
    assert end.value == {"n": 1}
    assert spent(store)[0] == round(sum(a.usage.cost_usd for a in end.answers) * NANO) > 0
    assert len(server.requests()) == 2


def test_embeddings_are_charged_and_stop_at_a_cap(serve, tmp_path: Path) -> None:
    server, store = serve(), tmp_path / "s.sqlite"
    price = {"e": Price(prompt=1.0, completion=0.0)}  # the server counts a token a text
    texts = [f"text {n}" for n in range(100)]
    with client(server, store, prices=price, caps=Caps(month=Cap(usd=0.1))) as asker:
        vectors = asker.embed(texts, model="e", prefix="")
        assert asker.pulse().cost_usd == pytest.approx(100 * 1e-6)
    assert len(vectors) == 100 and spent(store) == (100_000, 0)
    asked = len(server.requests())
    with (
        client(server, store, prices=price, caps=Caps(month=Cap(usd=0.0002))) as asker,
        pytest.raises(StageError, match="embeddings of e are over budget: llm.caps.month.usd of 0.0002"),
    ):
        asker.embed([f"other {n}" for n in range(100)], model="e", prefix="")
    assert len(server.requests()) == asked and spent(store) == (100_000, 0)


def test_embedding_leaves_what_waits_for_money_to_whoever_asked_it(serve, tmp_path: Path) -> None:
    server, caps = serve(latency_ms=100), Caps(month=Cap(tokens=1100))
    large = [replace(question(n), sampling=Sampling(300)) for n in range(4)]  # two fit at most, as bounds
    with client(server, tmp_path / "s.sqlite", caps=caps) as asker:
        answers = asker.answers(large)
        assert next(answers).ok
        asker.embed(["a text"], model="emb")
        assert [a.ok for a in answers] == [True, True, True]


def test_two_runs_that_wait_for_each_others_money_and_answer_both_end(serve, tmp_path: Path) -> None:
    """One waits for money with the claim of the large question, which the other waits for holding money."""
    server, store = serve(latency_ms=300), tmp_path / "s.sqlite"
    large = replace(question(9), sampling=Sampling(800))
    bounds = [tokens(r) for r in (question(0), large)]
    caps = Caps(month=Cap(tokens=sum(bounds) - 20))
    with ThreadPoolExecutor(2) as pool:
        runs = []
        for own in (0, 1):
            runs.append(pool.submit(ask, server, store, question(own), large, caps=caps))
            while len(server.requests()) <= own:
                time.sleep(0.01)
        ends = [run.result(60) for run in runs]
    assert all(a.ok for end in ends for a in end)
    assert set(server.asked().values()) == {1} and len(server.asked()) == 3


def tokens(request: Request) -> int:
    """What a question is held for."""
    bound = most(request, named_request(request, "scripted", "name:scripted").canonical)
    return bound.prompt_tokens + bound.completion_tokens
