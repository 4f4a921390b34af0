"""Dated observations: what an answer source said of a question on a day.

Law: the folder is append-only. A file is named by its day and the digest of its
content, written beside and renamed, so that the same act twice leaves one file.

A line: {"question_id", "language", "question", "answer", "as_of": "YYYY-MM-DD", "origin"}. `origin`
says who answered, `question` is there for people who read the file. `response` may stand beside it: the
id of the model answer that it was read from. A line whose answer is null and that has a `why` says that the
question was asked on that day and nothing was told.

People may add files and edit them: a line that is none costs itself alone, and a file that lies here and
is not read is refused, not passed over.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from pipelines.data.readers import SUFFIXES, Record, fault_of, json_lines, relative
from pipelines.data.tables import replace
from pipelines.data.text_files import lines_of
from pipelines.errors import InputError, StageError
from pipelines.evergreen.readers.values import language as language_of

FOLDER = "data/observations/evergreen"
LONGEST = 10_000  # characters of an answer: what is longer is a document, and would be kept for ever
LOOKS_READ = (
    *SUFFIXES,
    ".ndjson",
    ".gz",
    ".bz2",
    ".xz",
    ".zst",
    ".zip",
)  # so that a person takes it for read


@dataclass(frozen=True)
class Observation:
    """An answer to a question in a language, found on a day; None where it was asked and nothing told."""

    question_id: str
    language: str
    answer: str | None
    as_of: date
    origin: str = ""
    question: str = ""
    response: str = ""  # id of a model's answer
    why: str = ""  # there is no answer


@dataclass(frozen=True)
class Unusable:
    """Why a line is none."""

    reason: str
    column: str | None
    detail: str = ""


Noted = tuple[Record, Observation | Unusable]
NAMED = re.compile(r"(\d{4}-\d\d-\d\d)-[0-9a-f]{12}\.jsonl")  # as `write` names a file


def read(root: Path) -> list[Noted]:
    """All lines of all files, in the order of names. Raises StageError without folder, InputError."""
    folder = root / FOLDER
    if not folder.is_dir():
        raise StageError("the folder of observations is not there", where=FOLDER, cure="headrace init DIR")
    return [
        (r, parse(r)) for path in sorted(folder.iterdir()) if _is_read(path) for r in _lines(path, folder)
    ]


def _is_read(path: Path) -> bool:
    """Whether a file of the folder holds observations. Raises InputError for one that only looks so."""
    if path.name.startswith("."):
        return False
    if path.suffix == ".jsonl" and path.is_file():
        return True
    if path.suffix.lower() in LOOKS_READ or path.is_dir():
        what, cure = (
            "is not read: observations lie in files *.jsonl of this folder",
            "rename it or take it away",
        )
        raise InputError(what, where=f"{FOLDER}/{path.name}", cure=cure)
    return False


def _lines(path: Path, folder: Path) -> list[Record]:
    try:
        return list(json_lines(lines_of(path, folder), relative(path, folder)))
    except InputError as e:
        raise InputError(e.what, where=f"{FOLDER}/{e.where}", cure=e.cure) from e


def parse(record: Record) -> Observation | Unusable:
    """The observation on a line."""
    if record.fault:
        return Unusable("unreadable", None, record.fault)
    why, response, origin = (_text(record, c) for c in ("why", "response", "origin"))
    nothing = bool(why) and "answer" in record.values and record.values["answer"] is None
    words: dict[str, str] = {}
    for column in ("question_id", "language", *(() if nothing else ("answer",)), "as_of"):
        value = record.values.get(column)
        if not isinstance(value, str | None):
            return Unusable("wrong_type", column, f"{value!r} is not a text")
        words[column] = (value or "").strip()
        if not words[column]:
            return Unusable("missing_value", column)
    reason, detail = ("", "") if nothing else cannot_be_noted(words["answer"])
    if reason:
        return Unusable(reason, "answer", detail)
    try:
        day = date.fromisoformat(words["as_of"])
    except ValueError:
        return Unusable("bad_date", "as_of", f"{words['as_of']!r}, expected YYYY-MM-DD")
    return Observation(
        words["question_id"],
        language_of(words["language"]) or words["language"],
        None if nothing else words["answer"],
        day,
        origin,
        response=response,
        why=why if nothing else "",
    )


def is_of_an_act(record: Record, o: Observation) -> bool:
    """Whether asking on that day gave it, and not a person, who may note any days."""
    named = NAMED.fullmatch(record.file)
    return named is not None and named[1] == o.as_of.isoformat()


def cannot_be_noted(answer: str) -> tuple[str, str]:
    """Why a line with this answer would not be read again: reason and detail, empty when it would."""
    if fault := fault_of(answer):
        return "unreadable", fault
    if len(answer) > LONGEST:
        return "too_long", f"{len(answer)} characters, at most {LONGEST}"
    return "", ""


def _text(record: Record, column: str) -> str:
    value = record.values.get(column)
    return value.strip() if isinstance(value, str) else ""


def write(root: Path, day: date, found: Sequence[Observation]) -> Path | None:
    """Adds one file with all of them; None and no file when there are none."""
    if not found:
        return None
    ordered = sorted(found, key=lambda o: (o.question_id, o.language, o.answer or ""))
    text = "".join(json.dumps(_plain(o), ensure_ascii=False) + "\n" for o in ordered)
    path = _free(root / FOLDER, day, text.encode())
    if not path.exists():
        replace(path, lambda beside: beside.write_text(text, encoding="utf-8"))
    return path


def _free(folder: Path, day: date, content: bytes) -> Path:
    """The first name of the content that is free or holds it: a person may have edited the file since."""
    for n in itertools.count():
        digest = hashlib.sha256(content + b"\n" * n).hexdigest()[:12]
        path = folder / f"{day.isoformat()}-{digest}.jsonl"
        if not path.exists() or (path.is_file() and path.read_bytes() == content):
            return path
    raise AssertionError


def _plain(o: Observation) -> dict[str, Any]:
    told = {**asdict(o), "as_of": o.as_of.isoformat()}
    return {c: v for c, v in told.items() if v or c not in ("response", "why")}
