"""AVH: is there this action, object or sound? One yes and one no for each clip and modality.

Law (section 3.5; when a no is allowed is ours): "not mentioned" is not "absent". A negative is
asked only where the annotations of its kind are complete; it happens in another clip of the same
setting, and it is no synonym, part, kind or whole of anything in this clip. Nothing here does IO.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.egoavu import mcg
from pipelines.egoavu.balance import by_hash
from pipelines.egoavu.lexicon import is_trivial, related_nouns, related_sounds, verb_group
from pipelines.egoavu.mcg import Graph, Node, reading
from pipelines.egoavu.temporal import is_plain
from pipelines.egoavu.timeline import Span, clock

SHORTEST_STRETCH_S = 10.0
KINDS = {
    "action": (mcg.ACTION,),
    "object": (mcg.OBJECT, mcg.BACKGROUND_OBJECT),
    "sound": (mcg.FOREGROUND, mcg.BACKGROUND),
}


@dataclass(frozen=True)
class Clip:
    """A clip as this task sees it."""

    row: Mapping[str, Any]  # of egoavu.graph
    graph: Graph

    @property
    def span(self) -> Span:
        return Span(self.row["start_s"], self.row["end_s"])


@dataclass(frozen=True)
class Probe:
    """A yes-or-no question about one node: of this clip (yes), or of another one (no)."""

    answer: str
    question: str
    node: Node
    span: Span
    evidence: tuple[str, ...]
    origin: Clip


def pair(clip: Clip, others: Sequence[Clip], modality: str, seed: int) -> tuple[Probe, Probe] | str:
    """A yes and a no, or why there is none: not_exhaustive, no_positive, no_plausible_negative.

    `others` are the clips of the same setting; those of the same wearer (the same kitchen) come first.
    """
    if not clip.row["exhaustive"][modality]:
        return "not_exhaustive"
    span = clip.span if modality != "sound" else quiet_stretch(clip)
    if span is None:
        return "not_exhaustive"
    clip_id = clip.row["clip_id"]
    here = [n for n in clip.graph.of(*KINDS[modality]) if n.start_s >= span.start_s and n.end_s <= span.end_s]
    yes = _first([n for n in here if askable(n)], seed, clip_id, "yes")
    if yes is None:
        return "no_positive"
    wearer = clip.row["wearer"]
    near = [o for o in others if wearer and o.row["wearer"] == wearer]
    far = [o for o in others if o not in near]
    for some in (near, far):
        homes = {n.node_id: o for o in some for n in o.graph.of(*KINDS[modality])}
        nodes = [n for o in some for n in o.graph.of(*KINDS[modality]) if askable(n) and absent(n, o, clip)]
        no = _first(nodes, seed, clip_id, "no")
        if no is not None:
            listing = f"{clip_id}/exhaustive/{modality}"
            return (
                Probe("yes", asked(yes, span, clip.span), yes, span, (yes.node_id,), clip),
                Probe("no", asked(no, span, clip.span), no, span, (listing, no.node_id), homes[no.node_id]),
            )
    return "no_plausible_negative"


def _first(nodes: Iterable[Node], seed: int, *context: str) -> Node | None:
    """The node that comes first by hash, one for each reading, so that frequent ones are not favoured."""
    by_text: dict[str, Node] = {}
    for node in sorted(nodes, key=lambda n: n.node_id):
        by_text.setdefault(reading(node.kind, node.text, node.detail), node)
    order = by_hash(sorted(by_text), seed, *context)
    return by_text[order[0]] if order else None


def askable(node: Node) -> bool:
    """False for what is trivial, vague, or cannot be put in a question."""
    return is_plain(node) and not (node.kind == mcg.ACTION and is_trivial(node.detail))


def absent(node: Node, home: Clip, clip: Clip) -> bool:
    """True when nothing in the clip could be meant by the node, which is of another clip."""
    if node.modality == "sound":
        heard = [n.text for n in clip.graph.of(*KINDS["sound"])] + list(clip.row["left_out"])
        return not any(related_sounds(node.text, label) for label in heard)
    if node.modality == "object":
        return not any(related_nouns(node.text, n.text) for n in clip.graph.of(*KINDS["object"]))
    theirs = nouns_of(home.graph, node)
    return not any(
        same_deed(node, theirs, n, nouns_of(clip.graph, n)) for n in clip.graph.of(*KINDS["action"])
    )


def same_deed(one: Node, nouns: Sequence[str], other: Node, other_nouns: Sequence[str]) -> bool:
    """True when two actions could be told in each other's words: verbs of one group on related nouns."""
    if verb_group(one.detail) != verb_group(other.detail):
        return one.text == other.text
    if not nouns or not other_nouns:
        return True
    return any(related_nouns(a, b) for a in nouns for b in other_nouns)


def nouns_of(graph: Graph, action: Node) -> list[str]:
    """Objects of an action."""
    texts = {n.node_id: n.text for n in graph.of(mcg.OBJECT)}
    return [texts[target] for target in graph.targets("action-object", action.node_id)]


def quiet_stretch(clip: Clip) -> Span | None:
    """The longest part of a clip without a sound that has no class: there its list of sounds is complete.

    The whole clip when all sounds have one; None when no part is `SHORTEST_STRETCH_S` long.
    """
    holes = sorted((u["start_s"], u["end_s"]) for u in clip.row["uncategorised"])
    if not holes:
        return clip.span
    reach, edges = clip.span.start_s, []
    for start, end in [*holes, (clip.span.end_s, clip.span.end_s)]:
        edges.append(Span(reach, max(start, reach)))
        reach = max(reach, end)
    best = max(edges, key=lambda s: (s.length_s, -s.start_s))
    return best if best.length_s >= SHORTEST_STRETCH_S else None


def asked(node: Node, span: Span, clip: Span) -> str:
    """The question, with times from the start of the clip where it is about a part of it."""
    where = "in this clip"
    if span != clip:
        start, end = (round(t - clip.start_s, 3) for t in (span.start_s, span.end_s))
        where = f"between {clock(start)} and {clock(end)} s"
    what = reading(node.kind, node.text, node.detail)
    return {
        "action": f"Does the camera wearer {what} {where}?",
        "object": f"Can you see {what} {where}?",
        "sound": f"Can you hear {what} {where}?",
    }[node.modality]
