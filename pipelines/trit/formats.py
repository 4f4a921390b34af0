"""Problems out of the formats they come in: GSM8K, MGSM, our own.

Law: a record gives one problem or one fault, with the column at fault. The
problem's key joins its translations: the given id, else a hash of the English
wording; MGSM has no id, so its row number joins the files of one folder.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.data.answers import canonical, extract
from pipelines.data.readers import Record, header, records, relative, require, stem_of, suffix_of
from pipelines.data.rows import digest
from pipelines.errors import InputError

ENGLISH = "en"
MGSM = re.compile(r"mgsm_([a-z]{2,3})", re.IGNORECASE)
MGSM_COLUMNS = ("question", "answer")
LANGUAGE = re.compile(r"[a-z]{2,3}")


@dataclass(frozen=True)
class Fault:
    """Why a record gives no problem: a stable word, the column at fault, more words."""

    reason: str
    column: str | None
    detail: str = ""


@dataclass(frozen=True)
class Problem:
    """One wording of a problem. `answer` is canonical ("2,125" is "2125")."""

    key: str
    language: str
    question: str
    answer: str


@dataclass(frozen=True)
class Book:
    """A file: its kind (gsm8k | mgsm | own), its language if the name says it, its records."""

    kind: str
    language: str
    records: Sequence[Record]
    folder: str = ""


def read_book(path: Path, base: Path, limit: int = 0) -> Book:
    """A whole file, `limit` records from its head (0: all). Raises InputError for an unknown format."""
    name = relative(path, base)
    if suffix_of(path) == ".tsv":
        named = MGSM.fullmatch(stem_of(path))
        if named is None:
            raise InputError("a TSV file must be named mgsm_XX.tsv", where=name, cure="XX is the language")
        listed, kind, language = list(records(path, base, MGSM_COLUMNS)), "mgsm", named.group(1).lower()
    else:
        columns, language = header(path, base), ""
        listed = list(records(path, base))
        own = sum({"id", "language"} <= r.values.keys() for r in listed)
        kind = "own" if own and 2 * own >= sum(not r.fault for r in listed) else "gsm8k"
        answer = "ground_truth" if "ground_truth" in columns else "answer"
        require(
            columns, ("id", "language", "question", "answer") if kind == "own" else ("question", answer), name
        )
    return Book(kind, language, listed[:limit] if limit else listed, str(Path(name).parent))


def rows_by_number(books: Sequence[Book]) -> dict[tuple[str, int], str]:
    """(folder, line) -> key of the English MGSM row: what its translations are joined by."""
    return {
        (book.folder, record.line): wording_key(record.values["question"])
        for book in books
        if book.kind == "mgsm" and book.language == ENGLISH
        for record in book.records
        if not record.fault and record.values["question"].strip()
    }


def wording_key(english: str) -> str:
    """Key of a problem without an id: a hash of its English wording."""
    return "p-" + digest("problem", tidy(english))[:16]


def tidy(text: str) -> str:
    """NFC, blanks at the ends gone; the wording is kept."""
    return unicodedata.normalize("NFC", text).strip()


def problem(book: Book, record: Record, by_number: dict[tuple[str, int], str]) -> Problem | Fault:
    """The problem that a record holds, or what is wrong with it."""
    if record.fault:
        return Fault("unreadable", None, record.fault)
    question = record.values.get("question")
    if not isinstance(question, str):
        return Fault("wrong_type", "question", f"is {type(question).__name__}")
    question = tidy(question)
    if not question:
        return Fault("empty_question", "question")
    answer = _answer(book, record)
    if isinstance(answer, Fault):
        return answer
    named = _named(book, record, question, by_number)
    return named if isinstance(named, Fault) else Problem(*named, question, answer)


def _answer(book: Book, record: Record) -> str | Fault:
    column = "ground_truth" if "ground_truth" in record.values else "answer"
    said = record.values.get(column)
    if isinstance(said, bool) or not isinstance(said, str | int | float):
        return Fault("wrong_type", column, f"is {type(said).__name__}")
    found = extract(str(said)) if book.kind == "gsm8k" else str(said)
    answer = "" if found is None else canonical(found)
    if not answer:
        return Fault("no_answer", column)
    if not any(c.isdigit() or c == "\\" for c in answer):
        return Fault("answer_not_a_number", column, answer[:80])
    return answer


def _named(
    book: Book, record: Record, question: str, by_number: dict[tuple[str, int], str]
) -> tuple[str, str] | Fault:
    """Key and language of a problem."""
    if book.kind == "gsm8k":
        return wording_key(question), ENGLISH
    if book.kind == "mgsm":
        return by_number.get((book.folder, record.line), f"mgsm-{record.line:04}"), book.language
    key, language = record.values.get("id"), record.values.get("language")
    if isinstance(key, bool) or not isinstance(key, str | int) or not str(key).strip():
        return Fault("no_id", "id")
    if not isinstance(language, str) or not LANGUAGE.fullmatch(language):
        return Fault("unknown_language", "language", repr(language)[:80])
    return str(key).strip(), language
