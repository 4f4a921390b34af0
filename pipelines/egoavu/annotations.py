"""What is known of a clip: actions, sounds and things in view, each with its time and id.

Law: an annotation that cannot be used is a `Fault` with the column that is wrong,
never a guess; what is read is on the clock of its video.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelines.data.readers import fault_of
from pipelines.egoavu.timeline import Span, narration_intervals, parse_clock

LONGEST_S = 3.6e7  # 10,000 hours: a time past it is none (a date in seconds, say)
Told = tuple[str, str, tuple[str, ...]]  # text, verb, nouns


class Fault(Exception):
    """An annotation or clip that a rule refuses: a stable reason, the column, and more."""

    def __init__(self, reason: str, column: str | None = None, detail: str = "") -> None:
        super().__init__(reason)
        self.reason, self.column, self.detail = reason, column, detail


@dataclass(frozen=True)
class Action:
    """What the wearer does, as narrated: "open the drawer", verb "open", nouns ["drawer"]."""

    id: str
    span: Span
    text: str
    verb: str
    nouns: tuple[str, ...]


@dataclass(frozen=True)
class Sound:
    """A sound event: `label` is its class, `description` what was heard."""

    id: str
    span: Span
    label: str
    description: str


@dataclass(frozen=True)
class Thing:
    """An object in view that nobody touches."""

    text: str
    span: Span


@dataclass(frozen=True)
class Scene:
    """One record of our own JSONL, read: part of one video, with all that is annotated in it."""

    clip_id: str
    video_id: str
    wearer: str
    setting: str
    span: Span
    duration_s: float | None
    timed: tuple[tuple[Span, Told], ...]
    stamped: tuple[tuple[float, Told], ...]  # narrations with one time stamp only
    sounds: tuple[Sound, ...]
    things: tuple[Thing, ...]
    exhaustive: Mapping[str, bool] = field(default_factory=dict)
    cut: bool = False  # at the end of the video

    def actions(self, mean_of_gaps: float | None) -> tuple[Action, ...]:
        """All actions in time order; a stamped one gets its interval from its neighbours' gaps."""
        spans = narration_intervals([at for at, _ in self.stamped], mean_of_gaps)
        found = list(self.timed)
        for span, (_, told) in zip(spans, self.stamped, strict=True):
            found.append((span.cut_to(self.span), told))
        # The id counts in time order, so that the order of the list in the file changes nothing.
        return tuple(Action(f"{self.clip_id}#a{k}", s, *told) for k, (s, told) in enumerate(sorted(found), 1))


def clean_text(text: str) -> str:
    """A narration's text as used: lower case, single blanks, no full stop at its end."""
    return " ".join(text.split()).rstrip(".").strip().lower()


def noun_name(raw: str) -> str:
    """EPIC writes the head first: "board:chopping" is a chopping board."""
    return " ".join(reversed([p.strip() for p in raw.lower().split(":") if p.strip()]))


def clock_span(values: Mapping[str, Any]) -> Span:
    """Start and stop of an EPIC row. Raises Fault."""
    times = []
    for column in ("start_timestamp", "stop_timestamp"):
        raw = str(values.get(column) or "")
        if not raw.strip():
            raise Fault("missing_time", column)
        seconds = parse_clock(raw)
        if seconds is None:
            raise Fault("bad_time", column, f"{raw!r} is not HH:MM:SS.fff")
        times.append(seconds)
    return _ordered(times[0], times[1], "stop_timestamp")


def _ordered(start: float, stop: float, column: str) -> Span:
    if stop < start:
        raise Fault("stop_before_start", column, f"{stop} < {start}")
    if stop == start:
        raise Fault("empty_interval", column, f"starts and stops at {start}")
    return Span(start, stop)


