"""Which columns of a foreign file say what, and what one record says.

Law: a file is recognised by its columns or refused with the columns found; a
record is read whole, or it is a `Fault` with a reason and a column.

Two formats are known, in CSV, TSV, JSONL, JSON and Parquet:

wide    a column a language ("English" or "en", in any order) and a label: EverGreenQA.
        Answers may stand in "en_Answer" and its like.
long    "question" and a label. The question is a text with its "language", or an object
        {"en": ..., "fr": ...}; "answer" and "aliases" likewise a value, or an object by language.

The label is `is_evergreen` or `label`, or is told by `change_rate`. Both formats may have
`split`, `source`, `label_origin` and `as_of`; else the split is told by the file's name
(test, dev, train), and so is the source (a name with "synth"). Where neither tells, a
question is drawn by a hash of its wordings: a quarter test, a tenth dev, the rest train.
A file of answer aliases has an index and a column a language, and "aliases" in its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from pipelines.data.readers import Record
from pipelines.data.rows import ID_HEX, digest
from pipelines.errors import InputError
from pipelines.evergreen.alias_cells import alias_list
from pipelines.evergreen.schema import DEV, TEST, TRAIN, UNKNOWN, Label, language_code, parse_label

INDEX = ("", "index", "id", "unnamed: 0")
LABEL = ("is_evergreen", "label")
SPLIT_WORDS = {TRAIN: TRAIN, DEV: DEV, TEST: TEST, "validation": DEV, "valid": DEV, "val": DEV}
TEST_SHARE, DEV_SHARE = 0.25, 0.1  # of questions whose split nothing tells
ORIGINS = ("gold", "human", "agreement", "model")
_OPTIONAL = (
    *("question", "language", "answer", "aliases", "change_rate"),
    *("split", "source", "label_origin", "as_of"),
)
_ANSWER = re.compile(r"(?i)^(.+?)[_ ]answer$")


@dataclass(frozen=True)
class Layout:
    """What the columns of a file mean. `kind` is wide, long or aliases."""

    kind: str
    stem: str  # of the file's name
    wordings: Mapping[str, str] = field(default_factory=dict)  # language -> column
    answers: Mapping[str, str] = field(default_factory=dict)  # language -> column
    label: str | None = None
    index: str | None = None
    ignored: tuple[str, ...] = ()


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


@dataclass(frozen=True)
class Fault:
    """Why a record cannot be used."""

    reason: str
    column: str | None
    detail: str = ""


def recognise(columns: Sequence[str], file: str) -> Layout:
    """The layout of a file from its column names. Raises InputError with the columns found."""
    stem = file.rsplit("/", 1)[-1].rsplit(".", 1)[0].casefold()
    names = {c.strip().casefold(): c for c in columns}
    # "id" heads an index and "no" a number far more often than Indonesian and Norwegian.
    coded = {c: None if c.strip().casefold() in (*INDEX, "no") else language_code(c) for c in columns}
    wordings = _by_language(coded, file)
    told = [(c, _ANSWER.match(c)) for c in columns]
    answers = _by_language({c: m and language_code(m[1]) for c, m in told}, file)
    label = next((names[w] for w in LABEL if w in names), None)
    index = next((names[w] for w in INDEX if w in names), None)
    if wordings and "alias" in stem and label is None:
        if index is None:
            raise _unknown("an index column is missing", columns, file)
        return Layout("aliases", stem, wordings, index=index)
    if not wordings and "question" not in names:
        raise _unknown("no column holds questions", columns, file)
    if label is None and "change_rate" not in names:
        raise _unknown("no column holds the label (is_evergreen, label or change_rate)", columns, file)
    kind = "wide" if wordings else "long"
    known = {*wordings.values(), *answers.values(), *_OPTIONAL, label, index}
    ignored = tuple(sorted(c for c in columns if c not in known))
    return Layout(kind, stem, wordings, answers, label, index, ignored)


def usual(columns: Sequence[str], listed: Sequence[Record]) -> list[str]:
    """The columns without those of the format that fewer records are in: one odd record decides nothing."""
    of_wide = {c for c in columns if c.strip().casefold() not in (*INDEX, "no") and language_code(c)}
    wide = sum(not of_wide.isdisjoint(r.values) for r in listed)
    long = sum("question" in r.values for r in listed)
    odd = of_wide if wide < long else {"question"} if long < wide else set()
    return [c for c in columns if c not in odd]


def cells(layout: Layout, record: Record) -> list[str]:
    """Languages in which a record claims a question: its work items. Empty when that is not told."""
    if record.fault or layout.kind == "aliases":
        return []
    if layout.kind == "wide":
        return list(layout.wordings)
    question = record.values.get("question")
    return [str(k) for k in question] if isinstance(question, Mapping) else []


def said(layout: Layout, record: Record) -> Said | Fault:
    """What a record of a wide or long file says, or why it says nothing usable."""
    values = record.values
    label = _label(layout, values)
    if isinstance(label, Fault):
        return label
    texts = _texts(layout, values)
    if isinstance(texts, Fault):
        return texts
    wordings, answers, aliases = texts
    split = _word(values, "split", _split_of(layout.stem) or _drawn(wordings))
    if split not in SPLIT_WORDS:
        return Fault("unknown_split", "split", f"{split!r}, known: train, dev, test")
    origin = _word(values, "label_origin", "gold")
    if origin not in ORIGINS:
        return Fault("unknown_origin", "label_origin", f"{origin!r}, known: {', '.join(ORIGINS)}")
    as_of = _date(values.get("as_of"))
    if isinstance(as_of, Fault):
        return as_of
    source = _word(values, "source", "synth" if "synth" in layout.stem else "real")
    return Said(wordings, answers, aliases, label, SPLIT_WORDS[split], source, origin, as_of)


def aliases_of(layout: Layout, record: Record) -> dict[str, list[str]] | Fault:
    """Aliases by language of one record of an alias file."""
    found: dict[str, list[str]] = {}
    for language, column in layout.wordings.items():
        aliases = alias_list(record.values.get(column))
        if aliases is None:
            return Fault("unreadable_aliases", column, str(record.values.get(column))[:200])
        found[language] = aliases
    return found


def _unknown(what: str, columns: Sequence[str], file: str) -> InputError:
    return InputError(what, where=file, cure=f"the file has: {', '.join(map(repr, columns)) or 'no columns'}")


def _by_language(named: Mapping[str, str | None], file: str) -> dict[str, str]:
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


def _label(layout: Layout, values: Mapping[str, Any]) -> Label | Fault:
    """The label, sharpened by the change rate where both are given and agree."""
    told: list[Label] = []
    for column in (layout.label, "change_rate"):
        value = None if column is None else values.get(column)
        if value is None or value == "" or (column == "change_rate" and value == UNKNOWN):
            continue
        label = parse_label(value)
        if label is None:
            return Fault("unknown_label", column, f"{value!r}")
        told.append(label)
    if not told:
        return Fault("missing_label", layout.label or "change_rate")
    if len({label.value for label in told}) > 1:
        return Fault("label_and_rate_disagree", "change_rate", f"{told[0].value} but {told[1].rate}")
    rates = [label.rate for label in told if label.rate != UNKNOWN]
    return Label(told[0].value, rates[-1] if rates else UNKNOWN)


def _texts(
    layout: Layout, values: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str], dict[str, list[str]]] | Fault:
    """Wordings, answers and aliases by language."""
    if layout.kind == "wide":
        wordings = {code: values.get(c) for code, c in layout.wordings.items()}
        told = {code: values.get(c) for code, c in layout.answers.items()}
        return wordings, {k: v for k, v in told.items() if isinstance(v, str) and v.strip()}, {}
    question = values.get("question")
    if isinstance(question, Mapping):
        wordings = {str(k): v for k, v in question.items()}
    else:
        wordings = {_word(values, "language", "en"): question}
    if not wordings:
        return Fault("empty_question", "question")
    codes = {k: language_code(k) for k in wordings}
    unknown = sorted(k for k, code in codes.items() if code is None)
    if unknown:
        return Fault("unknown_language", "language", repr(unknown[0]))
    only = next(iter(wordings)) if len(wordings) == 1 else None
    answers = {k: str(v) for k, v in _by_key(values.get("answer"), only).items() if v not in (None, "")}
    aliases: dict[str, list[str]] = {}
    for key, cell in _by_key(values.get("aliases"), only).items():
        listed = alias_list(cell)
        if listed is None:
            return Fault("unreadable_aliases", "aliases", repr(cell)[:200])
        aliases[key] = listed
    return wordings, answers, aliases


def _by_key(value: Any, only: str | None) -> dict[str, Any]:
    """A value for each language: an object as it is, anything else for the only language."""
    if isinstance(value, Mapping):
        return {str(k): v for k, v in value.items()}
    return {} if only is None or value is None else {only: value}


def _word(values: Mapping[str, Any], column: str, default: str) -> str:
    value = values.get(column)
    return default if value is None or value == "" else str(value).strip().casefold()


def _split_of(stem: str) -> str:
    """What the file's name tells; train for a synthetic set, empty where it tells nothing."""
    words = re.split(r"[^a-z]+", stem)
    told = next((SPLIT_WORDS[w] for w in words if w in SPLIT_WORDS), "")
    return told or (TRAIN if "synth" in stem else "")


def _drawn(wordings: Mapping[str, Any]) -> str:
    """A split by a hash of the wordings: the same whatever the file, the line or other rows."""
    share = int(digest("split", *sorted(map(str, wordings.values()))), 16) / 16**ID_HEX
    return TEST if share < TEST_SHARE else DEV if share < TEST_SHARE + DEV_SHARE else TRAIN


def _date(value: Any) -> date | Fault | None:
    if value is None or value == "":
        return None
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(str(value).strip())
    except ValueError:
        return Fault("bad_date", "as_of", f"{value!r}, expected YYYY-MM-DD")
