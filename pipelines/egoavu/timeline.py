"""The clock of a video: times, intervals, windows, and the grouping of segments into clips.

Law: times come from time stamps, never from frame counts, and are kept to the
millisecond; the last segment of a recording is never lost. Nothing here does IO.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

CLOCK = re.compile(r"([0-9]{1,4}):([0-5]?[0-9]):([0-5]?[0-9])(?:\.([0-9]{1,9}))?")
LONE_HALF_S = 0.5  # half width of a video's only narration: its gap is not defined


@dataclass(frozen=True, order=True)
class Span:
    """`start_s <= t < end_s` in seconds of the video."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return round(self.end_s - self.start_s, 3)

    def shared_s(self, other: Span) -> float:
        """Seconds that both spans hold; 0 when they only touch."""
        return max(0.0, round(min(self.end_s, other.end_s) - max(self.start_s, other.start_s), 3))

    def cut_to(self, other: Span) -> Span:
        """The part inside `other`. The two must overlap."""
        return Span(max(self.start_s, other.start_s), min(self.end_s, other.end_s))


def parse_clock(text: str) -> float | None:
    """ "HH:MM:SS.fff" in seconds, rounded to the millisecond; None when it is no such time."""
    found = CLOCK.fullmatch(text.strip())
    if found is None:
        return None
    hours, minutes, seconds, part = found.groups()
    whole = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    return round(float(whole + Fraction(int(part or 0), 10 ** len(part or ""))), 3)


def clock(seconds: float) -> str:
    """Seconds as a person writes them: 12, 12.5, 12.346."""
    return f"{seconds:.3f}".rstrip("0").rstrip(".")


def mean_gap(stamps: Sequence[float]) -> float | None:
    """Mean distance b of neighbouring narrations; None for fewer than two, or when all are at once."""
    if len(stamps) < 2:
        return None
    gap = (max(stamps) - min(stamps)) / (len(stamps) - 1)
    return gap if gap > 0 else None


def narration_intervals(stamps: Sequence[float], mean_of_gaps: float | None) -> list[Span]:
    """[t - b/(2a), t + b/(2a)] for each narration of one video (section 3.1), in the order given.

    b is the mean gap of this video, a (`mean_of_gaps`) the mean of b over the data set. Without a
    gap the half width is `LONE_HALF_S`, which is what b = a gives.
    """
    gap = mean_gap(stamps)
    half = LONE_HALF_S if gap is None or not mean_of_gaps else gap / (2 * mean_of_gaps)
    return [Span(round(max(0.0, t - half), 3), round(t + half, 3)) for t in stamps]


def group_segments(
    segments: Sequence[Span], shortest_s: float, longest_s: float, end_s: float
) -> list[tuple[float, Span]]:
    """Clips of consecutive segments in time order, each at most `longest_s` long: (since, clip).

    A segment belongs to the last clip whose `since` is not after its start. A clip reaches to the start
    of the next one where that keeps it short enough, so that the time between two segments is not lost.
    One that is shorter than `shortest_s` is padded, first to the right (at most to `end_s`, the end of
    the video), then to the left; it stays short only when the video is. A segment longer than a clip
    may be is cut.
    """
    groups: list[Span] = []
    for segment in sorted(segments):
        if groups and max(segment.end_s, groups[-1].end_s) - groups[-1].start_s <= longest_s:
            groups[-1] = Span(groups[-1].start_s, max(groups[-1].end_s, segment.end_s))
        else:
            groups.append(Span(segment.start_s, round(min(segment.end_s, segment.start_s + longest_s), 3)))
    clips = []
    for k, group in enumerate(groups):
        stop = group.end_s
        if k + 1 < len(groups):
            stop = max(stop, round(min(groups[k + 1].start_s, group.start_s + longest_s), 3))
        clips.append((group.start_s, _padded(Span(group.start_s, stop), shortest_s, end_s)))
    return clips


def _padded(span: Span, shortest_s: float, end_s: float) -> Span:
    if span.length_s >= shortest_s:
        return span
    stop = max(span.end_s, min(end_s, span.start_s + shortest_s))
    return Span(round(max(0.0, min(span.start_s, stop - shortest_s)), 3), round(stop, 3))


def windows(clip: Span, size_s: float) -> list[Span]:
    """Windows of `size_s` that cover the clip; the last one is as long as what is left of it.

    A rest shorter than a tenth of a window joins the window before it: 0.2 s hold no narration.
    """
    count = max(1, -(-round(clip.length_s * 1000) // round(size_s * 1000)))
    edges = [round(clip.start_s + k * size_s, 3) for k in range(count)] + [clip.end_s]
    if count > 1 and edges[-1] - edges[-2] < size_s / 10:
        del edges[-2]
    return [Span(a, b) for a, b in pairwise(edges)]
