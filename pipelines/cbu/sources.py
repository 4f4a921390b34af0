"""Problems with candidate solutions, out of three foreign formats into one shape.

Law: a reader says what it found and judges nothing away: each problem and each
candidate of a file comes out once, a faulty one with its fault. A missing or
empty solution is a fault, never an empty candidate.

| format                | file                                  | label                                |
|-----------------------|---------------------------------------|--------------------------------------|
| ours                  | JSONL: question, answer, candidates   | `label`: right, wrong or absent      |
| GSM8K model solutions | JSONL: question, ground_truth, models | `is_correct`                         |
| GSM8K problems        | JSONL: question, answer with `####`   | no candidates: neighbors only        |
| CHAMP                 | JSON: problems with `fws_annotations` | right when no wrong step was marked  |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pipelines.data.answers import extract
from pipelines.data.readers import (
    Record,
    fault_of,
    header,
    load_json,
    records,
    relative,
    suffix_of,
    text_of,
)
from pipelines.errors import InputError, Place

LABELS = ("right", "wrong")
_GSM8K_MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")


@dataclass(frozen=True)
class Fault:
    """Why something cannot be used: a short stable word, the column, and more."""

    reason: str
    column: str | None = None
    detail: str = ""


@dataclass(frozen=True)
class RawCandidate:
    """A candidate solution as found. `name` tells it from its siblings."""

    name: str
    solution: str = ""
    label: str | None = None
    author: str | None = None
    fault: Fault | None = None


@dataclass(frozen=True)
class RawProblem:
    """A problem as found, with its candidates. `neighbors` are names in the same file."""

    key: str  # names the work item
    place: Place
    raw: str
    name: str = ""
    question: str = ""
    answer: str | None = None
    concepts: tuple[str, ...] = ()
    neighbors: tuple[str, ...] = ()
    candidates: tuple[RawCandidate, ...] = ()
    fault: Fault | None = field(default=None)


class _Bad(Exception):
    """A value that does not fit; carries its fault."""

    def __init__(self, reason: str, column: str, detail: str = "") -> None:
        super().__init__(reason)
        self.fault = Fault(reason, column, detail)


def problems(path: Path, base: Path) -> Iterator[RawProblem]:
    """Problems of one file in its own order. Raises InputError for a file of another kind."""
    name = relative(path, base)
    if suffix_of(path) == ".json":
        return _champ(path, base)
    if suffix_of(path) != ".jsonl":
        raise InputError("no reader for this suffix", where=name, cure="known: .jsonl, .json (CHAMP)")
    found = header(path, base)
    if "question" not in found:
        raise InputError(
            "column 'question' is missing", where=name, cure=f"the file has: {', '.join(found) or 'nothing'}"
        )
    return (_read(record) for record in records(path, base))


def _read(record: Record) -> RawProblem:
    shape = _gsm8k_solutions if "ground_truth" in record.values else _ours
    found = RawProblem(record.key, record.place(), record.raw)
    if record.fault:
        return replace(found, fault=Fault("unreadable", None, record.fault))
    candidates = tuple(_candidates(record.values))
    try:
        return replace(found, candidates=candidates, **shape(record.values))
    except _Bad as bad:
        return replace(found, candidates=candidates, fault=bad.fault)


def _ours(values: dict[str, Any]) -> dict[str, Any]:
    answer = values.get("answer")
    if isinstance(answer, str) and "####" in answer:
        answer = extract(answer)
    if answer is not None and (isinstance(answer, bool) or not isinstance(answer, str | int | float)):
        raise _Bad("wrong_type", "answer", f"text or a number, not {type(answer).__name__}")
    if not isinstance(values.get("candidates", []), list):
        raise _Bad("wrong_type", "candidates", "a list of objects")
    return {
        "name": str(values.get("id") or ""),
        "question": _text(values, "question"),
        "answer": None if answer is None or not str(answer).strip() else str(answer).strip(),
        "concepts": _names(values, "concepts"),
        "neighbors": _names(values, "neighbors"),
    }


def _gsm8k_solutions(values: dict[str, Any]) -> dict[str, Any]:
    worked = _text(values, "ground_truth")
    answer = extract(worked)
    if answer is None:
        raise _Bad("no_answer", "ground_truth", "no line 'A: ...'")
    return {"question": _text(values, "question"), "answer": answer}


def _candidates(values: dict[str, Any]) -> Iterator[RawCandidate]:
    if "ground_truth" in values:
        models = [k for k in values if k in _GSM8K_MODELS or isinstance(values[k], dict)]
        for model in models:
            yield _gsm8k_candidate(model, values[model])
        return
    listed = values.get("candidates", [])
    for n, value in enumerate(listed if isinstance(listed, list) else [], 1):
        yield _our_candidate(f"candidates[{n}]", value)


def _gsm8k_candidate(model: str, value: Any) -> RawCandidate:
    if not isinstance(value, dict) or not isinstance(value.get("is_correct"), bool):
        return RawCandidate(model, fault=Fault("wrong_type", model, "an object with is_correct"))
    label = LABELS[0] if value["is_correct"] else LABELS[1]
    return _candidate(model, value.get("solution"), label, model, f"{model}.solution")


def _our_candidate(name: str, value: Any) -> RawCandidate:
    if not isinstance(value, dict):
        return RawCandidate(name, fault=Fault("wrong_type", name, "an object with a solution"))
    label = value.get("label")
    if label is not None and label not in LABELS:
        return RawCandidate(
            name, fault=Fault("unknown_label", f"{name}.label", f"{label!r}, not right or wrong")
        )
    author = value.get("author")
    return _candidate(
        name, value.get("solution"), label, author if isinstance(author, str) else None, f"{name}.solution"
    )


def _candidate(name: str, solution: Any, label: str | None, author: str | None, column: str) -> RawCandidate:
    if solution is None or (isinstance(solution, str) and not solution.strip()):
        return RawCandidate(name, fault=Fault("empty_solution", column))
    if not isinstance(solution, str):
        return RawCandidate(name, fault=Fault("wrong_type", column, f"text, not {type(solution).__name__}"))
    return RawCandidate(name, solution.strip(), label, author)


def _champ(path: Path, base: Path) -> Iterator[RawProblem]:
    value, name = load_json(path, base), relative(path, base)
    listed = value.get("problems") if isinstance(value, dict) else None
    if not isinstance(listed, dict):
        raise InputError(
            "is no CHAMP file: it has no object 'problems'", where=name, cure="name a JSON lines file .jsonl"
        )
    lines = _lines_of(text_of(path, base), listed)
    return (_champ_problem(name, key, listed[key], lines.get(key)) for key in listed)


def _lines_of(text: str, keys: Iterable[str]) -> dict[str, int]:
    """Line on which each problem's key stands, from 1."""
    lines, at, line = {}, 0, 1
    for key in keys:
        found = text.find(f'"{key}": {{', at)
        if found < 0:
            continue
        line += text.count("\n", at, found)
        at = found
        lines[key] = line
    return lines


