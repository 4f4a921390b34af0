"""What the headers of a reply say of waiting."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.llm.limits import SILENT, Limits, read_limits

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
HEADERS = (
    "Date",
    "retry-after-ms",
    "Retry-After",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("1s", 1.0),
        ("6m0s", 360.0),
        ("20ms", 0.02),
        ("1h2m3.5s", 3723.5),
        ("12.5", 12.5),
        (str(int(NOW.timestamp()) + 30), 30.0),
        ((NOW + timedelta(seconds=45)).isoformat(), 45.0),
        ("2026-03-01T11:00:00Z", 0.0),
        ("soon", None),
        ("5 minutes", None),
        ("nan", None),
    ],
)
def test_a_reset_is_read_in_every_spelling_that_sellers_use(said: str, seconds: float | None) -> None:
    headers = {"x-ratelimit-remaining-requests": "7", "x-ratelimit-reset-requests": said}
    assert read_limits(headers, NOW.timestamp()) == Limits(None, 7, None, seconds)


def test_retry_after_is_read_as_milliseconds_seconds_or_a_date() -> None:
    date = format_datetime(NOW + timedelta(seconds=9), usegmt=True)
    for headers, seconds in (
        ({"retry-after-ms": "250", "Retry-After": "9"}, 0.25),
        ({"Retry-After": "9"}, 9.0),
        ({"Retry-After": date}, 9.0),
        ({"Retry-After": "-3"}, 0.0),
        ({"retry-after-ms": "never", "Retry-After": "2"}, 2.0),
        ({"Retry-After": "inf", "x-ratelimit-remaining-tokens": "5"}, None),
        ({"x-ratelimit-remaining-requests": "-1", "x-ratelimit-reset-requests": "60"}, None),
    ):
        assert read_limits(headers, NOW.timestamp()).retry_after_s == seconds


@pytest.mark.parametrize("skew_s", [-3600, 0, 3600])
def test_a_date_is_counted_by_the_clock_of_the_server_that_tells_it(skew_s: int) -> None:
    there = NOW + timedelta(seconds=skew_s)
    date = {"Date": format_datetime(there, usegmt=True)}
    later = there + timedelta(seconds=9)
    waits = read_limits(date | {"Retry-After": format_datetime(later, usegmt=True)}, NOW.timestamp())
    assert waits == Limits(9.0)
    for instant in (later.isoformat(), str(later.timestamp())):
        reset = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": instant}
        assert read_limits(date | reset, NOW.timestamp()) == Limits(None, 0, None, 9.0)


def test_a_date_without_a_zone_is_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        for said in ("Sun, 01 Mar 2026 12:00:09 -0000", "Sun, 01 Mar 2026 12:00:09"):
            assert read_limits({"Retry-After": said}, NOW.timestamp()).retry_after_s == 9.0
        reset = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "2026-03-01T12:00:09"}
        assert read_limits(reset, NOW.timestamp()).reset_s == 9.0
    finally:
        monkeypatch.undo()
        time.tzset()


def test_the_later_reset_counts_when_both_limits_are_told() -> None:
    headers = dict(zip(HEADERS[3:], ("3", "900", "2s", "8s"), strict=True))
    assert read_limits(headers, 0.0) == Limits(None, 3, 900, 8.0)


def test_a_reply_that_says_nothing_of_limits_says_nothing() -> None:
    assert read_limits({"x-ratelimit-reset-requests": "5s"}, 0.0) is SILENT


@given(st.dictionaries(st.sampled_from(HEADERS), st.text(max_size=30) | st.from_regex(r"[0-9.]+[a-z]*")))
def test_no_header_whatever_raises_or_tells_a_time_before_now(headers: dict[str, str]) -> None:
    told = read_limits(headers, NOW.timestamp())
    for seconds in (told.retry_after_s, told.reset_s, told.requests_left, told.tokens_left):
        assert seconds is None or seconds >= 0
