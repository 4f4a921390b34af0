"""TR: what came before, after, first, last, among four events that all happen in the video.

Law (section 3.5): a distractor is an event of the same video at another time, so that
recognising it does not answer the question; what is asked about happens once in its
clip. All times are on the video's clock. Nothing here does IO.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pipelines.egoavu import mcg
from pipelines.egoavu.balance import by_hash
from pipelines.egoavu.english import told
from pipelines.egoavu.lexicon import related_nouns, related_sounds
from pipelines.egoavu.mcg import Graph, Node

VAGUE = frozenset("hand something thing item side top base food content piece bit it time".split())
KINDS_OF = {"action": (mcg.ACTION,), "object": (mcg.OBJECT,), "sound": (mcg.FOREGROUND, mcg.BACKGROUND)}


@dataclass(frozen=True)
class Choice:
    """A question with one right and three wrong options, all of them nodes."""

    kind: str  # before | after | first | last
    question: str
    right: Node
    wrong: tuple[Node, ...]
    anchor: Node | None  # the event that the question names


class Events:
    """The events of one clip of a video, and of its other clips, seen by one modality."""

    def __init__(self, clip: Graph, others: Sequence[Graph], modality: str) -> None:
        self.graph, self.modality = clip, modality
        self.actions = clip.of(mcg.ACTION)
        self.here = [n for n in clip.of(*KINDS_OF[modality]) if is_plain(n)]
        self.elsewhere = [n for g in others for n in g.of(*KINDS_OF[modality]) if is_plain(n)]
        self.handled = _handled([clip, *others])
        counts = Counter(n.text for n in self.here)
        if modality == "object":  # an object's event is its handling
            counts = Counter({n.text: len(self.handled.get(n.node_id, ())) for n in self.here})
        self.once = [n for n in self.here if counts[n.text] == 1]
        self.told_once = {text for text, n in Counter(a.text for a in self.actions).items() if n == 1}

    def alike(self, one: Node, other: Node) -> bool:
        """True when two events could pass for each other."""
        if self.modality == "object":
            return related_nouns(one.text, other.text)
        if self.modality == "sound":
            return related_sounds(one.text, other.text)
        return one.text == other.text or told(one.text, one.detail) == told(other.text, other.detail)


def is_plain(node: Node) -> bool:
    """False for an action that can only be quoted, and for a thing that nobody could name."""
    if node.kind == mcg.ACTION:
        return '"' not in told(node.text, node.detail)
    return node.modality == "sound" or node.text.split()[-1] not in VAGUE


def _handled(graphs: Sequence[Graph]) -> Mapping[str, list[Node]]:
    """Actions on each object, in time order: object node id -> action nodes."""
    found: dict[str, list[Node]] = {}
    for graph in graphs:
        actions = {n.node_id: n for n in graph.of(mcg.ACTION)}
        for edge in graph.edges:
            if edge.kind == "action-object":
                found.setdefault(edge.target, []).append(actions[edge.source])
    return {k: sorted(v, key=lambda n: (n.start_s, n.end_s, n.node_id)) for k, v in found.items()}


def neighbours(events: Events, seed: int) -> list[Choice]:
    """Before and after: around each action that happens once, what comes directly before or after it."""
    found = []
    for anchor in events.actions:
        if anchor.text not in events.told_once or not is_plain(anchor):
            continue
        for kind in ("before", "after"):
            right = _next_to(events, anchor, kind)
            if right is None:
                continue
            wrong = _distractors(events, anchor, right, kind, seed)
            if wrong is not None:
                found.append(Choice(kind, _asked(events.modality, kind, anchor), right, wrong, anchor))
    return found


def _next_to(events: Events, anchor: Node, kind: str) -> Node | None:
    """The event that follows (precedes) the anchor without overlap, if it is one and happens once."""
    if events.modality == "object":
        action = _adjacent(events.actions, anchor, kind)
        if action is None:
            return None
        touched = [n for n in events.here if action in events.handled.get(n.node_id, ())]
        before = [n for n in events.here if anchor in events.handled.get(n.node_id, ())]
        alone = len(touched) == 1 and touched[0] in events.once
        return touched[0] if alone and not any(events.alike(touched[0], n) for n in before) else None
    right = _adjacent(events.graph.of(*KINDS_OF[events.modality]), anchor, kind)
    return right if right is not None and right in events.once else None


def _adjacent(pool: Sequence[Node], anchor: Node, kind: str) -> Node | None:
    """The nearest node wholly after (before) the anchor, if no other begins (ends) at the same time.

    None, too, when another event overlaps both, as it could be meant as well.
    """
    others = [n for n in pool if n.node_id != anchor.node_id]
    if kind == "after":
        later = sorted(
            (n for n in others if n.start_s >= anchor.end_s), key=lambda n: (n.start_s, n.end_s, n.node_id)
        )
        near = [n for n in later if later and n.start_s == later[0].start_s]
    else:
        later = sorted(
            (n for n in others if n.end_s <= anchor.start_s), key=lambda n: (-n.end_s, -n.start_s, n.node_id)
        )
        near = [n for n in later if later and n.end_s == later[0].end_s]
    if len(near) != 1:
        return None
    between = _gap(anchor, near[0])
    return None if any(_overlaps(n, between) for n in others if n not in near) else near[0]


def _gap(anchor: Node, other: Node) -> tuple[float, float]:
    """The time from the anchor to the far end of the other event."""
    return (anchor.end_s, other.end_s) if other.start_s >= anchor.end_s else (other.start_s, anchor.start_s)


def _overlaps(node: Node, span: tuple[float, float]) -> bool:
    """True when a node begins before the end of a span and ends after its start."""
    return node.start_s < span[1] and node.end_s > span[0]


def _distractors(events: Events, anchor: Node, right: Node, kind: str, seed: int) -> tuple[Node, ...] | None:
    """Three different events of the video, none of which happens at the asked time; None if too few."""
    near = _gap(anchor, right)
    around = (min(near[0], anchor.start_s), max(near[1], anchor.end_s))

    def fits(node: Node) -> bool:
        if events.alike(node, right) or (events.modality == "action" and events.alike(node, anchor)):
            return False
        times = events.handled.get(node.node_id, [node]) if events.modality == "object" else [node]
        return not any(_overlaps(n, around) for n in times)

    return _three(events, [right], fits, seed, anchor.node_id, kind)


def _three(
    events: Events, taken: Sequence[Node], fits: Callable[[Node], bool], seed: int, *context: str
) -> tuple[Node, ...] | None:
    """Three events, alike neither to `taken` nor to each other, of this clip before others of the video.

    An event whose words happen at a forbidden time too is no distractor: all nodes of a text must fit.
    """
    pool: dict[str, list[Node]] = {}
    for node in [*events.here, *events.elsewhere]:
        pool.setdefault(node.text, []).append(node)
    good = {text: nodes for text, nodes in pool.items() if all(fits(n) for n in nodes)}
    here = {n.text for n in events.here}
    order = by_hash(sorted(good), seed, *context)
    found: list[Node] = []
    for text in sorted(order, key=lambda t: t not in here):  # stable: hash order within each half
        node = good[text][0]
        if not any(events.alike(node, other) for other in [*taken, *found]):
            found.append(node)
        if len(found) == 3:
            return tuple(found)
    return None


def orderings(events: Events, seed: int) -> list[Choice]:
    """First and last of four events that happen once in the clip, none of which overlaps another."""
    found = []
    for kind in ("first", "last"):
        picked: list[Node] = []
        for node_id in by_hash([n.node_id for n in events.once], seed, events.modality, kind):
            node = next(n for n in events.once if n.node_id == node_id)
            if not any(events.alike(node, p) or _overlaps(node, (p.start_s, p.end_s)) for p in picked):
                picked.append(node)
            if len(picked) == 4:
                break
        if len(picked) < 4:
            return []
        ordered = sorted(picked, key=lambda n: n.start_s)
        right = ordered[0] if kind == "first" else ordered[-1]
        what = {
            "action": f"Which of these did the camera wearer do {kind}?",
            "object": f"Which of these objects did the camera wearer handle {kind}?",
            "sound": f"Which of these sounds was heard {kind}?",
        }[events.modality]
        found.append(Choice(kind, what, right, tuple(n for n in ordered if n is not right), None))
    return found


def _asked(modality: str, kind: str, anchor: Node) -> str:
    did = f"they {told(anchor.text, anchor.detail)}"
    wearer = f"the camera wearer {told(anchor.text, anchor.detail)}"
    return {
        "action": f"What did the camera wearer do directly {kind} {did}?",
        "object": f"Which object did the camera wearer handle in the action directly {kind} {did}?",
        "sound": f"Which sound was the {'next' if kind == 'after' else 'last'} one heard {kind} {wearer}?",
    }[modality]