def within_video(span: Span, duration_s: float | None, column: str = "start") -> tuple[Span, bool]:
    """The span cut at the end of the video, and whether it was cut. Raises Fault when all lies past it."""
    if duration_s is None or span.end_s <= duration_s:
        return span, False
    if span.start_s >= duration_s:
        raise Fault("after_video_end", column, f"starts at {span.start_s}, video ends {duration_s}")
    return Span(span.start_s, round(duration_s, 3)), True


def narration(values: Mapping[str, Any]) -> Action:
    """An EPIC-KITCHENS narration row. Raises Fault."""
    text = clean_text(_text(values, "narration"))
    if not text:
        raise Fault("missing_text", "narration")
    raw = str(values.get("all_nouns") or "")
    try:
        listed = ast.literal_eval(raw) if raw.strip() else []
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise Fault("bad_nouns", "all_nouns", f"{raw[:80]!r} is not a list") from None
    if not isinstance(listed, list) or not all(isinstance(n, str) for n in listed) or fault_of(listed):
        raise Fault("bad_nouns", "all_nouns", f"{raw[:80]!r} is not a list of words")
    nouns = tuple(dict.fromkeys(name for n in listed if (name := noun_name(n))))
    verb = _text(values, "verb").lower() or text.split()[0]
    return Action(_text(values, "narration_id", "missing_id"), clock_span(values), text, verb, nouns)


def sound(values: Mapping[str, Any]) -> Sound:
    """An EPIC-SOUNDS row. Raises Fault."""
    label = " ".join(_text(values, "class").lower().split())
    if not label:
        raise Fault("missing_label", "class")
    heard = " ".join(_text(values, "description").lower().split()) or label
    return Sound(_text(values, "annotation_id", "missing_id"), clock_span(values), label, heard)


def _text(values: Mapping[str, Any], column: str, reason: str | None = None) -> str:
    """A text column, blanks at its ends aside. With `reason` an empty one is a Fault."""
    raw = values.get(column)
    got = raw.strip() if isinstance(raw, str) else "" if raw is None else str(raw)
    if reason is not None and not got:
        raise Fault(reason, column)
    return got


def scene(values: Mapping[str, Any]) -> Scene:
    """One line of our own JSONL (schema: data/raw/egoavu/README.md). Raises Fault."""
    clip_id = _required_text(values, "clip_id")
    span = Span(_number(values, "start"), _number(values, "end"))
    _ordered(span.start_s, span.end_s, "end")
    duration = _number(values, "duration") if values.get("duration") is not None else None
    span, cut = within_video(span, duration)
    timed, stamped = _actions(values, span)
    return Scene(
        clip_id=clip_id,
        video_id=_required_text(values, "video_id"),
        wearer=_optional_text(values, "wearer"),
        setting=_required_text(values, "setting").lower(),
        span=span,
        duration_s=duration,
        timed=tuple(timed),
        stamped=tuple(stamped),
        sounds=tuple(_sounds(values, clip_id, span)),
        things=tuple(_things(values, span)),
        exhaustive=_exhaustive(values),
        cut=cut,
    )


def _actions(
    values: Mapping[str, Any], clip: Span
) -> tuple[list[tuple[Span, Told]], list[tuple[float, Told]]]:
    timed: list[tuple[Span, Told]] = []
    stamped: list[tuple[float, Told]] = []
    for n, one in enumerate(_objects(values, "actions")):
        at = f"actions[{n}]"
        text = clean_text(_required_text(one, "text", at))
        if not text:
            raise Fault("missing_text", f"{at}.text")
        verb = _optional_text(one, "verb", at).lower() or text.split()[0]
        nouns = tuple(dict.fromkeys(w.strip().lower() for w in _words(one, "nouns", at)))
        if "at" in one:
            stamp = _number(one, "at", at)
            if not clip.start_s <= stamp < clip.end_s:
                raise Fault("outside_clip", f"{at}.at", f"{stamp}")
            stamped.append((stamp, (text, verb, nouns)))
        else:
            timed.append((_inside(one, at, clip), (text, verb, nouns)))
    return timed, stamped


