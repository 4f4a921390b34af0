"""A streamed reply is joined into the body that would else have come whole, or is a broken body."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from questions import question, settings

from pipelines.llm.answer import Failure
from pipelines.llm.client import open_client
from pipelines.llm.protocol import read_logprobs, read_reply
from pipelines.llm.stream import Pieces

HEAD = {"id": "x", "object": "chat.completion.chunk", "model": "m"}
USAGE = {"prompt_tokens": 7, "completion_tokens": 2}


def events(*bodies: dict, done: bool = True, end: str = "\n") -> bytes:
    said = [f"data: {orjson.dumps(body).decode()}" for body in bodies]
    return "".join(f"{line}{end}{end}" for line in [*said, *(["data: [DONE]"] if done else [])]).encode()


def delta(index: int = 0, finish: str | None = None, **said: object) -> dict:
    return HEAD | {"choices": [{"index": index, "delta": said, "finish_reason": finish}]}


def joined(raw: bytes) -> dict:
    pieces = Pieces()
    pieces.feed(raw)
    return orjson.loads(pieces.body())


CHAT = events(
    delta(role="assistant", content=""),
    delta(content="né "),
    delta(content="à 4"),
    delta(finish="stop"),
    HEAD | {"choices": [], "usage": USAGE},
)


@given(st.lists(st.integers(0, len(CHAT)), max_size=12))
def test_a_stream_cut_into_chunks_anywhere_gives_the_same_body(cuts: list[int]) -> None:
    pieces, at = Pieces(), [0, *sorted(cuts), len(CHAT)]
    for start, end in pairwise(at):
        pieces.feed(CHAT[start:end])
    body = orjson.loads(pieces.body())
    assert body["choices"] == [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "né à 4"}}
    ]
    assert body["usage"] == USAGE and body["object"] == "chat.completion" and body["model"] == "m"


UNENDED = CHAT.index(b'"stop"}]}') + len(b'"stop"}]}\n')  # a byte before the event that says why it ended


@given(st.integers(0, UNENDED))
def test_a_stream_that_ends_before_its_answer_does_is_cut_off_wherever_it_ends(length: int) -> None:
    pieces = Pieces()
    pieces.feed(CHAT[:length])
    with pytest.raises(ValueError, match="cut off"):
        pieces.body()


@given(st.integers(UNENDED + 1, len(CHAT)))
def test_a_stream_whose_answer_has_ended_is_whole_though_done_is_not_said(length: int) -> None:
    (choice,) = joined(CHAT[:length])["choices"]
    assert choice["message"]["content"] == "né à 4" and choice["finish_reason"] == "stop"


def test_a_choice_that_is_cut_off_is_left_out_of_those_that_have_ended() -> None:
    body = joined(events(delta(0, content="a"), delta(1, content="b"), delta(1, finish="stop"), done=False))
    assert [c["message"]["content"] for c in body["choices"]] == ["b"]


def test_no_piece_of_a_text_is_copied_with_those_that_follow_it() -> None:
    stream = Pieces()
    stream.feed(events(delta(content="x" * 1000), done=False))
    (choice,) = stream._choices.values()
    first = choice["message"]["content"][0]
    stream.feed(events(delta(content="y"), delta(finish="stop")))
    assert choice["message"]["content"][0] is first
    assert orjson.loads(stream.body())["choices"][0]["message"]["content"] == "x" * 1000 + "y"


@pytest.mark.parametrize("index", [10**30, 5000, -1])
def test_a_choice_of_a_number_that_cannot_be_is_no_event_of_the_protocol(index: int) -> None:
    with pytest.raises(ValueError):
        joined(b'data: {"choices": [{"index": %d, "text": "a"}]}\n\n' % index)


@given(st.binary(max_size=200))
def test_no_bytes_whatever_raise_anything_but_value_error(raw: bytes) -> None:
    for noise in (raw, b"data: " + raw + b"\n\n", b'data: {"choices": [' + raw + b"]}\n\n"):
        pieces = Pieces()
        try:
            pieces.feed(noise)
            pieces.body()
        except ValueError:
            continue


def test_choices_texts_and_logprobs_each_grow_in_their_own_place() -> None:
    def piece(index: int, text: str, logprob: float) -> dict:
        told = {"tokens": [text], "token_logprobs": [logprob], "top_logprobs": [{text: logprob}]}
        return HEAD | {"choices": [{"index": index, "text": text, "finish_reason": None, "logprobs": told}]}

    end = HEAD | {"choices": [{"index": i, "text": "", "finish_reason": "stop"} for i in range(2)]}
    raw = events(piece(1, "b", -2.0), piece(0, "a", -1.0), piece(1, "c", -0.5), end, end="\r\n")
    body = joined(b": a comment\r\n\r\nevent: x\r\n" + raw)
    assert [c["text"] for c in body["choices"]] == ["a", "bc"]
    tokens = read_logprobs(orjson.dumps(body), choice=1)
    assert [(t.text, t.logprob, t.top) for t in tokens] == [
        ("b", -2.0, {"b": -2.0}),
        ("c", -0.5, {"c": -0.5}),
    ]


def test_logprobs_are_read_as_chats_tell_them_whatever_the_kind() -> None:
    told = {"token": " Paris", "logprob": -0.25, "top_logprobs": [{"token": " the", "logprob": -2.5}]}
    (token,) = read_logprobs(orjson.dumps({"choices": [{"text": " Paris", "logprobs": {"content": [told]}}]}))
    assert (token.text, token.logprob, token.top) == (" Paris", -0.25, {" the": -2.5})
    for silent in (
        b'{"choices": [{"text": "x"}]}',
        b"<html>",
        b'{"choices": [{"logprobs": {"content": [1]}}]}',
    ):
        with pytest.raises(ValueError, match="no log probabilities"):
            read_logprobs(silent)


def test_calls_of_tools_are_joined_by_their_index() -> None:
    def call(index: int, **function: str) -> dict:
        return {"index": index, "function": function} | ({"id": f"id{index}"} if "name" in function else {})

    body = joined(
        events(
            delta(tool_calls=[call(0, name="add", arguments="")]),
            delta(tool_calls=[call(0, arguments='{"a":'), call(1, name="sub", arguments="{}")]),
            delta(tool_calls=[call(0, arguments="1}")]),
            delta(finish="tool_calls"),
        )
    )
    kept = read_reply(200, orjson.dumps(body), "chat").kept
    assert kept.failure is None and kept.finish == "tool_calls"
    assert orjson.loads(kept.text) == [
        {"name": "add", "arguments": '{"a":1}'},
        {"name": "sub", "arguments": "{}"},
    ]


def test_parts_of_a_content_grow_too_and_a_choice_that_breaks_off_is_no_answer() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    said = [delta(content=[thought]), delta(content=[{"type": "text", "text": "né "}]), delta(content="4")]
    whole = read_reply(200, orjson.dumps(joined(events(*said, delta(finish="stop")))), "chat").kept
    assert whole.failure is None and whole.text == "né 4"
    half = HEAD | {"choices": [{"index": 0, "delta": {}, "error": {"message": "engine died"}}]}
    kept = read_reply(200, orjson.dumps(joined(events(*said, half))), "chat").kept
    assert kept.failure is Failure.BROKEN_BODY and "engine died" in kept.detail and kept.text == ""


@pytest.mark.parametrize(
    "told",
    [
        b'data: {"error": {"message": "engine died"}}\n\n',
        b'error: {"message": "engine died"}\n\ndata: [DONE]\n\n',
        b'error: {"error": {"message": "engine died"}}\n\n',
        b"error: engine died\n\n",
        b'data: {"object": "error", "message": "engine died"}\n\ndata: [DONE]\n\n',
    ],
)
def test_an_error_told_in_a_stream_is_that_error(told: bytes) -> None:
    body = joined(events(delta(content="half"), done=False) + told)
    kept = read_reply(200, orjson.dumps(body), "chat").kept
    assert kept.failure is Failure.SERVER and "engine died" in kept.detail


def test_what_a_stream_says_of_nothing_is_nothing() -> None:
    silent = HEAD | {"error": None, "choices": [{"index": 0, "delta": None, "finish_reason": None}]}
    raw = b"\xef\xbb\xbf" + events(silent, delta(content="4"), delta(finish="stop"))
    assert read_reply(200, orjson.dumps(joined(raw)), "chat").kept.text == "4"


def test_a_stream_of_which_each_piece_says_why_it_ended_is_whole_only_when_done_is_said() -> None:
    said = [delta(content=word, finish="stop") for word in ("one ", "two ", "three")]
    with pytest.raises(ValueError, match="cut off"):
        joined(events(*said, done=False))
    assert joined(events(*said))["choices"][0]["message"]["content"] == "one two three"


@pytest.mark.parametrize("index", [0, None])
def test_calls_of_tools_that_share_an_index_or_have_none_are_told_apart_by_their_ids(
    index: int | None,
) -> None:
    def call(name: str, arguments: str, **more: str) -> dict:
        place = {} if index is None else {"index": index}
        return place | more | {"function": {"name": name, "arguments": arguments}}

    calls = [call("a", '{"x":', id="1"), call("", "1}"), call("b", '{"y":2}', id="2")]
    body = joined(events(*[delta(tool_calls=[c]) for c in calls], delta(finish="tool_calls")))
    kept = read_reply(200, orjson.dumps(body), "chat").kept
    assert orjson.loads(kept.text) == [
        {"name": "a", "arguments": '{"x":1}'},
        {"name": "b", "arguments": '{"y":2}'},
    ]


@pytest.mark.parametrize("kind", ["completion", "chat"])
def test_a_stream_gives_the_answer_and_usage_of_the_whole_reply(serve, tmp_path: Path, kind: str) -> None:
    answers = []
    for name, stream in (("whole", False), ("stream", True)):
        server = serve()
        with open_client(settings(server.url, stream=stream), tmp_path / name) as client:
            answers.append(next(client.answers([question(1, kind=kind)])))
        assert server.requests()[0]["body"].get("stream", False) is stream
    whole, streamed = answers
    assert streamed.ok and streamed.usage.prompt_tokens == whole.usage.prompt_tokens == 10
    assert streamed.usage.completion_tokens == whole.usage.completion_tokens == 2
    assert streamed.id == whole.id and streamed.text.startswith("answer ")


def test_a_stream_cut_off_is_asked_again_and_never_a_short_answer(serve, tmp_path: Path) -> None:
    server = serve({"faults": [{"cut": True}]})
    with open_client(settings(server.url, stream=True), tmp_path / "s") as client:
        (answer,) = client.answers([question(1)])
        history = orjson.loads(client.store.record(answer.id).history)
    assert answer.ok and len(answer.text.split()) == 2
    assert [attempt["outcome"] for attempt in history] == ["broken_body", "ok"]
    staying = serve({"faults": [{"cut": True}] * 2})
    with open_client(settings(staying.url, stream=True, retries=1), tmp_path / "s") as client:
        (answer,) = client.answers([question(2)])
    assert answer.failure is Failure.BROKEN_BODY and "cut off" in answer.detail and answer.text == ""


@pytest.mark.parametrize("undone", ["ended", "dropped", "open"])
def test_an_answer_that_has_ended_is_paid_once_from_a_server_that_never_says_done(
    serve, tmp_path: Path, undone: str
) -> None:
    server = serve({"faults": [{"undone": undone}] * 9})
    with open_client(settings(server.url, stream=True), tmp_path / "s") as client:
        answers = list(client.answers([question(n) for n in range(3)]))
    assert all(a.ok and a.usage.prompt_tokens == 10 for a in answers) and len(server.requests()) == 3


def test_the_first_byte_time_out_of_a_stream_is_that_of_its_first_token(serve, tmp_path: Path) -> None:
    late = {"late_s": 3.0}
    server = serve({"faults": [late, late]})
    changes = {"first_byte_timeout_s": 0.3, "retries": 1, "stream": True}
    with open_client(settings(server.url, **changes), tmp_path / "s") as client:
        (answer,) = client.answers([question(1)])
    assert answer.failure is Failure.TIMEOUT and "nothing came for 0.3 s" in answer.detail
