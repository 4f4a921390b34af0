"""Dated observations: what an answer source said of a question on a day.

Law: the folder is append-only. A file is named by its day and the digest of its
content, written beside and renamed, so that the same act twice leaves one file.

A line: {"question_id", "language", "question", "answer", "as_of": "YYYY-MM-DD", "origin"}. `origin`
says who answered, `question` is there for people who read the file. `response` may stand beside it: the
id of the model answer that it was read from. A line whose answer is null and that has a `why` says that the
question was asked on that day and nothing was told.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from pipelines.data.readers import Record, records
from pipelines.data.tables import replace
from pipelines.errors import StageError

FOLDER = "data/observations/evergreen"


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


def read(root: Path) -> list[Noted]:
    """All lines of all files, in the order of names. Raises StageError without folder, InputError."""
    folder = root / FOLDER
    if not folder.is_dir():
        raise StageError("the folder of observations is not there", where=FOLDER, cure="headrace init DIR")
    return [(r, parse(r)) for path in sorted(folder.glob("[!.]*.jsonl")) for r in records(path, folder)]


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
    try:
        day = date.fromisoformat(words["as_of"])
    except ValueError:
        return Unusable("bad_date", "as_of", f"{words['as_of']!r}, expected YYYY-MM-DD")
    return Observation(
        words["question_id"],
        words["language"],
        None if nothing else words["answer"],
        day,
        origin,
        response=response,
        why=why if nothing else "",
    )


def _text(record: Record, column: str) -> str:
    value = record.values.get(column)
    return value.strip() if isinstance(value, str) else ""


def write(root: Path, day: date, found: Sequence[Observation]) -> Path | None:
    """Adds one file with all of them; None and no file when there are none."""
    if not found:
        return None
    ordered = sorted(found, key=lambda o: (o.question_id, o.language, o.answer or ""))
    text = "".join(json.dumps(_plain(o), ensure_ascii=False) + "\n" for o in ordered)
    name = f"{day.isoformat()}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.jsonl"
    path = root / FOLDER / name
    if not path.exists():
        replace(path, lambda beside: beside.write_text(text, encoding="utf-8"))
    return path


def _plain(o: Observation) -> dict[str, Any]:
    told = {**asdict(o), "as_of": o.as_of.isoformat()}
    return {c: v for c, v in told.items() if v or c not in ("response", "why")}