def _champ_problem(file: str, key: str, value: Any, line: int | None) -> RawProblem:
    found = RawProblem(f"{file}:{key}", Place(file, line), "", name=key)
    if why := fault_of([key, value]):
        key = key.encode("utf-8", "backslashreplace").decode()
        return RawProblem(
            f"{file}:{key}", Place(file, line), "", name=key, fault=Fault("unreadable", None, why)
        )
    if not isinstance(value, dict):
        return replace(found, fault=Fault("wrong_type", key, "a problem is an object"))
    marked = value.get("fws_annotations") or {}
    if not isinstance(marked, dict):
        return replace(found, fault=Fault("wrong_type", "fws_annotations", "an object"))
    candidates = tuple(_champ_candidate(author, mark) for author, mark in sorted(marked.items()))
    try:
        links = [c for c in _names(value, "ch_list") if c.startswith("C_")]
        question = _text(value, "_text")
        answer = _text(value, "_answer")
    except _Bad as bad:
        return replace(found, candidates=candidates, fault=bad.fault)
    return replace(
        found, question=question, answer=answer, concepts=tuple(links), candidates=candidates, raw=question
    )


def _champ_candidate(author: str, mark: Any) -> RawCandidate:
    if not isinstance(mark, dict) or "start_idx" not in mark:
        return RawCandidate(author, fault=Fault("wrong_type", f"fws_annotations.{author}", "an annotation"))
    label = LABELS[0] if mark["start_idx"] is None else LABELS[1]
    return _candidate(author, mark.get("text"), label, author, f"fws_annotations.{author}.text")


def _text(values: dict[str, Any], column: str) -> str:
    value = values.get(column)
    if value is None or (isinstance(value, str) and not value.strip()):
        raise _Bad("missing_value", column)
    if not isinstance(value, str):
        raise _Bad("wrong_type", column, f"text, not {type(value).__name__}")
    return value.strip()


def _names(values: dict[str, Any], column: str) -> tuple[str, ...]:
    value = values.get(column) or []
    if not isinstance(value, list) or any(not isinstance(v, str) for v in value):
        raise _Bad("wrong_type", column, "a list of names")
    return tuple(value)