def _sounds(values: Mapping[str, Any], clip_id: str, clip: Span) -> list[Sound]:
    found = []
    for n, one in enumerate(_objects(values, "sounds")):
        at = f"sounds[{n}]"
        label = " ".join(_required_text(one, "label", at).lower().split())
        heard = _optional_text(one, "description", at).lower() or label
        found.append((_inside(one, at, clip), label, heard))
    return [Sound(f"{clip_id}#s{k}", *one) for k, one in enumerate(sorted(found), 1)]


def _things(values: Mapping[str, Any], clip: Span) -> list[Thing]:
    found: dict[str, Thing] = {}
    for n, one in enumerate(_list(values, "background_objects")):
        at = f"background_objects[{n}]"
        if isinstance(one, str):
            text, span = one, clip
        elif isinstance(one, dict):
            text, span = _required_text(one, "text", at), _inside(one, at, clip)
        else:
            raise Fault("wrong_type", at, "must be a text or an object")
        name = " ".join(text.lower().split())
        if not name:
            raise Fault("missing_text", at)
        found.setdefault(name, Thing(name, span))
    return [found[name] for name in sorted(found)]


def _exhaustive(values: Mapping[str, Any]) -> dict[str, bool]:
    raw = values.get("exhaustive") or {}
    if not isinstance(raw, dict) or not all(isinstance(v, bool) for v in raw.values()):
        raise Fault("wrong_type", "exhaustive", "must be an object of true and false")
    unknown = sorted(set(raw) - {"action", "object", "sound"})
    if unknown:
        raise Fault("unknown_key", "exhaustive", f"{unknown[0]!r}")
    return {kind: bool(raw.get(kind, False)) for kind in ("action", "object", "sound")}


def _inside(one: Mapping[str, Any], at: str, clip: Span) -> Span:
    """The span of an annotation, which must overlap its clip; it is cut at the clip's ends."""
    span = _ordered(_number(one, "start", at), _number(one, "end", at), f"{at}.end")
    if not span.shared_s(clip):
        raise Fault("outside_clip", f"{at}.start", f"{span.start_s} to {span.end_s}")
    return span.cut_to(clip)


def _list(values: Mapping[str, Any], key: str, at: str = "") -> list[Any]:
    raw = values.get(key)
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise Fault("wrong_type", f"{at}.{key}" if at else key, f"must be a list, is {type(raw).__name__}")
    return raw


def _objects(values: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    found = _list(values, key)
    for n, one in enumerate(found):
        if not isinstance(one, dict):
            raise Fault("wrong_type", f"{key}[{n}]", f"must be an object, is {type(one).__name__}")
    return found


def _words(values: Mapping[str, Any], key: str, at: str) -> list[str]:
    found = _list(values, key, at)
    if not all(isinstance(w, str) and w.strip() for w in found):
        raise Fault("wrong_type", f"{at}.{key}", "must be a list of words")
    return found


def _number(values: Mapping[str, Any], key: str, at: str = "") -> float:
    raw, column = values.get(key), f"{at}.{key}" if at else key
    if raw is None:
        raise Fault("missing_time", column)
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not abs(raw) <= LONGEST_S:
        raise Fault("bad_time", column, f"{str(raw)[:40]!r} is not a number of seconds")
    if raw < 0:
        raise Fault("negative_time", column, f"{raw}")
    return round(float(raw), 3)


def _required_text(values: Mapping[str, Any], key: str, at: str = "") -> str:
    got = _optional_text(values, key, at)
    if not got:
        raise Fault("missing_text" if at else "missing_value", f"{at}.{key}" if at else key)
    return got


def _optional_text(values: Mapping[str, Any], key: str, at: str = "") -> str:
    raw = values.get(key)
    if raw is not None and not isinstance(raw, str):
        raise Fault("wrong_type", f"{at}.{key}" if at else key, f"must be a text, is {type(raw).__name__}")
    return "" if raw is None else " ".join(raw.split())
