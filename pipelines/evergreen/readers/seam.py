"""What every reader of questions gives, and what it is given.

Law: a record is read whole, as a `Said`, or it is a `Fault` with a reason and the
column of the file that shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.data.record import Record
from pipelines.data.source_files import stem_of
from pipelines.evergreen.schema import POOL, Label


@dataclass(frozen=True)
class Said:
    """What a record says of one question. Empty wordings are kept, to be refused one by one."""

    wordings: Mapping[str, Any]  # language -> text
    answers: Mapping[str, str]
    aliases: Mapping[str, list[str]]
    label: Label
    split: str
    source: str
    label_origin: str
    as_of: date | None
    details: Mapping[str, str] = field(default_factory=dict)  # what the schema has no column for
    shared_id: str = ""  # an id that the question's translations in other files bear, too


@dataclass(frozen=True)
class Fault:
    """Why a record cannot be used."""

    reason: str
    column: str | None
    detail: str = ""


@dataclass(frozen=True)
class Sheet:
    """A file whose meaning is not known yet: its columns in order, its records."""

    name: str  # relative to the folder that was given
    columns: tuple[str, ...]
    records: Sequence[Record]

    @property
    def stem(self) -> str:
        """The file's name without folder and suffix, case folded."""
        return stem_of(Path(self.name)).casefold()

    @cached_property
    def counts(self) -> Counter[str]:
        """In how many records each column stands."""
        return Counter(str(c) for r in self.records for c in r.values)

    @cached_property
    def usual(self) -> frozenset[str]:
        """Columns that at least half of the readable records have: one odd record decides nothing."""
        readable = sum(1 for r in self.records if not r.fault)
        return frozenset(c for c in self.columns if 2 * self.counts[c] >= max(readable, 1))

    @cached_property
    def common(self) -> frozenset[str]:
        """Columns that more than half of the readable records have."""
        readable = sum(1 for r in self.records if not r.fault)
        return frozenset(c for c in self.columns if 2 * self.counts[c] > readable)

    def mostly(self, column: str, test: Callable[[Any], bool]) -> bool:
        """True when at least half of the values in a column pass a test."""
        told = [r.values[column] for r in self.records if column in r.values]
        return bool(told) and 2 * sum(map(test, told)) >= len(told)


@dataclass(frozen=True)
class Reader:
    """Reads the records of one file of questions.

    `tell` says what a record's values say; `question` is the column that holds the question.
    """

    kind: str  # the format, as outcomes.json counts it
    question: str
    tell: Callable[[Mapping[str, Any]], Said | Fault]
    ignored: tuple[str, ...] = ()
    joins: str = ""  # which files of aliases belong to this file: those that say the same
    index: str | None = None  # the column that they are joined by
    repeats: bool = False  # whether an index stands in several files for the same question
    wordings: Mapping[str, str] = field(default_factory=dict)  # language -> column, of a column a language
    by_language: bool = False  # whether a question may be an object {language: wording}

    def languages(self, record: Record) -> list[str]:
        """Languages in which a record claims a question: its work items. Empty when that is not told."""
        if record.fault:
            return []
        if self.wordings:
            return list(self.wordings)
        question = record.values.get(self.question)
        return [str(k) for k in question] if self.by_language and isinstance(question, Mapping) else []

    def column(self, language: str) -> str:
        """The column that holds the wording in a language."""
        return self.wordings.get(language, self.question)


@dataclass(frozen=True)
class Aliases:
    """Reads the records of one file of answer aliases, which `index` joins to questions."""

    kind: str
    tell: Callable[[Mapping[str, Any]], dict[str, list[str]] | Fault]  # by language
    joins: str
    index: str
    ignored: tuple[str, ...] = ()

    def languages(self, record: Record) -> list[str]:
        """None: a record of aliases is one work item."""
        return []


def pooled(
    kind: str, question: Any, language: str, label: Label, answers: Sequence[str], **more: Any
) -> Said:
    """What a record of a published set says: a question in one language, in no split of ours.

    The first of the accepted answers is the answer, and all are aliases.
    """
    given = {"label_origin": "gold", "as_of": None, **more}
    return Said(
        wordings={language: question},
        answers={language: answers[0]} if answers else {},
        aliases={language: list(dict.fromkeys(a.strip() for a in answers))} if answers else {},
        label=label,
        split=POOL,
        source=kind,
        **given,
    )
