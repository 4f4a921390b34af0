"""AVH: is there this action, object or sound? One yes and one no for each clip and modality.

Law (section 3.5; when a no is allowed is ours): "not mentioned" is not "absent". A negative is
asked only where the annotations of its kind are complete; it happens in another clip of the same
setting, and it is no synonym, part, kind or whole of anything in this clip. Nothing here does IO.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.data.rows import digest
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


class Negatives:
    """What happens in the clips of each wearer and setting, once by its words, in the order of hashes.

    A clip enters this ring at a place of its own and takes the first that is absent in it. So one more
    clip in the data changes few choices, and each clip looks at few candidates.
    """

    def __init__(self, clips: Sequence[Clip], seed: int) -> None:
        self.seed = seed
        found: dict[tuple[str, str, str], dict[str, list[tuple[Node, Clip]]]] = {}
        for clip in sorted(clips, key=lambda c: str(c.row["clip_id"])):
            homes = [("setting", clip.row["setting"])]
            homes += [("wearer", f"{clip.row['wearer']} {clip.row['setting']}")] if clip.row["wearer"] else []
            for node in filter(askable, clip.graph.nodes):
                for home in homes:
                    texts = found.setdefault((*home, node.modality), {})
                    texts.setdefault(words_of(node), []).append((node, clip))
        self.rings = {
            key: sorted((digest("ring", seed, text), some) for text, some in texts.items())
            for key, texts in found.items()
        }

    def of(self, clip: Clip, modality: str) -> tuple[Node, Clip] | None:
        """A node of another clip that is absent in this one, of the same wearer if there is one."""
        row = clip.row
        for home in (("wearer", f"{row['wearer']} {row['setting']}"), ("setting", row["setting"])):
            ring = self.rings.get((*home, modality), [])
            start = bisect_left(ring, digest("enter", self.seed, row["clip_id"]), key=lambda r: r[0])
            for _, some in [*ring[start:], *ring[:start]]:
                for node, origin in some:
                    if origin is not clip and absent(node, origin, clip):
                        return node, origin
        return None


def pair(clip: Clip, negatives: Negatives, modality: str) -> tuple[Probe, Probe] | str:
    """A yes and a no, or why there is none: not_exhaustive, no_positive, no_plausible_negative."""
    span = clip.span if modality != "sound" else quiet_stretch(clip)
    if span is None or not clip.row["exhaustive"][modality]:
        return "not_exhaustive"
    clip_id = clip.row["clip_id"]
    here = [n for n in clip.graph.of(*KINDS[modality]) if n.start_s >= span.start_s and n.end_s <= span.end_s]
    by_text = {words_of(n): n for n in reversed(here) if askable(n)}  # of equal ones the first
    if not by_text:
        return "no_positive"
    no = negatives.of(clip, modality)
    if no is None:
        return "no_plausible_negative"
    yes = by_text[by_hash(sorted(by_text), negatives.seed, clip_id, "yes")[0]]
    proof = (f"{clip_id}/exhaustive/{modality}", no[0].node_id)
    return (
        Probe("yes", asked(yes, span, clip.span), yes, span, (yes.node_id,), clip),
        Probe("no", asked(no[0], span, clip.span), no[0], span, proof, no[1]),
    )


def words_of(node: Node) -> str:
    """How a node reads in a question."""
    return reading(node.kind, node.text, node.detail)


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
    theirs = home.graph.nouns(node.node_id)
    return not any(
        same_deed(node, theirs, n, clip.graph.nouns(n.node_id)) for n in clip.graph.of(*KINDS["action"])
    )


def same_deed(one: Node, nouns: Sequence[str], other: Node, other_nouns: Sequence[str]) -> bool:
    """True when two actions could be told in each other's words: verbs of one group on related nouns."""
    if verb_group(one.detail) != verb_group(other.detail):
        return one.text == other.text
    if not nouns or not other_nouns:
        return True
    return any(related_nouns(a, b) for a in nouns for b in other_nouns)


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
    what = words_of(node)
    return {
        "action": f"Does the camera wearer {what} {where}?",
        "object": f"Can you see {what} {where}?",
        "sound": f"Can you hear {what} {where}?",
    }[node.modality]
