"""A table of facts as a source of answers: what is true of a question from a day on.

Law: the answer on a day is the latest one not after it. A line that cannot be
read, or two that contradict each other, answer nothing and are told. What was
true before two such lines is not taken for true after them.

Columns: question, language ("fr", "French"), answer, as_of (YYYY-MM-DD), in any
kind of file that questions are read from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from pipelines.data.duplicates import question_key
from pipelines.data.readers import Record, relative, require
from pipelines.errors import InputError
from pipelines.evergreen.readers.books import open_sheet
from pipelines.evergreen.readers.values import language as language_of
from pipelines.evergreen.refreshing.history import answer_key
from pipelines.evergreen.refreshing.observations import cannot_be_noted

COLUMNS = ("question", "language", "answer", "as_of")


@dataclass(frozen=True)
class Facts:
    """Answers by (language, question key), each with the days from which they hold, sorted.

    None from a day on which two contradict each other.
    """

    answers: Mapping[tuple[str, str], list[tuple[date, str | None]]]

    def answer(self, question: str, language: str, day: date) -> str | None:
        """The answer that holds on `day`; None when the table knows none."""
        told = self.answers.get((language, question_key(question)), [])
        return next((answer for since, answer in reversed(told) if since <= day), None)


def read_facts(path: Path, root: Path) -> tuple[Facts, tuple[str, ...]]:
    """The table, and place and reason of each line passed over. Raises InputError."""
    where = relative(path, root)
    if not path.is_file():
        raise InputError("no facts here", where=where, cure="set evergreen.refresh.facts in params.yaml")
    sheet = open_sheet(path, root)
    require(sheet.columns, COLUMNS, where)
    bad: list[str] = []
    told: dict[tuple[str, str], dict[date, tuple[str | None, Record]]] = defaultdict(dict)
    for record in sheet.records:
        fact = _fact(record)
        if isinstance(fact, str):
            bad.append(f"{record.place()}: {fact}")
            continue
        key, day, answer = fact
        known, other = told[key].setdefault(day, (answer, record))
        if known is None or answer_key(known) != answer_key(answer):
            bad.append(f"{record.place()}: contradicts line {other.line}, both are passed over")
            told[key][day] = (None, other)
    answers = {
        key: sorted(((day, answer) for day, (answer, _) in days.items()), key=lambda told: told[0])
        for key, days in told.items()
    }
    return Facts(answers), tuple(bad)


def _fact(record: Record) -> tuple[tuple[str, str], date, str] | str:
    """((language, question key), day, answer), or why the line is none."""
    if record.fault:
        return record.fault
    values: dict[str, str] = {}
    for column in COLUMNS:
        value = record.values.get(column)
        text = value.isoformat() if isinstance(value, date) else value
        if not isinstance(text, str) or not text.strip():
            return f"column {column!r} has no text"
        values[column] = text.strip()
    key, language = question_key(values["question"]), language_of(values["language"])
    if not key:
        return "column 'question' has no words"
    if language is None:
        return f"column 'language' is {values['language']!r}, expected a code such as 'en'"
    if detail := cannot_be_noted(values["answer"])[1]:
        return f"column 'answer': {detail}"
    try:
        day = date.fromisoformat(values["as_of"])
    except ValueError:
        return f"column 'as_of' is {values['as_of']!r}, expected YYYY-MM-DD"
    return (language, key), day, " ".join(values["answer"].split())
