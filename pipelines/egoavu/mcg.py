"""The multimodal context graph of a clip, built from annotations (section 3.3; edges and times are ours).

Nodes: actions, interacting objects, background objects, foreground and background sounds.
Edges: sound-action, sound-object, action-object, next-action. Law: each edge carries the
annotations that it rests on, with their times; a sound is in the foreground only if an
annotated action overlaps it and can cause it. Nothing here does IO.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from pipelines.egoavu.english import infinitive, with_a
from pipelines.egoavu.lexicon import related_nouns, sound_class, verb_group
from pipelines.egoavu.timeline import Span
from pipelines.gates.egoavu import event_key

ACTION, OBJECT, BACKGROUND_OBJECT = "action", "object", "background_object"
FOREGROUND, BACKGROUND = "foreground_sound", "background_sound"
MODALITY = {
    ACTION: "action",
    OBJECT: "object",
    BACKGROUND_OBJECT: "object",
    FOREGROUND: "sound",
    BACKGROUND: "sound",
}


@dataclass(frozen=True)
class Evidence:
    """An annotation that an edge rests on."""

    annotation_id: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Node:
    """`text` as annotated (an action's narration, a noun, a sound's label); `detail`: verb or description.

    `event` names what happens in which video: see `event_key`.
    """

    node_id: str
    kind: str
    text: str
    detail: str
    start_s: float
    end_s: float
    event: str

    @property
    def span(self) -> Span:
        return Span(self.start_s, self.end_s)

    @property
    def modality(self) -> str:
        return MODALITY[self.kind]


@dataclass(frozen=True)
class Edge:
    kind: str
    source: str  # node id
    target: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class Graph:
    """Nodes in time order, then by id; edges by kind, source, target."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def of(self, *kinds: str) -> list[Node]:
        return [n for n in self.nodes if n.kind in kinds]

    def targets(self, kind: str, source: str) -> list[str]:
        return self._targets.get((kind, source), [])

    def nouns(self, action: str) -> list[str]:
        """Objects of an action, by its node id."""
        return [self._texts[target] for target in self.targets("action-object", action)]

    @cached_property
    def _targets(self) -> dict[tuple[str, str], list[str]]:
        found: dict[tuple[str, str], list[str]] = {}
        for edge in self.edges:
            found.setdefault((edge.kind, edge.source), []).append(edge.target)
        return found

    @cached_property
    def _texts(self) -> dict[str, str]:
        return {n.node_id: n.text for n in self.nodes}


def reading(kind: str, text: str, detail: str) -> str:
    """How a node reads as an option: "chop the onion", "a lid", "a clatter of metal"."""
    if MODALITY[kind] == "sound":
        return sound_class(text).phrase
    return with_a(text) if MODALITY[kind] == "object" else infinitive(text, detail)


def build(clip: Mapping[str, Any], min_overlap_s: float) -> Graph:
    """Graph of one row of `egoavu.filter`. Sounds that the table leaves out have no node."""
    video_id = clip["video_id"]
    nodes: list[Node] = []
    edges: list[Edge] = []

    def node(name: str, kind: str, text: str, detail: str, span: Span) -> Node:
        event = event_key(video_id, MODALITY[kind], reading(kind, text, detail))
        made = Node(f"{clip['clip_id']}/{name}", kind, text, detail, span.start_s, span.end_s, event)
        nodes.append(made)
        return made

    actions = clip["actions"]
    by_action = {a["id"]: node(f"action:{a['id']}", ACTION, a["text"], a["verb"], _span(a)) for a in actions}
    objects: dict[str, Node] = {}
    for noun in sorted({n for a in actions for n in a["nouns"]}):
        mine = [a for a in actions if noun in a["nouns"]]
        span = Span(min(a["start_s"] for a in mine), max(a["end_s"] for a in mine))
        objects[noun] = node(f"object:{noun}", OBJECT, noun, "", span)
        edges += [
            Edge("action-object", by_action[a["id"]].node_id, objects[noun].node_id, _seen(a)) for a in mine
        ]
    for thing in clip["background_objects"]:
        if not any(related_nouns(thing["text"], noun) for noun in objects):
            node(f"background:{thing['text']}", BACKGROUND_OBJECT, thing["text"], "", _span(thing))
    for sound in clip["sounds"]:
        if sound_class(sound["label"]).left_out:
            continue
        cause, sounding = find_cause(sound, actions, min_overlap_s)
        kind = BACKGROUND if cause is None else FOREGROUND
        made = node(f"sound:{sound['id']}", kind, sound["label"], sound["description"], _span(sound))
        if cause is not None:
            proof = _seen(sound, cause)
            edges.append(Edge("sound-action", made.node_id, by_action[cause["id"]].node_id, proof))
            edges += [Edge("sound-object", made.node_id, objects[n].node_id, proof) for n in sounding]
    ordered = sorted(actions, key=_order)
    edges += [
        Edge("next-action", by_action[a["id"]].node_id, by_action[b["id"]].node_id, _seen(a, b))
        for a, b in pairwise(ordered)
    ]
    return Graph(
        tuple(sorted(nodes, key=lambda n: (n.start_s, n.end_s, n.node_id))),
        tuple(sorted(edges, key=lambda e: (e.kind, e.source, e.target))),
    )


def find_cause(
    sound: Mapping[str, Any], actions: Sequence[Mapping[str, Any]], min_overlap_s: float
) -> tuple[Mapping[str, Any] | None, list[str]]:
    """The action that makes a sound, and the objects that sound; (None, []) when none is annotated.

    Of the actions that overlap it and can cause it: the one with the longest overlap, then the one
    that starts nearest to it, then the first by time and id.
    """
    best: tuple[tuple[Any, ...], Mapping[str, Any], list[str]] | None = None
    for action in actions:
        shared = _span(sound).shared_s(_span(action))
        if shared < min_overlap_s or shared <= 0:
            continue
        for way in sound_class(sound["label"]).affordances:
            can, sounding = way.causes(verb_group(action["verb"]), action["nouns"])
            if can:
                rank = (-shared, round(abs(action["start_s"] - sound["start_s"]), 3), _order(action))
                if best is None or rank < best[0]:
                    best = (rank, action, sounding)
                break
    return (None, []) if best is None else (best[1], best[2])


def _order(one: Mapping[str, Any]) -> tuple[float, float, str]:
    return one["start_s"], one["end_s"], one["id"]


def _span(one: Mapping[str, Any]) -> Span:
    return Span(one["start_s"], one["end_s"])


def _seen(*annotations: Mapping[str, Any]) -> tuple[Evidence, ...]:
    return tuple(Evidence(a["id"], a["start_s"], a["end_s"]) for a in annotations)
