"""Sentence patterns, what fills them, and how people type: the templates as values.

Law: a pattern is one question in all its languages; every wording of it asks for the
same thing, and its label is the pattern's.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pipelines.data.rows import digest
from pipelines.errors import ConfigError
from pipelines.evergreen.schema import FAST, NEVER, SLOW
from pipelines.evergreen.templates.grammar import joined

RATES = (NEVER, SLOW, FAST)
EMPTY = "-"
GENDER = "gender"  # the column that says which of two words agrees: m or f
SLOT = re.compile(r"\{(\w+)(?:\.(\w+)|\?([^{}|]*)\|([^{}|]*))?\}")
OPERATIONS: dict[str, Callable[[list[int]], int]] = {
    "sum": sum,
    "product": math.prod,
    "difference": lambda n: n[0] - sum(n[1:]),
    "square": lambda n: n[0] ** 2,
}
Row = Mapping[str, str]


class TemplateError(ConfigError):
    """A file of templates that cannot be used."""


@dataclass(frozen=True)
class Manner:
    """How people type in a language: chances in [0, 1], and the words a question begins with."""

    openers: tuple[str, ...]
    question_words: frozenset[str]  # casefolded; one of them "any": every question
    opener_share: float
    small_share: float
    unmarked_share: float


@dataclass(frozen=True)
class Fill:
    """Which row stands in each slot."""

    rows: Mapping[str, Row]

    def value(self, slot: str, language: str, form: str | None = None) -> str | None:
        """What stands in a slot; None where the row has nothing for the language."""
        row = self.rows[slot]
        found = row.get(f"{language}.{form}", row.get(form)) if form else row.get(language, row.get(""))
        return None if found == EMPTY else found

    def _said(self, slot: re.Match[str], language: str) -> str | None:
        if slot[3] is not None:
            return slot[4] if self.rows[slot[1]][GENDER] == "f" else slot[3]
        return self.value(slot[1], language, slot[2])

    def shown(self, language: str) -> dict[str, str]:
        """Slot -> what stands there; empty where the row has no plain word in the language."""
        return {slot: self.value(slot, language) or "" for slot in self.rows}

    def can(self, pattern: str, language: str) -> bool:
        """True when every slot of the pattern has a value in the language."""
        return all(self._said(m, language) is not None for m in SLOT.finditer(pattern))

    def render(self, pattern: str, language: str) -> str:
        """The pattern with its slots filled, contracted where the language contracts ("de le" to "du")."""
        text, end = "", 0
        for m in SLOT.finditer(pattern):
            text = joined(text + pattern[end : m.start()], str(self._said(m, language)), language)
            end = m.end()
        return text + pattern[end:]


@dataclass(frozen=True)
class Template:
    """A pattern: wordings by language, the rows of each slot, and what is known of the answer."""

    name: str
    topic: str
    rate: str
    wordings: Mapping[str, tuple[str, ...]]
    slots: Mapping[str, tuple[Row, ...]]
    answers: Mapping[str, str] = field(default_factory=dict)  # "" for all languages
    compute: tuple[str, ...] = ()
    needs: str = ""  # a pattern that must be fillable too
    withheld: frozenset[str] = frozenset()  # `mark` of fillings that are never used

    @cached_property
    def fills(self) -> tuple[Fill, ...]:
        """Every way to fill the slots in all the languages of the pattern, in the order of the tables."""
        patterns = [(w, k) for k, texts in self.wordings.items() for w in (*texts, self.needs)]
        every = itertools.product(*self.slots.values())
        different = (rows for rows in every if len({id(r) for r in rows}) == len(rows))
        fills = (Fill(dict(zip(self.slots, rows, strict=True))) for rows in different)
        able = (f for f in fills if all(f.can(w, k) for w, k in patterns))
        return tuple(f for f in able if not self.withheld or self.mark(f) not in self.withheld)

    def mark(self, fill: Fill) -> str:
        """A hash that names one filling of one pattern, 16 hex digits."""
        return digest("filling", self.name, *fill.shown("en").values())[:16]

    def answer(self, fill: Fill, language: str) -> str | None:
        """The answer of one filling; None where the file knows none in the language."""
        if self.compute:
            operation, *names = self.compute
            return str(OPERATIONS[operation]([int(fill.rows[n][""]) for n in names]))
        pattern = self.answers.get(language, self.answers.get("", ""))
        return fill.render(pattern, language) if pattern and fill.can(pattern, language) else None


@dataclass(frozen=True)
class Bank:
    """All patterns, and the manner of each language."""

    templates: tuple[Template, ...]
    manners: Mapping[str, Manner]

    @property
    def languages(self) -> tuple[str, ...]:
        """Every language that some pattern is written in, sorted."""
        return tuple(sorted({k for t in self.templates for k in t.wordings}))

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({t.topic for t in self.templates}))
