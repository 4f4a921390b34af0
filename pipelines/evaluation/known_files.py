"""Reads questions with answers, scores and flags from CSV, TSV, JSONL and JSON, columns in any order.

Law: records read = known + unread, record by record; two columns that claim to be the same thing are
refused before any record, and columns that say nothing to us are named, not guessed at.

Columns: a question, and if known the gold answers, a model's answer or whether it was right, scores
(`known_scores`), whether an assistant searched, the label, P(evergreen), language, split, set, id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipelines.data.readers import Record, data_files, header, records, stem_of
from pipelines.errors import InputError
from pipelines.evaluation import adarague
from pipelines.evaluation import known_questions as k
from pipelines.evaluation.known_questions import Known, Unread
from pipelines.evaluation.known_scores import direction, scores_of
from pipelines.evergreen.schema import language_code

ROLES: dict[str, tuple[str, ...]] = {
    "key": ("id", "qid", "key", "question_id"),
    "dataset": ("dataset", "set"),
    "question": ("question", "question_text", "query", "prompt"),
    "language": ("language", "lang"),
    "split": ("split",),
    "golds": ("answers", "gold", "golds", "gold_answers", "aliases", "reference", "ground_truth"),
    "answer": ("response", "model_answer", "prediction", "no_retrieve"),
    "correct": ("correct", "is_correct", "right"),
    "label": ("label", "is_evergreen", "evergreen"),
    "searched": (
        "searched",
        "search",
        "did_search",
        "used_search",
        "web_search",
        "searched_web",
        "retrieved",
    ),
    "p_evergreen": ("p_evergreen",),
}
READ: Mapping[str, Callable[[Any], Any]] = {
    "question": k.text_of,
    "split": k.split_of,
    "golds": k.texts_of,
    "answer": k.text_of,
    "correct": k.flag,
    "label": k.label_of,
    "searched": k.flag,
    "p_evergreen": k.probability,
}


def read_folder(folder: Path, base: Path, unused: set[str]) -> Iterator[Known | Unread]:
    """All questions below a folder: AdaRAGUE's files by their names, all others as `read_file` does.

    Of two records that name the same question of the same set the second is unread(duplicate).
    """
    files = {path: adarague.kind_of(path, base) for path in data_files(folder)}
    found: list[Known | Unread] = list(
        adarague.read_sets({p: kind for p, kind in files.items() if kind is not None}, base)
    )
    for path in (p for p, kind in files.items() if kind is None):
        found += read_file(path, base, unused)
    seen: dict[tuple[str, ...], str] = {}
    for one in found:
        yield _duplicate(one, seen) or one


def _duplicate(one: Known | Unread, seen: dict[tuple[str, ...], str]) -> Unread | None:
    """A record whose key, or whose wording in this language, its set had before."""
    names: list[tuple[str, ...]] = [(one.item,)]
    if isinstance(one, Known) and one.question is not None:
        names.append((one.dataset, one.language, " ".join(one.question.casefold().split())))
    first = next((seen[n] for n in names if n in seen), None)
    for name in names:
        seen.setdefault(name, str(one.place))
    if first is None:
        return None
    item = f"{one.item}@{one.place}"
    if isinstance(one, Unread):
        return replace(one, item=item)
    return Unread(item, "duplicate", f"same as {first}", one.place, one.question or "")


def read_file(path: Path, base: Path, unused: set[str]) -> Iterator[Known | Unread]:
    """The records of one file, in order; names of columns that were not used are added to `unused`.

    Raises InputError for a file without a question column or with two for one thing.
    """
    columns = header(path, base)
    roles = roles_of(columns, str(path.relative_to(base)))
    unused |= {c for c in columns if c not in roles.values() and direction(c) is None}
    for record in records(path, base):
        yield _read(record, roles, stem_of(path))


def roles_of(columns: list[str], where: str) -> dict[str, str]:
    """Role -> column. Raises InputError when the question is missing or two columns claim a role."""
    found: dict[str, str] = {}
    plain = {c: c.strip().casefold().replace(" ", "_") for c in columns}
    for role, names in ROLES.items():
        claims = [c for c in columns if plain[c] in names]
        if len(claims) > 1:
            what = f"two columns claim to be the {role}: {claims[0]!r} and {claims[1]!r}"
            raise InputError(what, where=where, cure="take one of them away")
        if claims:
            found[role] = claims[0]
    if "answer" in plain.values() and "golds" not in found:  # alone it is the gold answer
        found["golds"] = next(c for c in columns if plain[c] == "answer")
    if "question" not in found:
        cure = f"the file has: {', '.join(map(repr, columns)) or 'no columns'}"
        raise InputError("no column holds the question", where=where, cure=cure)
    return found


def _read(record: Record, roles: Mapping[str, str], stem: str) -> Known | Unread:
    if record.fault:
        return Unread(record.key, "unreadable", record.fault, record.place(), record.raw)
    values: dict[str, Any] = {}
    role = "question"
    try:
        for role, column in roles.items():
            if role in READ:
                values[role] = READ[role](record.values.get(column))
        role = ""
        scores = scores_of(record.values)
    except (ValueError, TypeError, OverflowError) as e:
        reason = f"bad_{role}" if role else "bad_score"
        return Unread(record.key, reason, str(e), record.place(roles.get(role)), record.raw)
    told = {r: str(record.values.get(roles[r]) or "").strip() for r in ("key", "dataset") if r in roles}
    language = str(record.values.get(roles.get("language", "")) or "en").strip()
    code = language_code(language)
    if code is None:
        place = record.place(roles.get("language"))
        return Unread(record.key, "bad_language", f"no known language {language!r}", place, record.raw)
    if values["question"] is None:
        place = record.place(roles["question"])
        return Unread(record.key, "no_question", "the cell is empty", place, record.raw)
    return Known(
        told.get("dataset") or stem,
        told.get("key") or record.key,
        record.place(),
        language=code,
        scores=scores,
        **values,
    )
