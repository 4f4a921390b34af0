"""egoavu.filter: keeps the videos whose narration is lexically diverse (section 3.2).

MATTR over the joined narrations of a video, w = 200 words, kept when it exceeds tau = 0.3,
as the paper says; the paper states no tokeniser, ours is `mattr.TOKENISER`. Law: the
clips of one video share its verdict.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from pipelines.data.config import Share
from pipelines.data.rows import Schema
from pipelines.egoavu.clips import SCHEMA as CLIPS
from pipelines.egoavu.mattr import TOKENISER, mattr, tokens
from pipelines.errors import ConfigError
from pipelines.step import Step

SCHEMA = Schema(
    name="egoavu.filter",
    columns={**CLIPS.columns, "mattr": pl.Float64, "words": pl.Int64, "tokeniser": pl.String},
    identity=("clip_id",),
)


@dataclass(frozen=True)
class Params:
    window: int = 200  # paper: 200 tokens
    tau: Share = 0.3  # paper: 0.3, which drops its lowest 25 %


def run(step: Step, params: Params) -> None:
    if params.window < 1:
        raise ConfigError("must be at least 1", where="params.yaml: egoavu.filter.window")
    tau = Fraction(str(params.tau))
    videos: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in step.read("egoavu/ingest").iter_rows(named=True):
        step.plan([row["row_id"]])
        videos[row["video_id"]].append(row)
    scores = []
    for video_id, clips in sorted(videos.items()):
        words = tokens(joined(clips))
        score = mattr(words, params.window)
        scores.append(score)
        found = f"{video_id}: MATTR {float(score):.4f} over {len(words)} words"
        short = len(words) < params.window
        for row in clips:
            if score > tau:
                values = {c: row[c] for c in CLIPS.columns}
                values |= {"mattr": float(score), "words": len(words), "tokeniser": TOKENISER}
                note = f"text shorter than {params.window} words: one window" if short else ""
                kept = SCHEMA.row(**values, parents=[row["row_id"]])
                step.accept(row["row_id"], kept, note=note)
            else:
                step.reject(row["row_id"], "mattr", detail=found, parents=[row["row_id"]])
    if scores:
        step.metrics["mattr_median"] = round(float(sorted(scores)[len(scores) // 2]), 4)


def joined(clips: list[dict[str, Any]]) -> str:
    """All narrations of a video in time order as one text."""
    told = [(a["start_s"], a["end_s"], a["id"], a["text"]) for clip in clips for a in clip["actions"]]
    return " ".join(text for *_, text in sorted(told))
