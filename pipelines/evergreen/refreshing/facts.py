"""A table of facts as a source of answers: what is true of a question from a day on.

Law: the answer on a day is the latest one not after it. A line that cannot be
read, or two that contradict each other, answer nothing and are told.

Columns: question, language (ISO 639-1), answer, as_of (YYYY-MM-DD).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from pipelines.data.duplicates import question_key
from pipelines.data.readers import Record, header, records, relative, require
from pipelines.errors import InputError
from pipelines.evergreen.refreshing.history import answer_key

COLUMNS = ("question", "language", "answer", "as_of")


@dataclass(frozen=True)
class Facts:
    """Answers by (language, question key), each with the days from which they hold, sorted."""

    answers: Mapping[tuple[str, str], list[tuple[date, str]]]

    def answer(self, question: str, language: str, day: date) -> str | None:
        """The answer that holds on `day`; None when the table knows none."""
        told = self.answers.get((language, question_key(question)), [])
        return next((answer for since, answer in reversed(told) if since <= day), None)


def read_facts(path: Path, root: Path) -> tuple[Facts, tuple[str, ...]]:
    """The table, and place and reason of each line passed over. Raises InputError."""
    where = relative(path, root)
    if not path.is_file():
        raise InputError("no facts here", where=where, cure="set evergreen.refresh.facts in params.yaml")
    require(header(path, root), COLUMNS, where)
    bad: list[str] = []
    told: dict[tuple[str, str], dict[date, tuple[str, Record]]] = defaultdict(dict)
    for record in records(path, root):
        fact = _fact(record)
        if isinstance(fact, str):
            bad.append(f"{record.place()}: {fact}")
            continue
        key, day, answer = fact
        other = told[key].setdefault(day, (answer, record))
        if answer_key(other[0]) != answer_key(answer):
            bad.append(f"{record.place()}: contradicts line {other[1].line}, both are passed over")
            told[key][day] = ("", other[1])
    answers = {
        key: sorted((day, answer) for day, (answer, _) in days.items() if answer)
        for key, days in told.items()
    }
    return Facts(answers), tuple(bad)


def _fact(record: Record) -> tuple[tuple[str, str], date, str] | str:
    """((language, question key), day, answer), or why the line is none."""
    if record.fault:
        return record.fault
    for column in COLUMNS:
        value = record.values.get(column)
        if not isinstance(value, str) or not value.strip():
            return f"column {column!r} has no text"
    values = {c: record.values[c].strip() for c in COLUMNS}
    key = question_key(values["question"])
    if not key:
        return "column 'question' has no words"
    try:
        day = date.fromisoformat(values["as_of"])
    except ValueError:
        return f"column 'as_of' is {values['as_of']!r}, expected YYYY-MM-DD"
    return (values["language"], key), day, values["answer"]
