"""Asking until there is a reply: what stops a run, what an outage costs, what a failed commit stops."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from questions import question, settings

from pipelines.data.config import load
from pipelines.errors import ConfigError, EnvironmentFault
from pipelines.llm import courier
from pipelines.llm.answer import Failure
from pipelines.llm.client import open_client
from pipelines.llm.request import Request, Sampling
from pipelines.llm.settings import Settings
from pipelines.llm.stops import EndpointGone, KeyRefused, NoFunds, RefusesAll
from pipelines.llm.store import Store


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"status": 401}, KeyRefused),
        ({"status": 402}, NoFunds),
        ({"status": 429, "body": "insufficient_quota"}, NoFunds),
        ({"status": 400, "code": "billing_hard_limit_reached"}, NoFunds),
        ({"status": 400, "code": "budget_exceeded"}, NoFunds),
        ({"status": 400, "code": "API_KEY_INVALID"}, KeyRefused),
        ({"error": {"code": 401, "message": "no such key"}}, KeyRefused),
        ({"status": 307, "headers": {"Location": "http://elsewhere.invalid/"}}, ConfigError),
    ],
)
def test_what_meets_every_row_stops_the_sending_and_keeps_what_is_in_flight(
    serve, tmp_path: Path, fault: dict, error: type[Exception]
) -> None:
    server = serve({"faults": [None, None, fault, None]}, latency_ms=150)
    with (
        open_client(settings(server.url, concurrency=4), tmp_path / "s") as client,
        pytest.raises(error),
    ):
        list(client.answers(map(question, range(100))))
    assert len(server.requests()) <= 8  # the first four, and those that took the places of the first answered
    good = [r["key"] for r in server.requests() if r["fault"] is None]
    with Store(tmp_path / "s") as store:
        assert store.count() == len(good) >= 3, "an answer that was paid for is lost"


@pytest.mark.parametrize(("status", "error"), [(403, KeyRefused), (404, ConfigError), (405, ConfigError)])
def test_what_may_be_one_rows_own_fails_that_row_and_stops_the_run_when_no_other_is_answered(
    serve, tmp_path: Path, status: int, error: type[Exception]
) -> None:
    fault = {"status": status, "body": "not this one"}
    server = serve({"faults": [fault, None, fault, fault, None, fault]})
    with open_client(settings(server.url, concurrency=1), tmp_path / "s") as client:
        ends = [(a.failure, a.detail) for a in client.answers(map(question, range(10)))]
    assert Counter(ends) == {(Failure.BAD_REQUEST, f"HTTP {status}: not this one"): 4, (None, ""): 6}
    turned = serve({"faults": [None, *[fault] * 9]})
    with (
        open_client(settings(turned.url, concurrency=1), tmp_path / "t") as client,
        pytest.raises(error, match="not this one"),
    ):
        list(client.answers(map(question, range(10))))
    assert len(turned.requests()) == 4


@pytest.mark.parametrize("status", [403, 404])
def test_rows_that_are_refused_in_a_row_stop_no_run_whose_key_and_model_the_endpoint_vouches_for(
    serve, tmp_path: Path, status: int
) -> None:
    script = {"poison": {f"What is {n} + {n}?": {"status": status} for n in range(5)}, "models": ["scripted"]}
    server = serve(script)
    for asked in (20, 5):  # again: those alone that are refused
        with open_client(settings(server.url, concurrency=2), tmp_path / "s") as client:
            ends = Counter(a.failure for a in client.answers(map(question, range(asked))))
        assert ends == {Failure.BAD_REQUEST: 5} | ({None: 15} if asked == 20 else {})
    other = serve(script | {"models": ["another"]})
    with open_client(settings(other.url, concurrency=1), tmp_path / "t") as client:
        if status == 403:
            assert len(list(client.answers(map(question, range(20))))) == 20
        else:
            with pytest.raises(ConfigError, match="no model 'scripted'"):
                list(client.answers(map(question, range(20))))


def test_samples_of_one_refused_question_are_one_question_of_those_that_stop_a_run(
    serve, tmp_path: Path
) -> None:
    server = serve({"poison": {"What is 0 + 0?": {"status": 404}}})
    requests = [question(n, sample=k) for n in range(3) for k in range(4)]
    with open_client(settings(server.url, concurrency=1), tmp_path / "s") as client:
        ends = Counter(a.failure for a in client.answers(requests))
    assert ends == {Failure.BAD_REQUEST: 4, None: 8}


def test_a_question_that_a_moderation_flags_is_filtered_and_asked_once(serve, tmp_path: Path) -> None:
    flagged = {"message": "flagged", "code": 403, "metadata": {"reasons": ["violence"], "flagged_input": "x"}}
    server = serve({"faults": [{"raw": {"error": flagged}, "status": 403}] * 3})
    for _ in range(2):
        with open_client(settings(server.url, concurrency=1), tmp_path / "s") as client:
            ends = Counter(a.failure for a in client.answers(map(question, range(5))))
        assert ends == {Failure.FILTERED: 3, None: 2}
    assert len(server.requests()) == 5


def test_answers_in_flight_when_a_run_stops_are_kept_however_slow_they_are(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(courier, "DRAIN_S", 0.1)
    monkeypatch.setattr(courier, "NOTICE_S", 0.2)
    slow = {"late_s": 0.6}
    server = serve({"faults": [slow, slow, {"status": 401}, slow]})
    with (
        open_client(settings(server.url, concurrency=4, stream=True), tmp_path / "s") as client,
        pytest.raises(KeyRefused),
    ):
        list(client.answers(map(question, range(20))))
    assert "stops, and waits for 3 answers in flight" in capsys.readouterr().err
    with Store(tmp_path / "s") as store:
        assert store.count() == 3


def test_a_402_that_tells_to_wait_is_waited_for(serve, tmp_path: Path) -> None:
    server = serve({"faults": [{"status": 402, "headers": {"Retry-After": "0.1"}}] * 3})
    with open_client(settings(server.url, concurrency=1, retries=0), tmp_path / "s") as client:
        assert all(a.ok for a in client.answers(map(question, range(3))))


def test_a_429_within_a_200_waits_and_spends_no_retry(serve, tmp_path: Path) -> None:
    server = serve({"faults": [{"error": {"code": 429, "message": "upstream is busy"}}] * 3})
    with open_client(settings(server.url, concurrency=1, retries=0), tmp_path / "s") as client:
        assert all(a.ok for a in client.answers(map(question, range(3))))


def test_a_400_that_only_quotes_a_word_for_an_empty_account_fails_its_own_row(serve, tmp_path: Path) -> None:
    quoting = {"status": 400, "body": "what does billing_hard_limit_reached mean?", "code": "too_long"}
    server = serve({"faults": [quoting]})
    with open_client(settings(server.url, concurrency=1), tmp_path / "s") as client:
        answers = list(client.answers(map(question, range(3))))
    assert Counter(a.failure for a in answers) == {Failure.BAD_REQUEST: 1, None: 2}


def test_after_a_commit_that_failed_nothing_more_is_sent(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Store.put

    def full(store: Store, records):  # type: ignore[no-untyped-def]
        raise EnvironmentFault("no space left on the disk")

    server = serve(latency_ms=20)
    monkeypatch.setattr(Store, "put", full)
    with (
        open_client(settings(server.url, concurrency=8), tmp_path / "s") as client,
        pytest.raises(EnvironmentFault, match="no space left"),
    ):
        list(client.answers(map(question, range(30))))
    assert 1 <= len(server.requests()) <= 8
    monkeypatch.setattr(Store, "put", put)
    with open_client(settings(server.url, concurrency=8), tmp_path / "s") as client:
        assert all(a.ok for a in client.answers(map(question, range(30))))
    asked = Counter(r["key"] for r in server.requests())
    assert len(asked) == 30 and sum(asked.values()) - 30 <= 8


def test_an_outage_shorter_than_allowed_costs_no_row(serve, tmp_path: Path) -> None:
    server = serve({"faults": [{"drop": True}] * 18})
    with open_client(settings(server.url, concurrency=16, retries=2), tmp_path / "s") as client:
        answers = list(client.answers(map(question, range(40))))
    faults = [r["fault"] for r in server.requests()]
    assert sum(a.ok for a in answers) >= 38  # one row's own failures may use up its retries before it opens
    assert {a.failure for a in answers if not a.ok} <= {Failure.NETWORK}
    assert faults.count(None) == sum(a.ok for a in answers)


def test_an_endpoint_that_is_gone_stops_the_run_and_says_so(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with (
        open_client(settings(url, concurrency=16, retries=8, outage_s=1.0), tmp_path / "s") as client,
        pytest.raises(EndpointGone, match=r"answered nothing for \d+ s; at last: ClientConnector.*run again"),
    ):
        list(client.answers(map(question, range(100))))


def test_one_row_of_an_endpoint_that_is_gone_is_a_typed_failure(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with open_client(settings(url, retries=1), tmp_path / "s") as client:
        (answer,) = client.answers([question(1)])
        assert answer.failure is Failure.NETWORK and client.store.count() == 0


@pytest.mark.parametrize("fault", [{"status": 500}, {"garbage": True}, {"drop": True}])
def test_a_few_rows_that_always_fail_are_typed_and_stop_neither_this_run_nor_the_next(
    serve, tmp_path: Path, fault: dict
) -> None:
    server = serve({"poison": {f"What is {n} + {n}?": fault for n in range(4)}}, latency_ms=5)
    told = settings(server.url, concurrency=8, retries=4, outage_s=0.5)
    for count in (60, 4):
        with open_client(told, tmp_path / "s") as client:
            ends = Counter(a.ok for a in client.answers(map(question, range(count))))
        assert ends == Counter({True: count - 4, False: 4})
    assert len(server.requests()) == 56 + 2 * 4 * 5


def test_the_good_rows_behind_many_that_always_fail_are_asked(serve, tmp_path: Path) -> None:
    server = serve({"poison": {f"What is {n} + {n}?": {"status": 500} for n in range(18)}}, latency_ms=5)
    with open_client(settings(server.url, concurrency=8, retries=1), tmp_path / "s") as client:
        ends = Counter(a.failure for a in client.answers(map(question, range(100))))
    assert ends == {None: 82, Failure.SERVER: 18}


def test_an_endpoint_that_answers_all_with_errors_stops_the_run(serve, tmp_path: Path) -> None:
    server = serve({"shares": {"503": 1.0}})
    with (
        open_client(settings(server.url, concurrency=16, outage_s=1.0), tmp_path / "s") as client,
        pytest.raises(EndpointGone, match="HTTP 503"),
    ):
        list(client.answers(map(question, range(100))))


def test_an_endpoint_that_only_ever_refuses_stops_the_run_with_its_own_words(serve, tmp_path: Path) -> None:
    wall = {"status": 429, "headers": {"Retry-After": "0.3"}, "body": "daily limit reached"}
    server = serve({"poison": {"": wall}})
    with (
        open_client(settings(server.url, concurrency=4, patience_s=1.2), tmp_path / "s") as client,
        pytest.raises(RefusesAll, match=r"refused every request for \d+ s; at last: HTTP 429: daily limit"),
    ):
        list(client.answers(map(question, range(50))))


def test_the_history_of_an_answer_tells_each_attempt(serve, tmp_path: Path) -> None:
    told = {"status": 429, "headers": {"Retry-After": "0.2"}}
    server = serve({"faults": [told, {"status": 500}, {"html": True}, None]})
    with open_client(settings(server.url), tmp_path / "s") as client:
        (answer,) = client.answers([question(1)])
        record = client.store.record(answer.id)
    history = orjson.loads(record.history)
    assert [a["outcome"] for a in history] == ["overloaded", "server_error", "html", "ok"]
    assert 0.2 <= history[0]["waited_s"] <= 0.22 and history[-1]["waited_s"] == 0
    assert record.attempts == 4 and all(a["seconds"] >= 0 for a in history)


def test_a_failure_of_one_row_leaves_its_neighbours_alone(serve, tmp_path: Path) -> None:
    faults = [{"status": 400, "body": "too long"}, {"status": 413}, {"status": 422}, {"refusal": "no"}]
    server = serve({"faults": [*faults, {"error": "engine died"}]})
    with open_client(settings(server.url, concurrency=1, retries=0), tmp_path / "s") as client:
        answers = list(client.answers(question(n, kind="chat") for n in range(12)))
    assert Counter(a.failure for a in answers) == {
        Failure.BAD_REQUEST: 3,
        Failure.REFUSED: 1,
        Failure.SERVER: 1,
        None: 7,
    }
    assert len(server.requests()) == 12


def test_a_wall_of_429s_lowers_the_limit_and_costs_no_row(serve, tmp_path: Path) -> None:
    wall = {"status": 429, "headers": {"Retry-After": "0.05"}}
    server = serve({"faults": [wall] * 120}, latency_ms=5)
    with open_client(settings(server.url, concurrency=32), tmp_path / "s") as client:
        answers = client.answers(map(question, range(200)))
        first = next(answers)
        assert first.ok and client.courier().limit < 32
        assert sum(a.ok for a in answers) == 199
    assert len(server.requests()) == 320


def test_no_netrc_no_proxy_variable_and_no_redirect_takes_the_key_elsewhere(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login other password stolen\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setenv("HEADRACE_LLM_API_KEY", "sk-own")
    other = serve()
    server = serve(
        {"faults": [None, {"status": 308, "headers": {"Location": other.url + "/v1/completions"}}]}
    )
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    with open_client(settings(server.url), tmp_path / "s") as client:
        assert next(client.answers([question(1)])).ok
        with pytest.raises(ConfigError, match=r"sends its callers elsewhere \(HTTP 308\)"):
            list(client.answers([question(2)]))
    assert [r["headers"] for r in server.requests()] == [{"Authorization": "Bearer sk-own"}] * 2
    assert other.requests() == []


def test_a_proxy_of_the_environment_is_used(serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = serve()  # it answers whatever it is asked, and logs the path it saw
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, proxy.url)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with open_client(settings("http://endpoint.invalid"), tmp_path / "s") as client:
        assert next(client.answers([question(1)])).ok
    assert len(proxy.requests()) == 1 and os.environ["http_proxy"] == proxy.url


def test_logprobs_tools_penalties_and_further_parameters_are_sent_by_their_protocol_names(
    serve, tmp_path: Path
) -> None:
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    sampling = Sampling(8, logprobs=3, presence_penalty=0.5, repetition_penalty=1.1, stop=("\n",))
    server = serve()
    requests = [
        Request("chat", "scripted", sampling, messages=(("user", "x"),), tools=(tool,), seed=3, row="a"),
        Request("completion", "scripted", sampling, "x", extra={"ignore_eos": True}, seed=3, row="b"),
    ]
    with open_client(settings(server.url, concurrency=1), tmp_path / "s") as client:
        assert [a.ok for a in client.answers(requests)] == [True, True]
    chat, completion = (r["body"] for r in server.requests())
    assert (chat["logprobs"], chat["top_logprobs"], chat["tools"]) == (True, 3, [tool])
    assert completion["logprobs"] == 3 and "top_logprobs" not in completion
    assert completion["ignore_eos"] is True
    for body in (chat, completion):
        assert (body["presence_penalty"], body["repetition_penalty"]) == (0.5, 1.1)
        assert (body["stop"], body["seed"]) == (["\n"], 3)


def test_a_chat_says_its_limit_under_the_name_that_settings_tell_and_keeps_its_key(
    serve, tmp_path: Path
) -> None:
    server = serve()
    requests = [question(n, kind=kind) for n, kind in enumerate(("chat", "completion"))]
    told = settings(server.url, concurrency=1, max_tokens_as="max_completion_tokens")
    with open_client(told, tmp_path / "s") as client:
        assert [a.ok for a in client.answers(requests)] == [True, True]
    chat, completion = (r["body"] for r in server.requests())
    assert chat["max_completion_tokens"] == 16 and "max_tokens" not in chat
    assert completion["max_tokens"] == 16 and "max_completion_tokens" not in completion
    with open_client(settings(server.url), tmp_path / "s") as client:
        assert all(a.stored for a in client.answers(requests))


def test_a_name_of_the_limit_that_no_server_has_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be one of max_tokens, max_completion_tokens"):
        load(Settings, {"max_tokens_as": "max_completion_token"}, "llm")


def test_calls_of_tools_are_an_answer(serve, tmp_path: Path) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    server = serve({"faults": [{"calls": [call], "finish": "tool_calls"}]})
    with open_client(settings(server.url), tmp_path / "s") as client:
        (answer,) = client.answers([question(1, kind="chat")])
    assert answer.ok and answer.finish == "tool_calls"
    assert orjson.loads(answer.text) == [{"name": "add", "arguments": '{"a": 1}'}]


@pytest.mark.parametrize("stream", [False, True])
def test_samples_ride_in_one_call_where_settings_say_so_and_are_answers_of_their_own(
    serve, tmp_path: Path, stream: bool
) -> None:
    server = serve({"faults": [{"status": 500}]})
    requests = [
        question(n, sample=k, kind=kind)
        for n in range(3)
        for k in range(4)
        for kind in ("chat", "completion")
    ]
    told = settings(server.url, samples_per_call=4, stream=stream)
    with open_client(told, tmp_path / "s") as client:
        answers = {
            (a.request.prompt or "", a.request.row, a.request.sample): a for a in client.answers(requests)
        }
        assert client.spent.attempts == len(server.requests()) == 7
    bodies = [r["body"] for r in server.requests()]
    assert all(b["n"] == 4 and "seed" not in b for b in bodies)
    assert len({a.id for a in answers.values()}) == 24 and all(a.ok for a in answers.values())
    assert all(a.text.endswith(f" {a.request.sample}") for a in answers.values() if a.request.sample)
    assert sum(a.usage.prompt_tokens for a in answers.values()) == 6 * 10
    assert sum(a.usage.completion_tokens for a in answers.values()) == 6 * (2 + 3 + 3 + 3)
    with open_client(settings(server.url), tmp_path / "s") as client:  # `n` is in no key
        assert all(a.stored for a in client.answers(requests))
    assert len(server.requests()) == 7


@pytest.fixture
def deaf() -> Iterator[str]:
    """The address of a socket that accepts nobody: its queue is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        callers = [socket.socket() for _ in range(8)]
        for caller in callers:
            caller.setblocking(False)
            caller.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        for caller in callers:
            caller.close()


def test_each_time_out_says_what_did_not_come_in_time(serve, deaf: str, tmp_path: Path) -> None:
    hanging = serve({"faults": [{"hang": True}] * 2}).url
    for url, changes, says in (
        (deaf, {"connect_timeout_s": 0.3}, "no connection within 0.3 s"),
        (hanging, {"first_byte_timeout_s": 0.3}, "nothing came for 0.3 s"),
        (hanging, {"first_byte_timeout_s": 9.0, "timeout_s": 0.3}, "not whole within 0.3 s"),
    ):
        with open_client(settings(url, retries=0, **changes), tmp_path / "s") as client:
            (answer,) = client.answers([question(1)])
        assert (answer.failure, answer.detail) == (Failure.TIMEOUT, says)
