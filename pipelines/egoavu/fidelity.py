"""Is a narration faithful to its graph? The text is parsed; its realiser is not asked (section 3.4).

Law: every action in order, every sound with its source, every background object exactly
once, nothing else. The parser knows the words of the graph and a short list of words
that say nothing; any other word is a claim that nobody annotated.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from pipelines.egoavu import mcg
from pipelines.egoavu.english import told, with_a
from pipelines.egoavu.lexicon import sound_class
from pipelines.egoavu.mcg import Graph

FILLER = frozenset(
    "the camera wearer then next and after that making which made with in background "
    "could be heard seen view were nearby".split()
)
SENTENCE_END = re.compile(r"(?<=[.])\s+(?=[A-Z])")
WORD = re.compile(r"[^\s,.;!?()]+(?:\.[^\s,.;!?()]+)*")
HEADER = re.compile(r"(?:From|Between) ([\d.]+) (?:to|and) ([\d.]+) s, ")
ACTION, SOUND, THING = "action", "sound", "thing"
Words = tuple[str, ...]


@dataclass
class Reading:
    """What a text claims, in its own order."""

    actions: list[tuple[str, set[str], tuple[float, float] | None]] = field(default_factory=list)
    unseen: Counter[str] = field(default_factory=Counter)
    things: Counter[str] = field(default_factory=Counter)
    foreign: list[str] = field(default_factory=list)


def failed_check(text: str, graph: Graph, zero_s: float = 0.0) -> str | None:
    """Name of the first check that the text fails, with what is wrong; None for a faithful text.

    foreign_words, action_order, sound_source, background_sound, background_object, time.
    `zero_s` is the video time that the text calls 0 s.
    """
    seen = read(text, graph)
    if seen.foreign:
        return f"foreign_words: {' '.join(seen.foreign[:8])}"
    wanted = expected(graph)
    said = [phrase for phrase, _, _ in seen.actions]
    if said != [phrase for phrase, _, _ in wanted]:
        return f"action_order: {len(said)} actions told, {len(wanted)} in the graph, or not in its order"
    for (phrase, heard, span), (_, sounds, starts_s) in zip(seen.actions, wanted, strict=True):
        if heard != sounds:
            return f"sound_source: {phrase!r} with {sorted(heard)}, in the graph {sorted(sounds)}"
        if span is not None and not span[0] - 0.001 <= max(0.0, starts_s - zero_s) <= span[1] + 0.001:
            return f"time: {phrase!r} told between {span[0]} and {span[1]} s"
    unseen = {sound_class(n.text).phrase for n in graph.of(mcg.BACKGROUND)}
    if seen.unseen != Counter(unseen):
        return f"background_sound: {sorted(seen.unseen.elements())}, in the graph {sorted(unseen)}"
    things = Counter(with_a(n.text) for n in graph.of(mcg.BACKGROUND_OBJECT))
    if seen.things != things:
        return f"background_object: {sorted(seen.things.elements())}, in the graph {sorted(things)}"
    return None


def expected(graph: Graph) -> list[tuple[str, set[str], float]]:
    """Actions in order with the sounds that they make and their start; repeated ones count once."""
    phrases = {n.node_id: sound_class(n.text).phrase for n in graph.of(mcg.FOREGROUND)}
    made: dict[str, set[str]] = {}
    for edge in graph.edges:
        if edge.kind == "sound-action":
            made.setdefault(edge.target, set()).add(phrases[edge.source])
    found: list[tuple[str, set[str], float]] = []
    for node in graph.of(mcg.ACTION):
        phrase, sounds = told(node.text, node.detail), made.get(node.node_id, set())
        if found and found[-1][0] == phrase:
            found[-1][1].update(sounds)
        else:
            found.append((phrase, set(sounds), node.start_s))
    return found


def read(text: str, graph: Graph) -> Reading:
    """Parses a text against the words of a graph: longest phrase first, from left to right."""
    known = _phrases(graph)
    longest = max((len(words) for words in known), default=0)
    seen = Reading()
    span: tuple[float, float] | None = None
    for sentence in SENTENCE_END.split(text):
        header = HEADER.match(sentence)
        if header:
            span = (float(header[1]), float(header[2]))
        body = sentence[header.end() :] if header else sentence
        _read_sentence(_words(body), known, longest, span, seen)
    return seen


def _read_sentence(
    words: Words,
    known: dict[Words, tuple[str, str]],
    longest: int,
    span: tuple[float, float] | None,
    seen: Reading,
) -> None:
    at, source = 0, False  # whether an action of this sentence stands before
    while at < len(words):
        taken = next(
            (k for k in range(min(longest, len(words) - at), 0, -1) if words[at : at + k] in known), 0
        )
        if not taken:
            if words[at] not in FILLER:
                seen.foreign.append(words[at])
            at += 1
            continue
        kind, phrase = known[words[at : at + taken]]
        if kind == ACTION:
            seen.actions.append((phrase, set(), span))
            source = True
        elif kind == THING:
            seen.things[phrase] += 1
        elif source:
            seen.actions[-1][1].add(phrase)
        else:
            seen.unseen[phrase] += 1
        at += taken


def _phrases(graph: Graph) -> dict[Words, tuple[str, str]]:
    """Word sequences of the graph; where two are equal, an action wins over a sound over a thing."""
    pairs: list[tuple[str, str]] = [
        *((THING, with_a(n.text)) for n in graph.of(mcg.BACKGROUND_OBJECT)),
        *((SOUND, sound_class(n.text).phrase) for n in graph.of(mcg.FOREGROUND, mcg.BACKGROUND)),
        *((ACTION, told(n.text, n.detail)) for n in graph.of(mcg.ACTION)),
    ]
    return {_words(phrase): (kind, phrase) for kind, phrase in pairs}


def _words(text: str) -> Words:
    return tuple(WORD.findall(text.lower()))
