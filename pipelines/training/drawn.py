"""Training questions drawn from templates: labelled by the rule that made them, of both classes alike.

Law: what is drawn depends on the seed, the counts and the languages; no drawn question has the key of
a test question, and what nearly equals one goes out with the others that do.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pipelines.data.duplicates import question_key
from pipelines.data.rows import digest
from pipelines.evergreen.templates.filling import draw, load
from pipelines.training.decontaminate import Wording
from pipelines.training.examples import in_turn

SOURCE = "template"
NEVER = "never"


@dataclass(frozen=True)
class Templates:
    """How many questions of each change rate are drawn, and in how many languages each is worded."""

    never: int = 0
    slow: int = 0
    fast: int = 0
    wordings: int = 2  # of a question; 0: one in each language of train

    @property
    def wanted(self) -> dict[str, int]:
        return {NEVER: self.never, "slow": self.slow, "fast": self.fast}


def is_drawn(question: str) -> bool:
    """Whether a question id is of this module's making: no artifact has its rows."""
    return question.startswith(f"{SOURCE}:")


def drawn(
    recipe: Templates, languages: Collection[str], test: Collection[str], train: Collection[str], seed: int
) -> list[Wording]:
    """Rows in the order of their ids. `test`, `train`: texts that no drawn question equals.

    Languages in which no template is written are left out. Raises ConfigError when the templates cannot
    give as many.
    """
    if not any(recipe.wanted.values()):
        return []
    bank = load()
    known = sorted(set(languages) & set(bank.languages))
    avoid = {question_key(text) for text in (*test, *train)}
    rows = []
    for made in draw(bank, wanted=recipe.wanted, languages=known, seed=seed, avoid=avoid):
        question = f"{SOURCE}:{digest(SOURCE, made.template, sorted(made.wordings.items()))}"
        turns = in_turn([question] * len(known), [made.wordings[x] for x in known], seed)[question]
        for language in (known[i] for i in turns[: recipe.wordings or None]):
            text, evergreen = made.wordings[language], made.change_rate == NEVER
            rows.append(Wording(f"{question}/{language}", question, language, text, evergreen, SOURCE))
    return sorted(rows, key=lambda w: w.row_id)
