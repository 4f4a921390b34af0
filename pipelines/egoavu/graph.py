"""egoavu.graph: the multimodal context graph of each clip (section 3.3), from its annotations.

Law: no edge without evidence; a clip in which nobody does anything is rejected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from pipelines.data.rows import Schema
from pipelines.egoavu import mcg
from pipelines.egoavu.clips import EXHAUSTIVE, STRETCH
from pipelines.egoavu.lexicon import knows_sound, sound_class
from pipelines.step import Step

EVIDENCE = pl.Struct({"annotation_id": pl.String, "start_s": pl.Float64, "end_s": pl.Float64})
NODE = pl.Struct(
    {
        "node_id": pl.String,
        "kind": pl.String,
        "text": pl.String,
        "detail": pl.String,
        "start_s": pl.Float64,
        "end_s": pl.Float64,
        "event": pl.String,
    }
)
EDGE = pl.Struct({"kind": pl.String, "source": pl.String, "target": pl.String, "evidence": pl.List(EVIDENCE)})

SCHEMA = Schema(
    name="egoavu.graph",
    columns={
        "clip_id": pl.String,
        "video_id": pl.String,
        "wearer": pl.String,
        "setting": pl.String,
        "start_s": pl.Float64,
        "end_s": pl.Float64,
        "nodes": pl.List(NODE),
        "edges": pl.List(EDGE),
        "exhaustive": EXHAUSTIVE,
        "uncategorised": pl.List(STRETCH),
        "left_out": pl.List(pl.String),  # labels heard but not told: bodily sounds, vague noise
    },
    identity=("clip_id",),
)


@dataclass(frozen=True)
class Params:
    min_overlap_s: float = 0.1  # a sound and its cause share at least this much time


def run(step: Step, params: Params) -> None:
    clips = step.read("egoavu/filter")
    step.plan(clips["row_id"])
    kinds: Counter[str] = Counter()
    unknown: set[str] = set()
    for clip in clips.iter_rows(named=True):
        if not clip["actions"]:
            step.reject(clip["row_id"], "no_action", detail=clip["clip_id"], parents=[clip["row_id"]])
            continue
        graph = mcg.build(clip, params.min_overlap_s)
        kinds.update(n.kind for n in graph.nodes)
        kinds.update(e.kind for e in graph.edges)
        unknown.update(s["label"] for s in clip["sounds"] if not knows_sound(s["label"]))
        row = SCHEMA.row(
            **{c: clip[c] for c in SCHEMA.columns if c in clip},
            nodes=[asdict(n) for n in graph.nodes],
            edges=[asdict(e) | {"evidence": [asdict(v) for v in e.evidence]} for e in graph.edges],
            left_out=sorted({s["label"] for s in clip["sounds"] if sound_class(s["label"]).left_out}),
            parents=[clip["row_id"]],
        )
        step.accept(clip["row_id"], row)
    step.metrics |= {f"{kind}s".replace("-", "_"): n for kind, n in sorted(kinds.items())}
    step.metrics["labels_without_cause_table"] = sorted(unknown)


def graph_of(row: Mapping[str, Any]) -> mcg.Graph:
    """The graph in a row of this artifact."""
    nodes = tuple(mcg.Node(**n) for n in row["nodes"])
    edges = tuple(
        mcg.Edge(e["kind"], e["source"], e["target"], tuple(mcg.Evidence(**v) for v in e["evidence"]))
        for e in row["edges"]
    )
    return mcg.Graph(nodes, edges)
