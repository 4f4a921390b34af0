"""Clips: the rows that `egoavu.ingest` makes, and how a recording is cut into them.

Law: every action of a recording lies in exactly one clip; a sound lies, cut, in each
clip that it is heard in. Nothing here does IO.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from pipelines.data.rows import Schema
from pipelines.egoavu.annotations import Action, Sound, Thing
from pipelines.egoavu.timeline import Span, group_segments

ACTION = pl.Struct(
    {
        "id": pl.String,
        "start_s": pl.Float64,
        "end_s": pl.Float64,
        "text": pl.String,
        "verb": pl.String,
        "nouns": pl.List(pl.String),
    }
)
SOUND = pl.Struct(
    {
        "id": pl.String,
        "start_s": pl.Float64,
        "end_s": pl.Float64,
        "label": pl.String,
        "description": pl.String,
    }
)
THING = pl.Struct({"text": pl.String, "start_s": pl.Float64, "end_s": pl.Float64})
STRETCH = pl.Struct({"start_s": pl.Float64, "end_s": pl.Float64})
EXHAUSTIVE = pl.Struct({"action": pl.Boolean, "object": pl.Boolean, "sound": pl.Boolean})

SCHEMA = Schema(
    name="egoavu.ingest",
    columns={
        "clip_id": pl.String,
        "video_id": pl.String,
        "wearer": pl.String,  # who wears the camera, else ""
        "setting": pl.String,  # "kitchen"; clips of one setting lend each other negatives
        "source": pl.String,  # "epic" or "scenes"
        "start_s": pl.Float64,
        "end_s": pl.Float64,
        "actions": pl.List(ACTION),
        "sounds": pl.List(SOUND),
        "background_objects": pl.List(THING),
        "exhaustive": EXHAUSTIVE,
        "uncategorised": pl.List(STRETCH),  # sound events without a class in this clip
    },
    identity=("clip_id",),
)


def cut_clips(
    actions: Sequence[Action], shortest_s: float, longest_s: float, end_s: float
) -> list[tuple[Span, list[Action]]]:
    """Clips with the actions that start in them, in time order (see `group_segments`)."""
    found = group_segments([a.span for a in actions], shortest_s, longest_s, end_s)
    clips: list[tuple[Span, list[Action]]] = []
    for n, (since, clip) in enumerate(found):
        until = found[n + 1][0] if n + 1 < len(found) else float("inf")
        mine = [a for a in actions if since <= a.span.start_s < until]
        if mine:
            clips.append((clip, mine))
    return clips


def part_id(name: str, clip: Span) -> str:
    """Id of a clip that was cut from the recording `name`: a key, not a position."""
    return f"{name}@{clip.start_s:08.3f}"


def clip_row(
    *,
    clip: Span,
    actions: Sequence[Action],
    sounds: Sequence[Sound],
    things: Sequence[Thing],
    exhaustive: Mapping[str, bool],
    uncategorised: Sequence[Span],
    **values: Any,
) -> dict[str, Any]:
    """A row of SCHEMA, annotations cut to the clip and in time order."""
    inside = [(a, a.span.cut_to(clip) if a.span.shared_s(clip) else a.span) for a in actions]
    return SCHEMA.row(
        start_s=clip.start_s,
        end_s=clip.end_s,
        actions=[
            {"id": a.id, **_times(span), "text": a.text, "verb": a.verb, "nouns": list(a.nouns)}
            for a, span in sorted(inside, key=lambda pair: (pair[1], pair[0].id))
        ],
        sounds=[
            {
                "id": s.id,
                **_times(s.span.cut_to(clip)),
                "label": s.label,
                "description": s.description,
            }
            for s in sorted(sounds, key=lambda s: (s.span, s.id))
        ],
        background_objects=[
            {"text": t.text, **_times(t.span.cut_to(clip))} for t in things if t.span.shared_s(clip)
        ],
        exhaustive={kind: bool(exhaustive.get(kind)) for kind in ("action", "object", "sound")},
        uncategorised=[_times(s.cut_to(clip)) for s in sorted(set(uncategorised)) if s.shared_s(clip)],
        **values,
    )


def _times(span: Span) -> dict[str, float]:
    return {"start_s": span.start_s, "end_s": span.end_s}
