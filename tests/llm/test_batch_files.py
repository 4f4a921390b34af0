"""What goes into a batch's files and comes out of them, and how long a batch is watched."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.llm.answer import TRANSIENT, Failure
from pipelines.llm.backends.batch_file import cut, line_of, packed, read_line
from pipelines.llm.backends.batch_watch import ENDED, Act, Watch

KEY = "ab" * 32
LENGTHS = st.lists(st.integers(1, 50), max_size=60)


@given(LENGTHS, st.integers(1, 9), st.integers(50, 200))
def test_files_hold_every_line_once_in_order_and_keep_both_limits(
    lengths: list[int], most: int, size: int
) -> None:
    files = list(packed(((i, b"x" * n) for i, n in enumerate(lengths)), most, size))
    assert [i for file in files for i, _ in file] == list(range(len(lengths)))
    assert all(0 < len(file) <= most and sum(len(line) for _, line in file) <= size for file in files)


@given(LENGTHS, st.integers(1, 9), st.integers(50, 200))
def test_a_file_is_closed_only_when_the_next_line_would_break_a_limit(
    lengths: list[int], most: int, size: int
) -> None:
    files = list(packed(((i, b"x" * n) for i, n in enumerate(lengths)), most, size))
    for file, after in pairwise(files):
        assert len(file) == most or sum(len(line) for _, line in file) + len(after[0][1]) > size


@given(st.text())
def test_a_line_says_what_a_single_request_says_and_is_one_line_to_any_reader(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    body = json.dumps({"model": "m", "prompt": text}, ensure_ascii=False)
    line = line_of(KEY, "completion", body.encode()).decode()
    assert line.endswith("\n") and len(line.splitlines()) == 1
    assert json.loads(line) == {
        "custom_id": KEY,
        "method": "POST",
        "url": "/v1/completions",
        "body": {"model": "m", "prompt": text},
    }


@given(st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\n", b" "))), st.integers(1, 7))
def test_lines_are_cut_at_newlines_only_wherever_the_pieces_end(lines: list[bytes], size: int) -> None:
    raw = b"".join(line + b"\n" for line in lines)
    pieces = (raw[i : i + size] for i in range(0, len(raw), size))
    assert list(cut(pieces)) == lines


@given(
    st.binary()
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["custom_id", "response", "error", "status_code", "body", "code", "choices"]),
                inner,
            )
        ),
        max_leaves=12,
    ).map(lambda value: json.dumps(value).encode())
)
def test_no_line_raises_and_none_passes_for_an_answer(raw: bytes) -> None:
    read = read_line(raw, "completion")
    assert read is None or read[1].kept.failure is not None


def said(**line: object) -> bytes:
    return json.dumps({"id": "r", "custom_id": KEY, "response": None, "error": None} | line).encode()


def response(status: int, body: object) -> dict[str, object]:
    return {"status_code": status, "request_id": "q", "body": body}


GOOD = {"choices": [{"text": "yes", "finish_reason": "stop"}], "usage": {"prompt_tokens": 3}}


def test_a_response_is_read_as_one_that_came_alone() -> None:
    read = read_line(said(response=response(200, GOOD)), "completion")
    assert read is not None and read[0] == KEY
    kept = read[1].kept
    assert (kept.text, kept.finish, kept.usage.prompt_tokens, kept.failure) == ("yes", "stop", 3, None)
    assert json.loads(read[1].body) == GOOD


@pytest.mark.parametrize(
    ("line", "failure", "detail"),
    [
        ({"response": response(400, {"error": {"message": "too long"}})}, Failure.BAD_REQUEST, "too long"),
        ({"response": response(429, {"error": {"message": "busy"}})}, Failure.OVERLOADED, "busy"),
        ({"response": response(500, None), "error": "engine died"}, Failure.SERVER, "engine died"),
        (
            {"response": response(400, None), "error": {"error": {"message": "too long", "code": 400}}},
            Failure.BAD_REQUEST,
            "too long",
        ),
        ({"error": {"code": "batch_expired", "message": "x"}}, Failure.TIMEOUT, "the batch expired"),
        ({"error": {"code": "batch_cancelled", "message": "x"}}, Failure.TIMEOUT, "was cancelled"),
        ({"error": {"code": "rate_limit_exceeded", "message": "slow"}}, Failure.OVERLOADED, "slow"),
        ({"error": {"code": "odd", "message": "broke"}}, Failure.SERVER, "broke"),
        ({}, Failure.SERVER, "nothing said"),
    ],
)
def test_a_line_without_an_answer_has_a_failure_with_a_name(
    line: dict[str, object], failure: Failure, detail: str
) -> None:
    read = read_line(said(**line), "completion")
    assert read is not None and read[1].kept.failure is failure and detail in read[1].kept.detail


STATUSES = st.sampled_from(["validating", "in_progress", "finalizing", "cancelling", "a new word", "fault"])


@given(st.lists(st.tuples(STATUSES, st.floats(0, 50)), max_size=60), st.sampled_from([None, 40.0]))
def test_a_batch_at_work_is_cancelled_once_at_its_deadline_and_never_taken(
    looks: list[tuple[str, float]], deadline: float | None
) -> None:
    watch = Watch(interval_s=1, most_s=30, patience_s=100, deadline=deadline, due=1)
    now, cancels, failing_since = 0.0, 0, None
    for status, late in looks:
        now = watch.due + late
        before = watch.interval_s
        act = watch.unseen(now) if status == "fault" else watch.seen(status, now)
        failing_since = (failing_since if failing_since is not None else now) if status == "fault" else None
        cancels += act is Act.CANCEL
        assert act is not Act.MERGE and cancels <= 1
        assert (act is Act.GIVE_UP) == (failing_since is not None and now - failing_since >= 100)
        assert act is not Act.CANCEL or (deadline is not None and now >= deadline)
        assert before <= watch.interval_s <= 30 and now < watch.due <= now + 30
        assert deadline is None or now >= deadline or watch.due <= deadline
    if deadline is not None and any(s != "fault" for s, _ in looks[-1:]) and now >= deadline:
        assert cancels == 1


@given(st.sampled_from(sorted(ENDED)), st.floats(0, 1e6), st.booleans())
def test_a_batch_is_taken_however_it_ended(status: str, now: float, cancelled: bool) -> None:
    watch = Watch(1, 30, 100, deadline=10, due=1, cancelled=cancelled)
    assert watch.seen(status, now) is Act.MERGE


def test_what_a_batch_did_not_run_may_be_asked_again() -> None:
    read = read_line(said(error={"code": "batch_expired", "message": "x"}), "chat")
    assert read is not None and read[1].kept.failure in TRANSIENT
