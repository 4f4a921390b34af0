"""A small English grammar over a context graph: the realiser of narrations (ours, section 3.4).

Law: it says what the graph holds and nothing else, in the order of time, in the past
tense; a sound stands right behind the action that makes it, a sound without a visible
source in a sentence of its own. Choices come from the random source that is handed in.
`fidelity` checks the text without knowing these templates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from pipelines.egoavu import mcg
from pipelines.egoavu.english import listed, told, with_a
from pipelines.egoavu.lexicon import sound_class
from pipelines.egoavu.mcg import Edge, Graph
from pipelines.egoavu.timeline import Span, clock

WEARERS = ("the camera wearer", "the wearer")
MAKES = (", making {sounds}", ", which made {sounds}", ", with {sounds}")
THENS = (", then ", ", and then ", ", and after that ")
OPENERS = ("Next, ", "Then ", "After that, ", "")
HEADERS = ("From {a} to {b} s, ", "Between {a} and {b} s, ")
UNSEEN = ("in the background, {sounds} could be heard", "{sounds} could be heard in the background")
AROUND = ("{things} could be seen nearby", "in view were {things}")
BEATS_A_SENTENCE = 3


@dataclass(frozen=True)
class Beat:
    """An action, or a run of the same action, with the sounds that it makes."""

    phrase: str
    sounds: tuple[str, ...]
    start_s: float


def inside(graph: Graph, span: Span) -> Graph:
    """The part of a graph inside a window: what overlaps it, and the actions that cause a sound in it."""
    near = {n.node_id for n in graph.nodes if n.kind != mcg.OBJECT and n.span.shared_s(span)}
    causes = {e.target for e in graph.edges if e.kind == "sound-action" and e.source in near}
    kept = near | causes
    kept |= {e.target for e in graph.edges if e.kind == "action-object" and e.source in kept}

    def stays(edge: Edge) -> bool:
        return edge.source in kept and edge.target in kept

    return Graph(
        tuple(n for n in graph.nodes if n.node_id in kept), tuple(e for e in graph.edges if stays(e))
    )


def beats(graph: Graph) -> list[Beat]:
    """Actions in time order, runs of the same words as one, each with its sounds once."""
    made: dict[str, list[str]] = {}
    texts = {n.node_id: sound_class(n.text).phrase for n in graph.of(mcg.FOREGROUND)}
    for node in graph.of(mcg.FOREGROUND):
        for action in graph.targets("sound-action", node.node_id):
            made.setdefault(action, []).append(texts[node.node_id])
    found: list[Beat] = []
    for node in graph.of(mcg.ACTION):
        phrase, sounds = told(node.text, node.detail), made.get(node.node_id, [])
        if found and found[-1].phrase == phrase:
            last = found[-1]
            found[-1] = Beat(phrase, tuple(dict.fromkeys([*last.sounds, *sounds])), last.start_s)
        else:
            found.append(Beat(phrase, tuple(dict.fromkeys(sounds)), node.start_s))
    return found


def window_text(graph: Graph, rng: Random) -> str:
    """One window's narration, without times. "" for a graph with neither action nor sound."""
    parts = [_sentence(some, rng) for some in _chunks(beats(graph))]
    unseen = _distinct(graph, mcg.BACKGROUND)
    things = [with_a(n.text) for n in graph.of(mcg.BACKGROUND_OBJECT)]
    if not parts and not unseen:
        return ""
    return _paragraph(_with_surroundings(parts, things, unseen, rng))


def clip_text(graph: Graph, windows: Sequence[Span], rng: Random) -> str:
    """The dense narration of a clip: a paragraph with times in seconds from the start of the clip."""
    zero = windows[0].start_s
    told_beats, things = beats(graph), [with_a(n.text) for n in graph.of(mcg.BACKGROUND_OBJECT)]
    first_heard: dict[str, float] = {}
    for node in graph.of(mcg.BACKGROUND):
        first_heard.setdefault(sound_class(node.text).phrase, node.start_s)
    parts: list[str] = []
    for window in windows:
        last = window == windows[-1]
        mine = [b for b in told_beats if _falls(b.start_s, window, windows[0], last)]
        unseen = [s for s, at in first_heard.items() if _falls(at, window, windows[0], last)]
        if not mine and not unseen:
            continue
        said = [_sentence(some, rng) for some in _chunks(mine)]
        said = _with_surroundings(said, things, unseen, rng)
        things = []
        header = rng.choice(HEADERS).format(
            a=clock(round(window.start_s - zero, 3)), b=clock(round(window.end_s - zero, 3))
        )
        opened = [said[0], *[rng.choice(OPENERS) + s if s.startswith(WEARERS) else s for s in said[1:]]]
        parts += [header + opened[0], *opened[1:]]
    return _paragraph(parts)


def _falls(at: float, window: Span, first: Span, last: bool) -> bool:
    """True for the window in which a time lies; times before and after the clip count to its ends."""
    since = float("-inf") if window == first else window.start_s
    return since <= at and (last or at < window.end_s)


def _distinct(graph: Graph, kind: str) -> list[str]:
    return list(dict.fromkeys(sound_class(n.text).phrase for n in graph.of(kind)))


def _chunks(found: Sequence[Beat]) -> list[Sequence[Beat]]:
    return [found[i : i + BEATS_A_SENTENCE] for i in range(0, len(found), BEATS_A_SENTENCE)]


def _sentence(some: Sequence[Beat], rng: Random) -> str:
    said = []
    for beat in some:
        made = rng.choice(MAKES).format(sounds=listed(beat.sounds)) if beat.sounds else ""
        said.append(beat.phrase + made)
    text = f"{rng.choice(WEARERS)} {said[0]}"
    for clause in said[1:]:
        text += rng.choice(THENS) + clause
    return text


def _with_surroundings(
    parts: list[str], things: Sequence[str], unseen: Sequence[str], rng: Random
) -> list[str]:
    """Puts what is in view and what is heard from elsewhere behind the first sentence."""
    around = [rng.choice(AROUND).format(things=listed(things))] if things else []
    heard = [rng.choice(UNSEEN).format(sounds=listed(unseen))] if unseen else []
    return [*parts[:1], *around, *heard, *parts[1:]]


def _paragraph(parts: Sequence[str]) -> str:
    return " ".join(f"{p[0].upper()}{p[1:]}." for p in parts)
