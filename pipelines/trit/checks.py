"""The free checks of a translation, before any rollout is spent on it (ours; no judge, no parallel data).

Law: rules only, in one fixed order; the first that fails names the reason.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.data.language import NEUTRAL, added_numbers, identify, lost_numbers, written_in

_SENTENCE = re.compile(r"(?<=[.!?])\s+")
MARKS = ("<translation>", "</translation>", "english:", "translate", "###", "<|", "```")


@dataclass(frozen=True)
class Rules:
    """What the checks need to know. `shots` are the examples of the prompt, in any language."""

    language: str
    candidates: tuple[str, ...]
    fewest_letters: int
    shortest: float  # characters of the translation per character of the English
    longest: float
    label: str  # what stands before the translation in the prompt ("French:")
    shots: tuple[str, ...] = ()


def fault(english: str, translation: str, rules: Rules) -> tuple[str, str] | None:
    """(reason, detail) of the first rule that says no, None for a translation that passes them all."""
    if not translation.strip():
        return "empty", ""
    lost = lost_numbers(english, translation, rules.language)
    if lost:
        return "numbers_lost", ", ".join(f"{n:f}" for n in lost)
    added = added_numbers(english, translation, rules.language)
    if added:
        return "numbers_added", ", ".join(f"{n:f}" for n in added)
    if not written_in(translation, rules.language):
        return "script", "letters of another script"
    copied = copied_sentence(english, translation)
    if copied:
        return "copy", copied
    leaked = leak(translation, rules)
    if leaked:
        return "leaked_prompt", leaked
    found = identify(translation, rules.candidates, fewest_letters=rules.fewest_letters)
    if found not in (rules.language, NEUTRAL):
        return "language", found
    ratio = len(translation.strip()) / max(len(english.strip()), 1)
    if not rules.shortest <= ratio <= rules.longest:
        return "length_ratio", f"{ratio:.2f} times the English"
    return None


def copied_sentence(english: str, translation: str) -> str:
    """A sentence of the English, three words or more, that stands in the translation as it is; else ""."""
    if folded(english) == folded(translation):
        return english
    left = {folded(s) for s in _SENTENCE.split(translation)}
    return next((s for s in _SENTENCE.split(english) if len(s.split()) >= 3 and folded(s) in left), "")


def leak(translation: str, rules: Rules) -> str:
    """The mark, label or example of the prompt that stands in the translation, else ""."""
    low = translation.casefold()
    for mark in (*MARKS, rules.label.casefold()):
        if mark in low:
            return mark
    text = folded(translation)
    return next((shot for shot in rules.shots if folded(shot) in text), "")


def folded(text: str) -> str:
    """Letters and digits alone, NFKC, case folded: what two texts are compared by."""
    return "".join(c for c in unicodedata.normalize("NFKC", text).casefold() if c.isalnum())


def shots_of(prompt: str, labels: Sequence[str]) -> tuple[str, ...]:
    """The examples of a few-shot prompt: what follows a label on its line, fields left out."""
    found = []
    for line in prompt.split("\n"):
        for label in labels:
            rest = line.removeprefix(label).strip()
            if rest != line.strip() and rest and "{{" not in rest:
                found.append(rest)
    return tuple(found)
