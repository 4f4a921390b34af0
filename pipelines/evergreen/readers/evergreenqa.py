"""EverGreenQA: a row a question, a column a language, a label; and its files of answer aliases.

Law: a wording is its column's language, whatever the order of the columns; aliases
belong to a question by the value of the index column, never by position.

A column is named by its language ("English" or "en"). Answers may stand in
"en_Answer" and its like. A file of aliases has an index and a column a language, and
"aliases" in its name: those of `test_aliases.csv` belong to `test.csv`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.errors import InputError
from pipelines.evergreen.readers import values as v
from pipelines.evergreen.readers.alias_cells import alias_list
from pipelines.evergreen.readers.plain import Frame, Texts, frame_of
from pipelines.evergreen.readers.roles import NAMES, Reading
from pipelines.evergreen.readers.seam import Aliases, Fault, Reader, Said, Sheet
from pipelines.evergreen.schema import language_code

KIND, ALIASES = "wide", "aliases"
_ANSWER = re.compile(r"(?i)^(.+?)[_ ]answer$")


def fit(sheet: Sheet, reading: Reading) -> Reader | Aliases | None:
    """A reader for a file with a column a language, else None. Raises InputError."""
    wordings = language_columns(sheet)
    if not wordings:
        return None
    frame = frame_of(sheet, reading)
    index = frame.roles.get("index")
    if "alias" in sheet.stem and "label" not in frame.roles:
        if index is None:
            raise unknown("an index column is missing", sheet)
        ignored = v.ignored(sheet.columns, [*wordings.values(), index])
        of = sheet.stem.replace("aliases", "").replace("alias", "").strip("_- ")
        return Aliases(ALIASES, lambda values: _aliases(wordings, values), of, index, ignored)
    named = {c: (m := _ANSWER.match(c)) and language_code(m[1]) for c in sheet.columns}
    answers = by_language(named, sheet.name)

    def tell(values: Mapping[str, Any]) -> Said | Fault:
        return frame.said(values, _texts(wordings, answers, values))

    ignored = v.ignored(sheet.columns, _used(frame, wordings, answers))
    return Reader(KIND, "question", tell, ignored, sheet.stem, index, wordings=wordings)


def language_columns(sheet: Sheet) -> dict[str, str]:
    """Language -> column, of the columns that are named by one. Raises InputError for two of one language.

    Where fewer records have such a column than have a question, the record is the odd one, not the file.
    """
    # "id" heads an index and "no" a number far more often than Indonesian and Norwegian.
    reserved = (*NAMES["index"], "no")
    coded = {c: None if c.strip().casefold() in reserved else language_code(c) for c in sheet.columns}
    columns = {c for c, code in coded.items() if code}
    wide = sum(not columns.isdisjoint(r.values) for r in sheet.records)
    if wide < sheet.counts["question"]:
        return {}
    return by_language(coded, sheet.name)


def by_language(named: Mapping[str, str | None], file: str) -> dict[str, str]:
    """Language -> column, sorted. Raises InputError for two columns of one language."""
    found: dict[str, str] = {}
    for column, language in named.items():
        if language is None:
            continue
        if language in found:
            raise InputError(
                f"columns {found[language]!r} and {column!r} both claim the language {language!r}",
                where=file,
                cure="rename one of them",
            )
        found[language] = column
    return dict(sorted(found.items()))


def unknown(what: str, sheet: Sheet, more: str = "") -> InputError:
    """The refusal of a file, with the columns that it has and what `more` there is to say."""
    have = ", ".join(map(repr, sheet.columns)) or "no columns"
    return InputError(what, where=sheet.name, cure=f"the file has: {have}{more}")


def _used(frame: Frame, wordings: Mapping[str, str], answers: Mapping[str, str]) -> Sequence[str]:
    # `question` repeats a wording where it stands beside a column a language; so may `answer` and its like.
    return [*wordings.values(), *answers.values(), *frame.roles.values()]


def _texts(wordings: Mapping[str, str], answers: Mapping[str, str], values: Mapping[str, Any]) -> Texts:
    told = {code: v.text(values.get(column)) for code, column in answers.items()}
    found = {code: answer for code, answer in told.items() if answer is not None}
    return Texts({code: values.get(column) for code, column in wordings.items()}, found, {})


def _aliases(wordings: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, list[str]] | Fault:
    found: dict[str, list[str]] = {}
    for language, column in wordings.items():
        aliases = alias_list(values.get(column))
        if aliases is None:
            return Fault("unreadable_aliases", column, v.shown(values.get(column)))
        found[language] = aliases
    return found
