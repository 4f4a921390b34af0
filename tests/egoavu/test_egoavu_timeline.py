"""Times come from stamps to the millisecond, and no segment is lost."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.egoavu.timeline import (
    Span,
    clock,
    group_segments,
    mean_gap,
    narration_intervals,
    parse_clock,
    windows,
)


def test_an_interval_comes_from_the_gaps_of_its_neighbours() -> None:
    stamps = [2.0, 5.0, 11.0, 14.0]
    assert mean_gap(stamps) == 4.0
    assert narration_intervals(stamps, 4.0) == [
        Span(1.5, 2.5),
        Span(4.5, 5.5),
        Span(10.5, 11.5),
        Span(13.5, 14.5),
    ]


def test_one_narration_alone_has_no_gap_and_does_not_divide() -> None:
    assert mean_gap([7.0]) is None
    assert narration_intervals([7.0], None) == [Span(6.5, 7.5)]
    assert narration_intervals([3.0, 3.0], 4.0) == [Span(2.5, 3.5), Span(2.5, 3.5)]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:00:06.79", 6.79),
        ("00:01:00.690", 60.69),
        ("01:02:03", 3723.0),
        ("00:00:00.0004", 0.0),
        ("half past", None),
        ("00:61:00.0", None),
        ("-00:00:01", None),
        ("", None),
    ],
)
def test_a_clock_reads_two_and_three_digits(text: str, seconds: float | None) -> None:
    assert parse_clock(text) == seconds


@pytest.mark.parametrize(
    ("length", "sizes"),
    [(10, [10]), (20, [10, 10]), (360, [10] * 36), (25, [10, 10, 5]), (10.2, [10.2]), (3, [3])],
)
def test_the_last_window_is_kept(length: float, sizes: list[float]) -> None:
    assert [w.length_s for w in windows(Span(5, 5 + length), 10)] == sizes


def test_times_read_as_a_person_writes_them() -> None:
    assert [clock(t) for t in (12.0, 12.5, 12.346)] == ["12", "12.5", "12.346"]


def test_a_short_recording_is_padded_to_the_right_then_to_the_left() -> None:
    assert group_segments([Span(2, 4)], 10, 360, 100) == [(2, Span(2, 12))]
    assert group_segments([Span(95, 98)], 10, 360, 100) == [(95, Span(90, 100))]
    assert group_segments([Span(1, 3)], 10, 360, 6) == [(1, Span(0, 6))]


milliseconds = st.integers(0, 2_000_000).map(lambda ms: ms / 1000)
segments = st.builds(
    lambda start, ms: Span(start, round(start + ms / 1000, 3)), milliseconds, st.integers(1, 60_000)
)


@given(st.lists(segments, min_size=1, max_size=40))
def test_each_segment_lies_in_one_clip_and_each_clip_is_short_enough(found: list[Span]) -> None:
    clips = group_segments(found, 10, 360, 3000)
    assert group_segments(found[::-1], 10, 360, 3000) == clips
    sinces = [since for since, _ in clips]
    assert sinces == sorted(set(sinces))
    for _, clip in clips:
        assert 10 <= clip.length_s <= 360.001
    for segment in found:
        clip = next(c for since, c in reversed(clips) if since <= segment.start_s)
        assert clip.start_s <= segment.start_s
        assert segment.end_s <= clip.end_s + 0.001


@given(st.integers(1, 400_000), st.integers(500, 30_000))
def test_windows_cover_a_clip_without_a_gap(length_ms: int, size_ms: int) -> None:
    found = windows(Span(1.0, round(1 + length_ms / 1000, 3)), size_ms / 1000)
    assert found[0].start_s == 1.0
    assert found[-1].end_s == round(1 + length_ms / 1000, 3)
    assert all(a.end_s == b.start_s for a, b in pairwise(found))
    assert all(w.length_s > 0 for w in found)
