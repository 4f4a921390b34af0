"""What a reply's headers say of waiting: Retry-After, and what a rate limit leaves until its reset.

Law: what cannot be read is unsaid, never an error and never a guess; times come out as seconds from
now, at least 0. A date is counted from the reply's own `Date`, for a server's clock need not be ours.

| header                                          | read as                                              |
|-------------------------------------------------|------------------------------------------------------|
| retry-after-ms, Retry-After                     | milliseconds; seconds or an HTTP date                |
| x-ratelimit-remaining-requests, -tokens         | whole numbers                                        |
| x-ratelimit-reset-requests, -tokens             | `6m0s`, `20ms`, seconds, Unix time, or an ISO date   |
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

PREFIX = "x-ratelimit-"
UNIX_TIME = 1e9  # a larger number is an instant, not a duration: as one it would be 31 years
UNITS_S = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "us": 1e-6}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:us|ms|[dhms]))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(us|ms|[dhms])")


@dataclass(frozen=True, slots=True)
class Limits:
    """What was said; None is unsaid. `reset_s` belongs to whichever of the two is used up first."""

    retry_after_s: float | None = None
    requests_left: int | None = None
    tokens_left: int | None = None
    reset_s: float | None = None


SILENT = Limits()


def read_limits(headers: Mapping[str, str], now: float) -> Limits:
    """Limits by the headers of a reply (names in any case if the mapping has none); `now` is Unix time."""
    wait_s = retry_after(headers, now)
    requests = _count(headers.get(PREFIX + "remaining-requests"))
    tokens = _count(headers.get(PREFIX + "remaining-tokens"))
    if wait_s is None and requests is None and tokens is None:
        return SILENT
    resets = [
        reset
        for left, name in ((requests, "requests"), (tokens, "tokens"))
        if left is not None and (reset := _reset(headers, f"{PREFIX}reset-{name}", now)) is not None
    ]
    return Limits(wait_s, requests, tokens, max(resets, default=None))


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds to wait by Retry-After (seconds or an HTTP date), at least 0; None if unsaid."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return max(0.0, milliseconds / 1000)
    said = headers.get("Retry-After")
    if said is None:
        return None
    seconds = _number(said)
    if seconds is not None:
        return max(0.0, seconds)
    try:
        return _until(parsedate_to_datetime(said), headers, now)
    except (ValueError, OverflowError):
        return None


def _reset(headers: Mapping[str, str], name: str, now: float) -> float | None:
    said = headers.get(name)
    if said is None:
        return None
    said = said.strip()
    number = _number(said)
    if number is not None:
        return _since(number, headers, now) if number > UNIX_TIME else max(0.0, number)
    if _DURATION.fullmatch(said):
        return sum(float(value) * UNITS_S[unit] for value, unit in _PART.findall(said))
    try:
        return _until(datetime.fromisoformat(said), headers, now)
    except (ValueError, OverflowError):
        return None


def _until(date: datetime, headers: Mapping[str, str], now: float) -> float:
    """Seconds until a date, at least 0; one without a zone is in UTC."""
    return _since(_unix(date), headers, now)


def _since(instant: float, headers: Mapping[str, str], now: float) -> float:
    """Seconds from the reply's `Date` to a Unix time, at least 0; from `now` where it has none."""
    try:
        began = _unix(parsedate_to_datetime(headers.get("Date", "")))
    except (ValueError, OverflowError):
        began = now
    return max(0.0, instant - began)


def _unix(date: datetime) -> float:
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def _number(said: str | None) -> float | None:
    try:
        value = float(said) if said is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _count(said: str | None) -> int | None:
    value = _number(said)
    return None if value is None or value < 0 else int(value)  # -1 of who does not know
