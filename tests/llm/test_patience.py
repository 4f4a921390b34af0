"""How long one request is asked again: 429s by patience, failures that may pass by retries."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.llm.answer import TRANSIENT, Failure
from pipelines.llm.limits import retry_after
from pipelines.llm.patience import Patience
from pipelines.llm.protocol import Reply, read_reply
from pipelines.llm.store import Kept
from pipelines.llm.together import split

BROKEN, LENGTH, REFUSED = Failure.BROKEN_BODY, Failure.LENGTH, Failure.REFUSED
jitters = st.floats(0, 0.999)


def failed(failure: Failure, *, throttled: bool = False, told: float | None = None) -> Reply:
    return Reply(Kept("", failure=failure), throttled=throttled, retry_after_s=told)


@given(st.lists(st.sampled_from(sorted(TRANSIENT)), min_size=20, max_size=20), st.integers(0, 6), jitters)
def test_failures_that_may_pass_are_asked_again_exactly_retries_times(
    failures: list[Failure], retries: int, jitter: float
) -> None:
    patience, sent = Patience(retries, 100.0), 0
    for failure in failures:
        sent += 1
        if patience.wait_after(failed(failure), jitter) is None:
            break
    assert sent == retries + 1


@given(st.integers(1, 200), jitters)
def test_a_429_never_spends_a_retry(storms: int, jitter: float) -> None:
    patience = Patience(retries=1, patience_s=1e9)
    for _ in range(storms):
        wait = patience.wait_after(failed(Failure.OVERLOADED, throttled=True, told=0.2), jitter)
        assert wait is not None and 0.2 <= wait <= 0.22
    assert patience.failed == 0
    assert patience.wait_after(failed(Failure.SERVER), jitter) is not None
    assert patience.wait_after(failed(Failure.SERVER), jitter) is None


def test_the_patience_with_429s_ends() -> None:
    patience = Patience(retries=0, patience_s=10.0)
    waits = [patience.wait_after(failed(Failure.OVERLOADED, throttled=True, told=4.0), 0.0) for _ in range(3)]
    assert waits == [4.0, 4.0, None]


def test_whoever_is_told_to_wait_for_no_time_waits_ever_longer_and_comes_to_an_end() -> None:
    patience = Patience(retries=0, patience_s=20.0)
    waits = [patience.wait_after(failed(Failure.OVERLOADED, throttled=True, told=0.0), 0.0) for _ in range(7)]
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, None]
    short, refusals = Patience(retries=0, patience_s=20.0), 0
    while short.wait_after(failed(Failure.OVERLOADED, throttled=True, told=0.001), 0.0) is not None:
        refusals += 1
    assert refusals in (199, 200)


def test_a_told_wait_makes_no_later_wait_longer() -> None:
    patience = Patience(retries=0, patience_s=20.0)
    told = [0.05] * 6 + [0.0, None, 0.05, None]
    waits = [patience.wait_after(failed(Failure.OVERLOADED, throttled=True, told=t), 0.0) for t in told]
    assert waits == [0.05] * 6 + [0.25, 0.5, 0.05, 0.25]


def test_a_failure_while_others_are_answered_is_asked_again_soon_and_else_ever_later() -> None:
    steady, alone = ([], [])
    for waits, well in ((steady, True), (alone, False)):
        patience = Patience(retries=8, patience_s=100.0)
        waits += [patience.wait_after(failed(Failure.SERVER), 0.0, steady=well) for _ in range(9)]
    assert steady == [0.25, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, None]
    assert alone == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, None]


@pytest.mark.parametrize("failure", sorted(set(Failure) - TRANSIENT))
def test_failures_of_the_request_itself_end_at_once(failure: Failure) -> None:
    assert Patience(5, 100.0).wait_after(failed(failure), 0.5) is None


def test_retry_after_is_read_as_seconds_and_as_a_date() -> None:
    now = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
    in_a_minute = format_datetime(now.replace(minute=1), usegmt=True)
    assert retry_after({"Retry-After": "7"}, now.timestamp()) == 7.0
    assert retry_after({"Retry-After": in_a_minute}, now.timestamp()) == 60.0
    assert retry_after({"Retry-After": in_a_minute}, now.timestamp() + 90) == 0.0
    assert retry_after({"retry-after-ms": "250"}, 0.0) == 0.25
    assert retry_after({"Retry-After": "soon"}, 0.0) is None
    assert retry_after({}, 0.0) is None


@pytest.mark.parametrize(
    ("status", "raw", "kind", "expected"),
    [
        (200, b'{"choices":[{"text":" 4","finish_reason":"stop"}]}', "completion", None),
        (200, b'{"choices":[{"text":" 4 and","finish_reason":"length"}]}', "completion", Failure.LENGTH),
        (200, b'{"choices":[{"text":" \\n","finish_reason":"stop"}]}', "completion", Failure.EMPTY),
        (
            200,
            b'{"choices":[{"message":{"content":null},"finish_reason":"content_filter"}]}',
            "chat",
            Failure.FILTERED,
        ),
        (200, b'{"choices":[{"message":{"content":null,"refusal":"I cannot"}}]}', "chat", Failure.REFUSED),
        (200, b'{"choices":[{"message":{"content":"half"},"finish_reason":"error"}]}', "chat", BROKEN),
        (200, b'{"choices":[{"message":{"content":"half"},"error":{"code":502}}]}', "chat", BROKEN),
        (200, b'{"choices":[{"text":"half","finish_reason":"abort"}]}', "completion", BROKEN),
        (200, b'{"choices":[{"message":{"content":"x"},"finish_reason":"model_length"}]}', "chat", LENGTH),
        (200, b'{"choices":[{"message":{},"finish_reason":"length"}]}', "chat", LENGTH),
        (200, b'{"choices":[{"message":{}}]}', "chat", BROKEN),
        (
            200,
            b'{"choices":[{"message":{"content":""},"finish_reason":"content_filter: SAFETY"}]}',
            "chat",
            Failure.FILTERED,
        ),
        (
            200,
            b'{"choices":[{"message":{"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]},'
            b'"finish_reason":"tool_calls"}]}',
            "chat",
            None,
        ),
        (200, b"<html>sign in</html>", "chat", Failure.HTML),
        (200, b'{"choices":[]}', "chat", Failure.BROKEN_BODY),
        (200, b'{"choices":[{"text":5}]}', "completion", Failure.BROKEN_BODY),
        (200, b"[1,2]", "completion", Failure.BROKEN_BODY),
        (200, b"", "completion", Failure.BROKEN_BODY),
        (400, b'{"error":{"message":"too long"}}', "chat", Failure.BAD_REQUEST),
        (400, b'{"error":{"code":"content_filter","message":"no"}}', "chat", Failure.FILTERED),
        (400, b'{"error":{"code":"content_policy_violation"}}', "completion", Failure.FILTERED),
        (400, b'{"error":{"code":5,"message":"what is a content_filter?"}}', "chat", Failure.BAD_REQUEST),
        (408, b"", "chat", Failure.TIMEOUT),
        (429, b"", "chat", Failure.OVERLOADED),
        (500, b"<html>", "chat", Failure.SERVER),
        (503, b"", "chat", Failure.OVERLOADED),
        (529, b"", "chat", Failure.OVERLOADED),
        (498, b"", "chat", Failure.OVERLOADED),
        (409, b"", "chat", Failure.SERVER),
        (499, b"", "chat", Failure.SERVER),
        (400, b'{"error":{"code":"json_validate_failed","message":"no"}}', "chat", BROKEN),
        (403, b'{"error":{"metadata":{"reasons":["x"]}}}', "chat", Failure.FILTERED),
        (400, b'[{"error":{"code":400,"message":"no"}}]', "chat", Failure.BAD_REQUEST),
        (200, b'{"error":{"code":400,"message":"too long"}}', "chat", Failure.BAD_REQUEST),
        (200, b'{"error":{"code":"429","message":"said as a text"}}', "chat", Failure.SERVER),
        (202, b'{"choices":[{"text":" 4","finish_reason":"stop"}]}', "completion", None),
        (
            200,
            b'{"choices":[{"message":null,"finish_reason":"content_filter: X"}]}',
            "chat",
            Failure.FILTERED,
        ),
        (200, b'{"choices":[{"finish_reason":"SAFETY"}]}', "chat", Failure.FILTERED),
        (200, b'{"choices":[{"message":{"content":"I won\'t"},"finish_reason":"refusal"}]}', "chat", REFUSED),
        (200, b'{"choices":[{"message":{"content":"cut"},"finish_reason":"max_tokens"}]}', "chat", LENGTH),
    ],
)
def test_every_response_is_an_answer_or_a_failure_of_a_named_kind(
    status: int, raw: bytes, kind: str, expected: Failure | None
) -> None:
    assert read_reply(status, raw, kind).kept.failure is expected


def test_a_content_in_parts_is_its_texts_without_what_was_but_thought() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "4"},
    ]
    raw = orjson.dumps({"choices": [{"message": {"content": parts}, "finish_reason": "stop"}]})
    assert read_reply(200, raw, "chat").kept.text == "4"


@pytest.mark.parametrize(
    ("usage", "usd", "cached"),
    [
        ({"cost": 0.5}, 0.5, 0),
        ({"cost": 0.5, "cost_details": {"upstream_inference_cost": 2.0}}, 0.5, 0),
        ({"cost": 0.5, "is_byok": True, "cost_details": {"upstream_inference_cost": 2.0}}, 2.5, 0),
        ({"cost": 0, "is_byok": True, "cost_details": {"upstream_inference_cost": None}}, 0.0, 0),
        ({"prompt_cache_hit_tokens": 64}, 0.0, 64),
        ({"prompt_cache_hit_tokens": 64, "prompt_tokens_details": {"cached_tokens": 32}}, 0.0, 32),
    ],
)
def test_what_others_charge_to_our_own_key_is_money_too_and_cached_tokens_are_read_where_they_stand(
    usage: dict, usd: float, cached: int
) -> None:
    raw = orjson.dumps({"choices": [{"text": "4", "finish_reason": "stop"}], "usage": usage})
    told = read_reply(200, raw, "completion").kept.usage
    assert (told.cost_usd, told.cached_tokens, told.billed) == (usd, cached, "cost" in usage)


def test_thoughts_that_the_total_alone_counts_are_paid_as_written_and_shared_out() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 9, "total_tokens": 316}
    choices = [{"index": i, "text": "4", "finish_reason": "stop"} for i in range(2)]
    reply = read_reply(200, orjson.dumps({"choices": choices, "usage": usage}), "completion")
    assert (reply.kept.usage.prompt_tokens, reply.kept.usage.completion_tokens) == (7, 309)
    shares = [share.kept.usage for share in split(reply, "completion", 2)]
    assert [(u.prompt_tokens, u.completion_tokens) for u in shares] == [(3, 154), (4, 155)]


@given(st.binary(max_size=60), st.sampled_from([200, 301, 400, 418, 429, 500, 503, 599]))
def test_no_response_whatever_raises(raw: bytes, status: int) -> None:
    assert read_reply(status, raw, "chat").kept.failure is not None
