"""SSA, AVSN and AVDN: open questions about a window or a clip, answered from its graph.

Law (section 3.5): every question names its time; an answer counts and lists what the graph
holds, and a count of sounds is given only where all sounds of the window have a class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.egoavu import mcg
from pipelines.egoavu.english import told
from pipelines.egoavu.grammar import inside
from pipelines.egoavu.lexicon import sound_class
from pipelines.egoavu.mcg import Graph
from pipelines.egoavu.timeline import Span, clock

NO_SOUND = "No significant sound was heard."
NUMBERS = "no one two three four five six seven eight nine ten eleven twelve".split()


@dataclass(frozen=True)
class Open:
    """An open question with its gold answer."""

    question: str
    answer: str
    evidence: tuple[str, ...]
    span: Span


def between(span: Span, zero_s: float) -> str:
    """ "between 10 and 20 s", counted from `zero_s`."""
    return f"between {clock(round(span.start_s - zero_s, 3))} and {clock(round(span.end_s - zero_s, 3))} s"


def source_of_sounds(clip: Mapping[str, Any], graph: Graph, span: Span) -> Open | None:
    """SSA for one window; None where a sound of the window has no class."""
    if any(Span(u["start_s"], u["end_s"]).shared_s(span) for u in clip["uncategorised"]):
        return None
    part = inside(graph, span)
    question = (
        f"Which sounds can be heard {between(span, clip['start_s'])} of this clip, "
        "and what makes each of them?"
    )
    texts = {n.node_id: told(n.text, n.detail) for n in part.of(mcg.ACTION)}
    lines: dict[str, list[str]] = {}
    for node in part.of(mcg.FOREGROUND, mcg.BACKGROUND):
        phrase = sound_class(node.text).phrase
        causes = part.targets("sound-action", node.node_id)
        line = f"{phrase} was in the background, from no visible source."
        if causes:
            line = f"{phrase} was made when the camera wearer {texts[causes[0]]}."
        objects = part.targets("sound-object", node.node_id)
        lines.setdefault(f"{line[0].upper()}{line[1:]}", []).extend([node.node_id, *causes, *objects])
    if not lines:
        return Open(question, NO_SOUND, (f"{clip['clip_id']}/exhaustive/sound",), span)
    evidence = sorted({i for ids in lines.values() for i in ids})
    return Open(question, " ".join([_count(len(lines)), *lines]), tuple(evidence), span)


def _count(n: int) -> str:
    number = NUMBERS[n] if n < len(NUMBERS) else str(n)
    return f"{number.capitalize()} distinct sound{'s' if n > 1 else ''} could be heard."


def window_narration(clip: Mapping[str, Any], window: Mapping[str, Any]) -> Open:
    """AVSN for one window with a narration."""
    span = Span(window["start_s"], window["end_s"])
    question = (
        f"What happens {between(span, clip['start_s'])} of this clip? "
        "Tell the actions, the surroundings and the sounds."
    )
    return Open(question, window["text"], tuple(window["node_ids"]), span)


def clip_narration(clip: Mapping[str, Any], narration: str, graph: Graph) -> Open:
    """AVDN for a clip."""
    return Open(
        "Narrate this clip from beginning to end, with times in seconds: what the camera wearer does, "
        "what is in view, and what can be heard.",
        narration,
        tuple(sorted(n.node_id for n in graph.nodes)),
        Span(clip["start_s"], clip["end_s"]),
    )
