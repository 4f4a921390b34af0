"""egoavu.narrate: audio-visual narrations of each clip and of its 10 s windows (section 3.4).

Law: a text stands in a row only when `fidelity` finds in it all that the graph holds
and nothing else; a clip with a text that fails is rejected with the check's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import polars as pl

from pipelines.data.rows import Schema, digest
from pipelines.egoavu import mcg
from pipelines.egoavu.fidelity import failed_check
from pipelines.egoavu.grammar import clip_text, inside, window_text
from pipelines.egoavu.graph import graph_of
from pipelines.egoavu.timeline import Span, windows
from pipelines.errors import ConfigError
from pipelines.step import Step

WINDOW = pl.Struct(
    {
        "start_s": pl.Float64,
        "end_s": pl.Float64,
        "text": pl.String,  # "" where nothing is annotated
        "node_ids": pl.List(pl.String),
    }
)

SCHEMA = Schema(
    name="egoavu.narrate",
    columns={
        "clip_id": pl.String,
        "video_id": pl.String,
        "start_s": pl.Float64,
        "end_s": pl.Float64,
        "narration": pl.String,  # of the clip, times in seconds from its start
        "windows": pl.List(WINDOW),
    },
    identity=("clip_id",),
)


@dataclass(frozen=True)
class Params:
    window_s: float = 10.0  # paper: 10 s


def run(step: Step, params: Params) -> None:
    if params.window_s <= 0:
        raise ConfigError("window_s must be above 0", where="params.yaml: egoavu.narrate")
    graphs = step.read("egoavu/graph")
    step.plan(graphs["row_id"])
    words = 0
    for row in graphs.iter_rows(named=True):
        values = narrate(row, step.seed, params.window_s)
        failure = check(values, row)
        if failure is None:
            words += len(values["narration"].split())
            step.accept(row["row_id"], SCHEMA.row(**values, parents=[row["row_id"]]))
        else:
            reason, _, detail = failure.partition(": ")
            step.reject(
                row["row_id"], reason, detail=detail, raw=values["narration"][:2000], parents=[row["row_id"]]
            )
    step.metrics["words"] = words


def narrate(row: Mapping[str, Any], seed: int, window_s: float) -> dict[str, Any]:
    """All texts of one row of `egoavu.graph`."""
    graph, clip = graph_of(row), Span(row["start_s"], row["end_s"])
    spans = windows(clip, window_s)
    told = []
    for span in spans:
        part = inside(graph, span)
        rng = Random(digest(seed, row["clip_id"], "window", span.start_s))
        told.append(
            {
                "start_s": span.start_s,
                "end_s": span.end_s,
                "text": window_text(part, rng),
                "node_ids": sorted(n.node_id for n in part.nodes),
            }
        )
    return {
        **{c: row[c] for c in ("clip_id", "video_id", "start_s", "end_s")},
        "narration": clip_text(graph, spans, Random(digest(seed, row["clip_id"], "clip"))),
        "windows": told,
    }


def check(values: Mapping[str, Any], row: Mapping[str, Any]) -> str | None:
    """The first check that a text of this clip fails; None when all are faithful."""
    graph = graph_of(row)
    failure = failed_check(values["narration"], graph, row["start_s"])
    for window in values["windows"]:
        part = inside(graph, Span(window["start_s"], window["end_s"]))
        if failure is None and not window["text"] and part.of(mcg.ACTION, mcg.FOREGROUND, mcg.BACKGROUND):
            failure = f"empty_text: at {window['start_s']} s"
        if failure is None and window["text"]:
            failure = failed_check(window["text"], part)
    return failure
