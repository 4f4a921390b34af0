"""Batches: cut by the limits, watched to their end, merged row by row, the rest asked singly."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

import orjson
import pytest
from batch_server import BatchServer
from questions import question, settings

from pipelines.errors import ConfigError, EnvironmentFault
from pipelines.llm.answer import Answer, Failure
from pipelines.llm.backends import batch_ledger, batch_office
from pipelines.llm.backends.batch_ledger import Ledger, ledger_path
from pipelines.llm.backends.batch_settings import BatchSettings
from pipelines.llm.caps import Cap, Caps
from pipelines.llm.client import Client, open_client
from pipelines.llm.job import Job
from pipelines.llm.prices import NANO, Price, most
from pipelines.llm.request import named_request
from pipelines.llm.settings import Settings
from pipelines.llm.store import Store

if TYPE_CHECKING:
    from pipelines.llm.job import Handed

QUICK = {"poll_s": 0.05, "poll_max_s": 0.2, "settle_s": 0.2}
Sell = Callable[..., BatchServer]


@pytest.fixture
def sell(tmp_path: Path) -> Iterator[Sell]:
    """Starts batch endpoints that end with the test."""
    started: list[BatchServer] = []

    def start(**script: object) -> BatchServer:
        started.append(BatchServer(script, log=tmp_path / f"batches{len(started)}.jsonl"))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def batched(url: str, **batch: object) -> Settings:
    return settings(url, backend="batch", batch=BatchSettings(**(QUICK | batch)))  # type: ignore[arg-type]


def ask(server: BatchServer, store: Path, count: int = 20, **batch: object) -> list[Answer]:
    with open_client(batched(server.url, **batch), store) as client:
        return sorted(client.answers(map(question, range(count))), key=lambda a: a.id)


def test_a_batch_gives_the_answers_that_single_questions_give(sell, tmp_path: Path) -> None:
    server = sell()
    answers = ask(server, tmp_path / "batched.sqlite")
    with open_client(settings(server.url), tmp_path / "single.sqlite") as client:
        single = sorted(client.answers(map(question, range(20))), key=lambda a: a.id)
    assert [(a.id, a.text) for a in answers] == [(a.id, a.text) for a in single]
    assert all(a.ok and a.usage.prompt_tokens == 10 for a in answers)
    assert set(server.batched()) == {a.id for a in answers} and set(server.batched().values()) == {1}
    again = ask(server, tmp_path / "batched.sqlite")
    assert all(a.stored for a in again) and len(server.events("create")) == 1


def open_batches(store: Path) -> list[str]:
    """Ids of the batches that the ledger beside `store` still waits for."""
    ledger = Ledger(ledger_path(store))
    try:
        return [batch.id for batch in ledger.batches()]
    finally:
        ledger.close()


def test_files_keep_the_limits_and_ask_one_model_at_one_endpoint(sell, tmp_path: Path) -> None:
    server = sell(limits={"requests": 7})
    asked = [question(n) for n in range(20)] + [question(n, kind="chat") for n in range(3)]
    asked += [replace(question(n), model="other") for n in range(4)]
    with open_client(batched(server.url, max_requests=7), tmp_path / "s.sqlite") as client:
        answers = list(client.answers(asked))
    files = sorted((e["models"], e["urls"], e["endpoint"], len(e["keys"])) for e in server.events("create"))
    completion, chat = "/v1/completions", "/v1/chat/completions"
    assert files == [
        (["other"], [completion], completion, 4),
        (["scripted"], [chat], chat, 3),
        (["scripted"], [completion], completion, 6),
        (["scripted"], [completion], completion, 7),
        (["scripted"], [completion], completion, 7),
    ]
    assert len(answers) == 27 and all(a.ok for a in answers)


def test_files_keep_the_limit_of_bytes_and_what_fits_none_is_asked_singly(sell, tmp_path: Path) -> None:
    server = sell()
    long = replace(question(0), prompt="long " * 1000)
    with open_client(batched(server.url, max_mb=0.002), tmp_path / "s.sqlite") as client:
        answers = list(client.answers([long, *map(question, range(1, 20))]))
    assert len(answers) == 20 and all(a.ok for a in answers)
    assert max(e["bytes"] for e in server.events("create")) <= 2000 and len(server.events("create")) > 2
    (singly,) = server.single()
    assert singly not in server.batched() and len(server.batched()) == 19


def test_lines_of_a_batch_tell_the_limit_under_the_name_that_settings_give_it(
    sell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies, line_of = [], batch_office.line_of

    def seen(key: str, kind: str, body: bytes) -> bytes:
        bodies.append(orjson.loads(body))
        return line_of(key, kind, body)

    monkeypatch.setattr(batch_office, "line_of", seen)
    told = replace(batched(sell().url), max_tokens_as="max_completion_tokens")
    with open_client(told, tmp_path / "s.sqlite") as client:
        assert all(a.ok for a in client.answers([question(1, kind="chat"), question(2, kind="chat")]))
    assert [(b["max_completion_tokens"], "max_tokens" in b) for b in bodies] == [(16, False)] * 2


FAULTS = {"0": 400, "1": 429, "2": 500, "3": "drop", "4": "null", "5": "garbage", "6": "twice", "7": "length"}


def test_lines_merge_by_key_and_what_failed_for_a_passing_cause_goes_on_singly(sell, tmp_path: Path) -> None:
    server, store = sell(lines=FAULTS, strangers=3), tmp_path / "s.sqlite"
    with open_client(batched(server.url), store) as client:
        answers = {a.id: a for a in client.answers(map(question, range(80)))}
        spent = client.spent
    wanted = {"0": Failure.BAD_REQUEST, "7": Failure.LENGTH}
    assert {k: a.failure for k, a in answers.items()} == {k: wanted.get(k[0]) for k in answers}
    assert set(server.single()) == {k for k in answers if k[0] in "12345"}
    assert set(server.single().values()) == {1} and {k[0] for k in answers} >= set("01234567")
    assert spent.asked == len(answers) == 80
    with Store(store) as kept:
        assert set(kept.answers(answers)) == {
            k for k, a in answers.items() if a.failure is not Failure.BAD_REQUEST
        }
    ledger = Ledger(ledger_path(store))
    (batch,) = ledger.batches(open_only=False)
    ledger.close()
    assert (batch.unknown, batch.open, batch.status) == (3, False, "completed")


@pytest.mark.parametrize("end", ["expired", "cancelled", "failed"])
def test_what_a_batch_did_not_run_is_asked_singly_and_nothing_else(sell, tmp_path: Path, end: str) -> None:
    server = sell(ends=[end], share=0.6)
    answers = ask(server, tmp_path / "s.sqlite")
    assert all(a.ok for a in answers)
    ran = [] if end == "failed" else server.events("create")[0]["keys"][:12]
    assert set(server.single()) == {a.id for a in answers} - set(ran)


def test_without_a_rest_the_rows_fail_for_a_passing_cause_and_the_next_run_batches_them(
    sell, tmp_path: Path
) -> None:
    server, store = sell(ends=["expired"]), tmp_path / "s.sqlite"
    first = ask(server, store, rest="fail")
    assert [a.failure for a in first if not a.ok] == [Failure.TIMEOUT] * 10
    assert "batch_1 ended as expired" in next(a.detail for a in first if not a.ok)
    second = ask(server, store, rest="fail")
    assert all(a.ok for a in second) and not server.single()
    assert set(server.events("create")[1]["keys"]) == {a.id for a in first if not a.ok}


def test_a_batch_is_cancelled_once_at_its_deadline_and_its_rest_goes_on(sell, tmp_path: Path) -> None:
    server = sell(looks=10**6)
    answers = ask(server, tmp_path / "s.sqlite", deadline_s=0.3)
    assert all(a.ok for a in answers) and len(server.events("cancel")) == 1
    assert set(server.single()) == set(server.events("create")[0]["keys"][10:])


@pytest.mark.parametrize(
    "faults",
    [
        {"upload": [503, "drop"]},
        {"create": [500, "drop"]},
        {"create": ["lost"]},
        {"create": ["lost"], "list": [500]},
        {"retrieve": [500, "html", "drop", 429]},
        {"content": [500, "drop"]},
        {"upload": ["lost"], "create": ["html"]},
    ],
)
def test_faults_that_pass_neither_lose_a_question_nor_submit_it_twice(
    sell, tmp_path: Path, faults: dict[str, list[object]]
) -> None:
    server = sell(faults=faults)
    answers = ask(server, tmp_path / "s.sqlite")
    assert all(a.ok for a in answers) and not server.single()
    assert set(server.batched().values()) == {1} and len(server.batched()) == 20


def test_a_creation_that_shows_late_in_the_list_is_not_repeated(sell, tmp_path: Path) -> None:
    server = sell(faults={"create": ["lost"]}, list_late=1)
    assert all(a.ok for a in ask(server, tmp_path / "s.sqlite", settle_s=5.0))
    assert set(server.batched().values()) == {1}


@pytest.mark.parametrize(
    ("faults", "kind", "says"),
    [
        ({"upload": [401]}, EnvironmentFault, "HEADRACE_LLM_API_KEY"),
        ({"create": [400]}, ConfigError, "makes no batch (HTTP 400)"),
        ({"upload": [404]}, ConfigError, "llm.base_url"),
        ({"create": [402]}, EnvironmentFault, "no funds"),
    ],
)
def test_a_refusal_stops_the_run_and_frees_its_questions(
    sell, tmp_path: Path, faults: dict[str, list[int]], kind: type[Exception], says: str
) -> None:
    server, store = sell(faults=faults), tmp_path / "s.sqlite"
    with pytest.raises(kind) as caught:
        ask(server, store)
    assert says in str(caught.value) and "\n" not in str(caught.value)
    assert open_batches(store) == []
    assert all(a.ok for a in ask(server, store))
    assert set(server.batched().values()) == {1}


def test_an_endpoint_that_stays_away_ends_the_run_and_the_batch_is_found_later(sell, tmp_path: Path) -> None:
    server, store = sell(faults={"retrieve": [500] * 8}), tmp_path / "s.sqlite"
    impatient = replace(batched(server.url), patience_s=0.3)
    with open_client(impatient, store) as client, pytest.raises(EnvironmentFault, match="recorded"):
        list(client.answers(map(question, range(20))))
    assert open_batches(store) == ["batch_1"]
    assert all(a.ok for a in ask(server, store))
    assert set(server.batched().values()) == {1}


def test_a_batch_that_is_paid_for_is_fetched_though_a_cap_leaves_no_room(sell, tmp_path: Path) -> None:
    server, store = sell(faults={"retrieve": [500] * 8}), tmp_path / "s.sqlite"
    price = Price(prompt=1.0, completion=2.0)
    named = (named_request(question(n), "scripted", "name:scripted") for n in range(20))
    usd = sum(price.nano(most(n.request, n.canonical)) for n in named) / NANO
    told = replace(batched(server.url), prices={"scripted": price}, caps=Caps(month=Cap(usd=usd)))
    impatient = replace(told, patience_s=0.3)
    with open_client(impatient, store) as client, pytest.raises(EnvironmentFault, match="recorded"):
        list(client.answers(map(question, range(20))))
    with open_client(told, store) as client:
        ends = Counter(a.failure for a in client.answers(map(question, range(25))))
    assert ends == {None: 20, Failure.OVER_BUDGET: 5} and set(server.batched().values()) == {1}


def test_a_batch_that_is_refused_for_a_while_waits_as_told_and_spends_no_retry(sell, tmp_path: Path) -> None:
    server = sell(faults={"create": [[429, "0.05"]] * 6, "upload": [[503, "0.1"], None]})
    with open_client(replace(batched(server.url), retries=1), tmp_path / "s.sqlite") as client:
        assert all(a.ok for a in client.answers(map(question, range(20))))
    assert set(server.batched().values()) == {1} and len(server.events("refused create")) == 6


def test_a_batch_that_there_is_no_room_for_is_handed_in_again_and_nothing_is_asked_singly(
    sell, tmp_path: Path
) -> None:
    server = sell(ends=["full", "full"], limits={"requests": 10})
    answers = ask(server, tmp_path / "s.sqlite", max_requests=10)
    assert all(a.ok for a in answers) and not server.single()
    assert [len(e["keys"]) for e in server.events("create")] == [10, 10, 5, 10, 5]
    assert set(server.batched().values()) == {2}


def test_questions_for_whose_batch_there_is_no_room_for_long_fail_for_a_passing_cause(
    sell, tmp_path: Path
) -> None:
    server, store = sell(ends=["full"] * 99), tmp_path / "s.sqlite"
    with open_client(replace(batched(server.url), patience_s=1.0), store) as client:
        (failure,) = {a.failure for a in client.answers(map(question, range(20)))}
    assert failure is Failure.OVERLOADED and not server.single() and 2 <= len(server.events("create")) <= 80
    assert open_batches(store) == []


def test_a_batch_that_is_too_large_for_the_queue_is_handed_in_by_halves(sell, tmp_path: Path) -> None:
    server = sell(room=6)
    answers = ask(server, tmp_path / "s.sqlite", count=20)
    assert all(a.ok for a in answers) and len(answers) == 20 and not server.single()
    sizes = [len(e["keys"]) for e in server.events("create")]
    assert sizes[:3] == [20, 10, 5] and sum(s for s in sizes if s <= 6) == 20
    assert len(server.events("delete")) == sum(s > 6 for s in sizes), "a file of one that never ran is left"


def test_a_batch_without_room_that_another_process_took_is_handed_in_again_by_who_asked(
    sell, tmp_path: Path
) -> None:
    server, store = sell(ends=["full"]), tmp_path / "s.sqlite"
    slow = replace(batched(server.url, poll_s=0.4, poll_max_s=0.4), concurrency=1)
    with open_client(slow, store) as client, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(lambda: list(client.answers(map(question, range(10)))))
        wait_until(lambda: open_batches(store) == ["batch_1"])
        ledger = Ledger(ledger_path(store))
        (batch,) = ledger.batches()
        ledger.end(batch.uid, status="full")  # as another process does that has seen it so
        ledger.close()
        assert all(a.ok for a in asked.result())
    assert not server.single() and [len(e["keys"]) for e in server.events("create")] == [10, 5, 5]


def test_a_batch_that_is_for_ever_told_to_come_again_at_once_comes_to_an_end(sell, tmp_path: Path) -> None:
    server = sell(faults={"create": [[429, "0"]] * 500})
    impatient = replace(batched(server.url), patience_s=1.5)
    with (
        open_client(impatient, tmp_path / "s.sqlite") as client,
        pytest.raises(EnvironmentFault, match="HTTP 429"),
    ):
        list(client.answers(map(question, range(20))))
    assert len(server.events("refused create")) <= 4


def test_who_leaves_early_leaves_the_batch_and_a_later_run_waits_for_it(sell, tmp_path: Path) -> None:
    server, store = sell(looks=15), tmp_path / "s.sqlite"
    with open_client(batched(server.url), store) as client:
        client.courier().send(jobs_of(client, range(20)))
        client.courier().flush()
        wait_until(lambda: open_batches(store) == ["batch_1"])
    assert not server.events("cancel")
    answers = ask(server, store, count=25)  # five more than are out
    assert all(a.ok for a in answers) and set(server.batched().values()) == {1}
    assert [len(e["keys"]) for e in server.events("create")] == [20, 5]


def test_gathered_questions_that_nobody_wants_any_more_are_not_sent(sell, tmp_path: Path) -> None:
    server, store = sell(), tmp_path / "s.sqlite"
    with open_client(batched(server.url), store) as client:
        kept, gone = jobs_of(client, range(5)), jobs_of(client, range(5, 9))
        client.courier().send(kept + gone)
        client.courier().recall(gone[0].done)
        client.courier().flush()
        handed = kept[0].done.get(timeout=20)
    assert isinstance(handed, list)
    assert {key for key, _ in handed} == {j.key for j in kept} == set(server.batched())


def test_a_found_batch_is_merged_also_for_those_who_do_not_wait_for_it(sell, tmp_path: Path) -> None:
    server, store = sell(looks=2), tmp_path / "s.sqlite"
    with open_client(batched(server.url), store) as client:
        jobs = jobs_of(client, range(10))
        client.courier().send(jobs)
        client.courier().flush()
        wait_until(lambda: open_batches(store) == ["batch_1"])
    with open_client(batched(server.url), store) as client:
        list(client.answers([question(99)]))
        wait_until(lambda: open_batches(store) == [])
    with Store(store) as kept:
        records = kept.full(j.key for j in jobs)
    assert {(r.row, r.purpose, r.model, r.request) for r in records.values()} == {
        (j.request.row, "test", "scripted", j.canonical) for j in jobs
    }


def test_questions_that_are_out_at_another_address_are_not_paid_for_again(sell, tmp_path: Path) -> None:
    server, other, store = sell(looks=10**6), sell(), tmp_path / "s.sqlite"
    with open_client(batched(server.url), store) as client:
        client.courier().send(jobs_of(client, range(5)))
        client.courier().flush()
        wait_until(lambda: open_batches(store) == ["batch_1"])
    with pytest.raises(ConfigError, match="another address") as caught:
        ask(other, store, count=5)
    assert server.url in str(caught.value) and not other.batched()


def test_questions_that_are_out_are_not_asked_singly_by_another_backend(sell, tmp_path: Path) -> None:
    server, store = sell(looks=10**6), tmp_path / "s.sqlite"
    with open_client(batched(server.url), store) as client:
        client.courier().send(jobs_of(client, range(5)))
        client.courier().flush()
        wait_until(lambda: open_batches(store) == ["batch_1"])
    with open_client(settings(server.url), store) as client:
        assert next(client.answers([question(9)])).ok
        with pytest.raises(ConfigError, match="5 of these questions are out in a batch, such as batch_1"):
            list(client.answers(map(question, range(8))))
    assert len(server.single()) == 1


def test_two_clients_on_one_store_submit_each_question_once(sell, tmp_path: Path) -> None:
    server, store = sell(looks=3), tmp_path / "s.sqlite"
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda n: ask(server, store, count=20 + n), (0, 10)))
    assert [len(answers) for answers in both] == [20, 30]
    assert all(a.ok for answers in both for a in answers) and not server.single()
    assert set(server.batched().values()) == {1} and len(server.batched()) == 30


def test_who_waits_to_send_batches_says_for_whom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(batch_ledger, "NOTICE_S", 0.1)
    one, other = (Ledger(tmp_path / "s.batches.sqlite") for _ in range(2))
    until = time.monotonic() + 0.4
    with (
        one.alone(),
        pytest.raises(EnvironmentFault, match="stopped while another process sends"),
        other.alone(lambda: time.monotonic() > until),
    ):
        pass
    assert capsys.readouterr().err == f"  batches: waits for PID {os.getpid()}, which sends its own\n"
    with other.alone():
        one.close()
    other.close()


def test_a_full_window_is_sent_without_waiting_for_the_end(sell, tmp_path: Path) -> None:
    server = sell()
    answers = ask(server, tmp_path / "s.sqlite", count=50, window=12)
    assert len(answers) == 50 and all(a.ok for a in answers)
    assert max(len(e["keys"]) for e in server.events("create")) <= 12
    assert set(server.batched().values()) == {1}


def test_the_key_of_the_endpoint_reaches_neither_ledger_nor_error(
    sell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_LLM_API_KEY", "sk-planted-secret")
    server, store = sell(faults={"create": [None, "echo"]}), tmp_path / "s.sqlite"
    ask(server, store, count=3)
    with pytest.raises(ConfigError) as caught:
        ask(server, store, count=6)
    assert "sk-planted" not in str(caught.value) and "***" in str(caught.value)
    for path in filter(Path.is_file, tmp_path.rglob("*")):
        assert b"sk-planted-secret" not in path.read_bytes()


def test_a_batch_costs_its_share_of_the_price_and_what_it_left_costs_all_of_it(sell, tmp_path: Path) -> None:
    server, store = sell(ends=["expired"]), tmp_path / "s.sqlite"
    told = replace(batched(server.url), prices={"scripted": Price(prompt=1.0, completion=2.0)})
    with open_client(told, store) as client:
        answers = {a.id: a for a in client.answers(map(question, range(20)))}
    costs = {(k in server.single(), a.usage.cost_usd) for k, a in answers.items()}
    assert costs == {(False, 7e-6), (True, 14e-6)}  # 10 prompt tokens and 2 of the completion
    assert client.spent.cost_usd == pytest.approx(10 * 7e-6 + 10 * 14e-6)
    with Store(store) as kept:
        assert {k: v.usage.cost_usd for k, v in kept.answers(answers).items()} == {
            k: a.usage.cost_usd for k, a in answers.items()
        }


def test_what_waits_for_money_goes_in_a_later_batch(sell, tmp_path: Path) -> None:
    server = sell()  # 40 answers take 480 tokens, of which many more are held beforehand
    capped = replace(batched(server.url), caps=Caps(stage=Cap(tokens=4000)))
    with open_client(capped, tmp_path / "s.sqlite") as client:
        answers = list(client.answers(map(question, range(40))))
    assert len(answers) == 40 and all(a.ok for a in answers)
    assert len(server.events("create")) > 1 and set(server.batched().values()) == {1}


def test_what_is_over_a_cap_is_not_sent_and_goes_when_the_cap_is_raised(sell, tmp_path: Path) -> None:
    server, store = sell(), tmp_path / "s.sqlite"
    capped = replace(batched(server.url), caps=Caps(stage=Cap(tokens=450)))
    with open_client(capped, store) as client:
        ends = Counter(a.failure for a in client.answers(map(question, range(20))))
    assert set(ends) == {None, Failure.OVER_BUDGET} and sum(ends.values()) == 20
    assert len(server.batched()) == ends[None]
    assert all(a.ok for a in ask(server, store))
    assert set(server.batched().values()) == {1} and len(server.batched()) == 20


@pytest.mark.parametrize(
    ("name", "value"), [("rest", "singel"), ("max_requests", 0), ("poll_s", 0.0), ("price_share", 1.5)]
)
def test_a_setting_that_cannot_be_is_named(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"llm.batch.{name}"):
        BatchSettings(**{name: value})  # type: ignore[arg-type]


def jobs_of(client: Client, numbers: range) -> list[Job]:
    """Jobs for many questions, all reporting to one queue."""
    done: SimpleQueue[Handed] = SimpleQueue()
    named = [named_request(question(n), "scripted", "name:scripted") for n in numbers]
    return [Job(n.key, n.canonical, n.identity, n.model, n.request, done) for n in named]


def wait_until(so: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not so():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.02)
