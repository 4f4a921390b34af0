"""How much of a label's train questions one form may be ("how old is ...").

Law: which questions stay is drawn by (seed, template, question id) alone, so of two runs with more questions
the same ones stay first. Nothing but train is capped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipelines.data.near import words
from pipelines.data.rows import digest

Templates = Mapping[str, Mapping[str, Sequence[str]]]  # name -> language -> runs of words


@dataclass(frozen=True)
class Held:
    """A train question that stands: its id, its label, its wordings by language."""

    id: str
    label: str
    wordings: Mapping[str, str]


def template_of(wordings: Mapping[str, str], templates: Templates) -> str:
    """The first template, by name, that a wording in any language holds; "" for none."""
    said = {language: f" {' '.join(words(text))} " for language, text in wordings.items()}
    for name, by_language in sorted(templates.items()):
        for language, runs in by_language.items():
            if any(f" {' '.join(words(run))} " in said.get(language, "") for run in runs):
                return name
    return ""


def over_the_cap(questions: Sequence[Held], templates: Templates, share: float, seed: int) -> dict[str, str]:
    """Question id -> template, of those that go: a template is at most `share` of a label's questions.

    The share is of those that stay, counted beside the questions of no template. `share` in [0, 1]; at 1
    nothing goes.
    """
    if share >= 1 or not templates:
        return {}
    by_label: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for question in questions:
        by_label[question.label][template_of(question.wordings, templates)].append(question.id)
    gone: dict[str, str] = {}
    for by_template in by_label.values():
        for name, ids in by_template.items():
            room = int(share * len(by_template.get("", ())) / (1 - share) + 1e-9)
            if name and len(ids) > room:
                drawn = sorted(ids, key=lambda i: digest("cap", seed, name, i))
                gone |= dict.fromkeys(drawn[room:], name)
    return gone
