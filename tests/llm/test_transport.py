"""A client against a scripted endpoint in its own process: retries, waits, typed failures, secrets."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from questions import question, settings
from scripted_server import ScriptedServer, answer_to

from pipelines.errors import ConfigError, EnvironmentFault, StageError
from pipelines.llm.answer import Answer, Failure
from pipelines.llm.backends.openai import address, at
from pipelines.llm.client import Client, open_client
from pipelines.llm.embeddings import BATCH
from pipelines.llm.protocol import PATHS, read_reply, read_vectors
from pipelines.llm.request import Request, Sampling
from pipelines.llm.settings import Settings

SERVER_ERROR = {"status": 500}


def told(wait: str) -> dict:
    return {"status": 429, "headers": {"Retry-After": wait}}


def ask(server: ScriptedServer, store: Path, *requests: Request, **changes: object) -> list[Answer]:
    with open_client(settings(server.url, **changes), store) as client:
        return sorted(client.answers(requests), key=lambda a: (a.request.row, a.request.sample))


def test_each_answer_carries_its_request_and_is_asked_once(serve, tmp_path: Path) -> None:
    server, store = serve(), tmp_path / "s.sqlite"
    requests = [
        question(n, sample=k, kind=kind)
        for n in range(5)
        for k in range(2)
        for kind in ("completion", "chat")
    ]
    answers = ask(server, store, *requests)
    bodies = {r["key"]: r["body"] for r in server.requests()}
    assert len(answers) == len(bodies) == 20
    assert all(a.ok and not a.stored and a.text == answer_to(bodies[a.id]) for a in answers)
    assert {a.request for a in answers} == set(requests)
    assert all(a.ok and a.stored for a in ask(server, store, *requests))
    assert len(server.requests()) == 20


def test_one_more_row_asks_one_more_question(serve, tmp_path: Path) -> None:
    server, store = serve(), tmp_path / "s.sqlite"
    ask(server, store, *map(question, range(5)))
    answers = ask(server, store, *map(question, range(6)))
    assert [a.request.row for a in answers if not a.stored] == ["row5"]
    assert len(server.requests()) == 6


def test_equal_questions_in_flight_are_asked_once_and_answered_each(serve, tmp_path: Path) -> None:
    server = serve(latency_ms=50)
    answers = ask(server, tmp_path / "s", question(1), question(1), question(2), question(1))
    assert [a.request.row for a in answers] == ["row1", "row1", "row1", "row2"]
    assert len({a.text for a in answers}) == 2
    assert sorted(server.asked().values()) == [1, 1]


def test_the_store_answers_without_a_server(serve, tmp_path: Path) -> None:
    server, store = serve(), tmp_path / "s.sqlite"
    first = ask(server, store, question(1))
    server.stop()
    assert [a.text for a in ask(server, store, question(1), retries=0)] == [first[0].text]


@pytest.mark.parametrize(
    "fault", [SERVER_ERROR, {"html": True}, {"garbage": True}, {"drop": True}, {"hang": True}]
)
def test_a_fault_that_passes_costs_a_retry_and_no_row(serve, tmp_path: Path, fault: dict) -> None:
    server = serve({"faults": [fault]})
    (answer,) = ask(server, tmp_path / "s", question(1), first_byte_timeout_s=0.3)
    assert answer.ok and len(server.requests()) == 2


@pytest.mark.parametrize(
    ("fault", "failure"),
    [
        (SERVER_ERROR, Failure.SERVER),
        ({"html": True}, Failure.HTML),
        ({"garbage": True}, Failure.BROKEN_BODY),
        ({"drop": True}, Failure.NETWORK),
        ({"hang": True}, Failure.TIMEOUT),
        ({"status": 503}, Failure.OVERLOADED),
    ],
)
def test_a_fault_that_stays_is_typed_not_stored_and_asked_again_next_run(
    serve, tmp_path: Path, fault: dict, failure: Failure
) -> None:
    server, store = serve({"faults": [fault] * 2}), tmp_path / "s.sqlite"
    (answer,) = ask(server, store, question(1), retries=1, first_byte_timeout_s=0.3)
    assert answer.failure is failure and answer.text == "" and answer.detail
    (again,) = ask(server, store, question(1))
    assert again.ok and not again.stored


@pytest.mark.parametrize(
    ("fault", "failure", "text"),
    [
        ({"finish": "length", "text": "half an ans"}, Failure.LENGTH, "half an ans"),
        ({"finish": "content_filter"}, Failure.FILTERED, ""),
        ({"text": "  "}, Failure.EMPTY, ""),
    ],
)
def test_a_failure_of_the_question_is_stored_and_not_asked_again(
    serve, tmp_path: Path, fault: dict, failure: Failure, text: str
) -> None:
    server, store = serve({"faults": [fault]}), tmp_path / "s.sqlite"
    (first,), (second,) = ask(server, store, question(1)), ask(server, store, question(1))
    assert first.failure is second.failure is failure
    assert first.text == second.text == text and second.stored
    assert len(server.requests()) == 1


def test_a_refusal_is_its_own_failure(serve, tmp_path: Path) -> None:
    server = serve({"faults": [{"refusal": "I cannot help"}]})
    (answer,) = ask(server, tmp_path / "s", question(1, kind="chat"))
    assert answer.failure is Failure.REFUSED and answer.detail == "I cannot help"


@pytest.mark.parametrize("ahead_s", [2, -60])
def test_a_429_waits_as_told_and_spends_no_retry(serve, tmp_path: Path, ahead_s: int) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=ahead_s), usegmt=True)
    server = serve({"faults": [told("0.05")] * 6 + [told(date)]})
    (answer,) = ask(server, tmp_path / "s", question(1), retries=0)
    assert answer.ok and len(server.requests()) == 8


def test_429s_beyond_the_patience_end_overloaded(serve, tmp_path: Path) -> None:
    server = serve({"faults": [told("30")]})
    (answer,) = ask(server, tmp_path / "s", question(1), patience_s=1.0)
    assert answer.failure is Failure.OVERLOADED and len(server.requests()) == 1


def test_a_request_that_is_refused_as_wrong_is_typed_at_once_and_its_neighbours_go_on(
    serve, tmp_path
) -> None:
    server = serve({"faults": [{"status": 400, "body": "prompt too long"}]})
    answers = ask(server, tmp_path / "s", *map(question, range(4)), concurrency=1)
    assert [a.failure for a in answers] == [Failure.BAD_REQUEST, None, None, None]
    assert "prompt too long" in answers[0].detail and len(server.requests()) == 4


def test_a_row_that_is_no_unicode_fails_alone(serve, tmp_path: Path) -> None:
    broken = Request("completion", "scripted", Sampling(4), "half a pair \ud83d", row="row0")
    answers = ask(serve(), tmp_path / "s", broken, question(1))
    assert [a.failure for a in answers] == [Failure.BAD_REQUEST, None]


@pytest.mark.parametrize(
    ("told", "asked"),
    [
        ("https://h", "https://h/v1/chat/completions"),
        ("https://h/v1/", "https://h/v1/chat/completions"),
        ("https://h/api/v1", "https://h/api/v1/chat/completions"),
        ("https://r.openai.azure.com/openai/v1", "https://r.openai.azure.com/openai/v1/chat/completions"),
        ("https://h/v1beta/openai/", "https://h/v1beta/openai/chat/completions"),
        ("https://h/api/paas/v4", "https://h/api/paas/v4/chat/completions"),
        ("https://v2.h/view", "https://v2.h/view/v1/chat/completions"),
    ],
)
def test_an_address_may_name_the_version_of_its_paths_or_leave_it_out(told: str, asked: str) -> None:
    assert at(address(told, "llm.base_url"), PATHS["chat"]) == asked


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_stops_the_run_and_keeps_what_was_answered(serve, tmp_path: Path, status: int) -> None:
    server, store = serve({"faults": [None, None, *[{"status": status}] * 3]}), tmp_path / "s.sqlite"
    with (
        open_client(settings(server.url, concurrency=1), store) as client,
        pytest.raises(EnvironmentFault, match="refuses the key.*HEADRACE_LLM_API_KEY"),
    ):
        list(client.answers(map(question, range(10))))
    with open_client(settings(server.url), store) as client:
        assert client.store.count() == 2
    assert len(server.requests()) == (3 if status == 401 else 5)


@pytest.mark.parametrize(
    ("fault", "error", "says"),
    [
        ({"status": 404}, ConfigError, "no /v1/completions or no model 'scripted'"),
        ({"status": 402}, EnvironmentFault, "no funds"),
        ({"status": 429, "body": "insufficient_quota"}, EnvironmentFault, "no funds"),
    ],
)
def test_what_would_meet_every_row_stops_the_run(serve, tmp_path: Path, fault, error, says: str) -> None:
    with pytest.raises(error, match=says):
        ask(serve({"faults": [fault] * 10}), tmp_path / "s", *map(question, range(3)))


def test_a_storm_of_faults_loses_no_row(serve, tmp_path: Path) -> None:
    script = {"shares": {"429": 0.3, "500": 0.1, "html": 0.05, "garbage": 0.05}, "seed": 4}
    server = serve(script)
    answers = ask(server, tmp_path / "s", *map(question, range(200)), retries=12, concurrency=32)
    assert len(answers) == 200 and all(a.ok for a in answers)
    assert sum(1 for r in server.requests() if r["fault"] is None) == 200


def test_at_most_the_window_is_pulled_and_at_most_the_concurrency_is_in_flight(serve, tmp_path: Path) -> None:
    server, pulled = serve({"faults": [{"hang": True}] * 50}), []
    with open_client(
        settings(server.url, concurrency=3, retries=0, first_byte_timeout_s=0.5), tmp_path / "s"
    ) as client:
        answers = client.answers(pulled.append(n) or question(n) for n in range(10_000))
        assert pulled == []
        next(answers)
        assert len(pulled) <= 256 and len(server.requests()) <= 6
        answers.close()


def test_leaving_early_keeps_what_was_answered_and_asks_no_more(serve, tmp_path: Path) -> None:
    server, store = serve(latency_ms=20), tmp_path / "s.sqlite"
    with open_client(settings(server.url, concurrency=2), store) as client:
        answers = client.answers(map(question, range(100)))
        first = next(answers)
        answers.close()
        sent = len(server.requests())
        assert client.store.answers([first.id])[first.id].text == first.text
        (last,) = client.answers([question(500)])  # the client lives on
        assert last.ok and server.asked()[last.id] == 1
        # What was in flight as it was left may reach the server's log later.
        assert len(server.requests()) <= sent + 1 + 2 and sent < 20


def test_two_calls_of_one_client_may_be_interleaved(serve, tmp_path: Path) -> None:
    with open_client(settings(serve().url), tmp_path / "s") as client:
        pairs = zip(
            client.answers(question(n) for n in range(20)),
            client.answers(question(n) for n in range(10, 30)),
            strict=True,
        )
        assert all(a.ok and b.ok for a, b in pairs)


def test_the_counters_say_what_was_spent_now(serve, tmp_path: Path) -> None:
    server, store = serve({"faults": [SERVER_ERROR]}), tmp_path / "s.sqlite"
    for asked, stored in ((3, 0), (0, 3)):
        with open_client(settings(server.url), store) as client:
            answers = list(client.answers(map(question, range(3))))
            assert (client.spent.asked, client.spent.stored) == (asked, stored)
            assert client.spent.prompt_tokens == 10 * asked and client.spent.completion_tokens == 2 * asked
            assert client.spent.attempts == (4 if asked else 0)
            assert sum(a.usage.completion_tokens for a in answers) == 6  # of the rows, whoever asked


def test_the_key_goes_into_one_header_and_nowhere_else(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "sk-planted-0123456789"
    monkeypatch.setenv("HEADRACE_LLM_API_KEY", secret)
    echo = {"status": 400, "body": f"Incorrect key {secret} for this model"}
    server, store = serve({"faults": [echo, None]}), tmp_path / "s.sqlite"
    answers = ask(server, store, question(1), question(2), concurrency=1)
    assert [r["headers"] for r in server.requests()] == [{"Authorization": f"Bearer {secret}"}] * 2
    assert "Incorrect key ***" in answers[0].detail
    refused = serve({"faults": [{"status": 401, "body": secret}]})
    with pytest.raises(EnvironmentFault) as error:
        ask(refused, store, question(3))
    with open_client(settings(server.url), store) as client:
        told_by_repr = repr(vars(client)) + repr(client.backend)
    said = [
        str(error.value),
        repr(answers),
        told_by_repr,
        *(p.read_bytes().decode("latin1") for p in tmp_path.glob("s.*") if p.is_file()),
    ]
    assert not any(secret in s for s in said)


def test_the_environment_wins_over_params(serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve()
    monkeypatch.setenv("HEADRACE_LLM_BACKEND", "openai")
    monkeypatch.setenv("HEADRACE_LLM_BASE_URL", server.url + "/v1")
    monkeypatch.setenv("HEADRACE_LLM_MODEL", "another")
    with open_client(Settings(model="smollm2-135m"), tmp_path / "s") as client:
        assert client.model == "another"
        request = Request("completion", "smollm2-135m", Sampling(4), "x")
        assert [a.ok for a in client.answers([request])] == [True]
    assert [r["body"]["model"] for r in server.requests()] == ["another"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (Settings(backend="embeded"), "unknown model backend 'embeded'.*did you mean 'embedded'"),
        (Settings(backend="openai"), "llm.base_url must start with http"),
        (Settings(backend="openai", base_url="http://127.0.0.1:99999"), "llm.base_url is no address"),
        (
            Settings(backend="openai", base_url="https://h/openai?api-version=1"),
            "llm.base_url ends in a query",
        ),
        (Settings(backend="openai", base_url="http://[::1"), "llm.base_url is no address"),
        (Settings(backend="openai", base_url="http://"), "llm.base_url is no address"),
        (Settings(concurrency=0), "llm.concurrency: must be above 0, is 0"),
        (Settings(timeout_s=0.0), "llm.timeout_s: must be above 0, is 0.0"),
    ],
)
def test_a_wrong_setting_is_told_before_a_store_is_made(tmp_path: Path, wrong: Settings, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        open_client(wrong, tmp_path / "s")
    assert not list(tmp_path.iterdir())


def test_a_base_model_is_not_asked_to_chat(tmp_path: Path) -> None:
    with open_client(Settings(model="gemma3-270m"), tmp_path / "s") as client:
        request = Request("chat", "gemma3-270m", Sampling(4), messages=(("user", "hi"),))
        with pytest.raises(ConfigError, match="gemma3-270m is a base model and cannot chat"):
            list(client.answers([request]))


def test_a_schema_is_sent_in_both_dialects(serve, tmp_path: Path) -> None:
    server, schema = serve(), {"type": "object", "properties": {"n": {"type": "integer"}}}
    request = Request("completion", "scripted", Sampling(4), "x", schema=schema)
    ask(server, tmp_path / "s", request)
    body = server.requests()[0]["body"]
    assert body["json_schema"] == schema == body["response_format"]["json_schema"]["schema"]


def test_an_endpoints_embeddings_are_unit_vectors_in_order_and_asked_once(serve, tmp_path: Path) -> None:
    server = serve({"faults": [SERVER_ERROR]})
    with open_client(settings(server.url), tmp_path / "s") as client:
        first = client.embed(["b", "a", "b"], model="embedder", prefix="")
        again = client.embed(["a", "b"], model="embedder", prefix="")
    assert first.dtype == np.float32 and np.allclose(np.linalg.norm(first, axis=1), 1)
    assert np.array_equal(first[0], first[2]) and np.array_equal(again, first[[1, 0]])
    assert [r["body"]["input"] for r in server.requests()] == [["b", "a"]] * 2


def test_what_stopped_one_call_for_vectors_stops_no_later_one(serve, tmp_path: Path) -> None:
    server = serve({"faults": [{"status": 404}]})
    with open_client(settings(server.url), tmp_path / "s") as client:
        with pytest.raises(ConfigError, match="no /v1/embeddings"):
            client.embed(["a"], model="another", prefix="")
        assert len(client.embed(["a"], model="embedder", prefix="")) == 1
        assert all(a.ok for a in client.answers([question(1)]))


def test_vectors_beside_an_error_that_is_none_are_taken_and_those_of_several_sizes_are_not() -> None:
    data = [{"index": n, "embedding": [1.0] * (n + 1)} for n in range(2)]
    raw = json.dumps({"error": None, "data": data[:1] * 2}).encode()
    assert read_reply(200, raw, "embedding").kept.failure is None
    with pytest.raises(ValueError, match="several sizes"):
        read_vectors(json.dumps({"data": data}).encode(), 2)


def test_a_text_that_an_endpoint_does_not_embed_is_named_and_costs_no_other_its_vector(
    serve, tmp_path: Path
) -> None:
    server = serve({"poison": {"far too long": {"status": 400, "body": "at most 8192 tokens"}}})
    texts = [f"text {n}" for n in range(9 + 2 * BATCH)]
    with open_client(settings(server.url), tmp_path / "s") as client:
        named = r"no text of 12 characters that begins 'far too long': HTTP 400: at most 8192 tokens"
        with pytest.raises(StageError, match=named):
            client.embed([*texts[:5], "far too long", *texts[5:]], model="embedder", prefix="")
        asked = len(server.requests())
        assert len(client.embed(texts, model="embedder", prefix="")) == len(texts)
    assert len(server.requests()) == asked <= 20, "the others' vectors are stored"


def test_two_clients_on_one_store_end_with_the_same_answers(serve, tmp_path: Path) -> None:
    server, store = serve(latency_ms=5), tmp_path / "s.sqlite"
    clients: list[Client] = [open_client(settings(server.url), store) for _ in range(2)]
    flows = [c.answers(map(question, range(30))) for c in clients]
    texts: list[dict[str, str]] = [{}, {}]
    for pair in zip(*flows, strict=True):
        for mine, answer in zip(texts, pair, strict=True):
            mine[answer.id] = answer.text
    assert texts[0] == texts[1] and len(texts[0]) == 30
    for client in clients:
        client.close()
    assert json.dumps(texts[0]) and max(server.asked().values()) <= 2


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 1e30},
        {"completion_tokens": 1e400},
        {"prompt_tokens_details": {"cached_tokens": 1e30}},
    ],
)
def test_a_count_of_tokens_that_cannot_be_is_a_broken_body_of_its_row(usage: dict[str, Any]) -> None:
    body = {"choices": [{"text": "x", "finish_reason": "stop"}], "usage": usage}
    raw = json.dumps(body).replace("Infinity", "1e30").encode()
    assert read_reply(200, raw, "completion").kept.failure is Failure.BROKEN_BODY


def test_a_bill_that_cannot_be_is_no_bill() -> None:
    body = {"choices": [{"text": "x", "finish_reason": "stop"}], "usage": {"cost": 1e308}}
    kept = read_reply(200, json.dumps(body).encode(), "completion").kept
    assert kept.text == "x" and not kept.usage.billed and kept.usage.cost_usd == 0.0
