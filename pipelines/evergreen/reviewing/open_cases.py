"""The cases of all stages that nobody decided yet, and how a person's lines are added.

Law: the folder of reviews grows at its end only: the bytes that are there stay, whatever they are, and a
case that stands in it, decided or not, is not added again. An added file is whole or was not touched.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from pipelines.data.duplicates import question_key
from pipelines.data.readers import Record, records
from pipelines.data.tables import replace
from pipelines.errors import ConfigError, InputError, nearest
from pipelines.evergreen.reviewing.review import (
    FOLDER,
    OUT,
    Decision,
    Decisions,
    Unusable,
    Wording,
    decisions,
    parse,
)

FILE = f"{FOLDER}/cases.jsonl"
OPEN = dict.fromkeys(("decision", "change_rate", "answer", "who", "when"))  # what a person fills in
DIFFER = "decisions_differ"  # open until a run finds that they agree
NAMING = ("case", "kind", "question", "language")


@dataclass(frozen=True)
class Desk:
    """What lies before a person: `cases` not decided, `bad` lines of the folder, how many are `decided`."""

    cases: Sequence[Mapping[str, Any]]
    bad: Sequence[tuple[Record, Unusable]]
    decided: int


def desk(root: Path) -> Desk:
    """The cases of the artifacts that are there, stage by stage. Raises StageError, InputError."""
    told = decisions(root)
    found = cases(root)
    left = [c for c in found if c["kind"] == DIFFER or told.of(c["question"], c["language"]) is None]
    bad = [(line.record, line.told) for line in told.lines if isinstance(line.told, Unusable)]
    return Desk(left, bad, len(found) - len(left))


def cases(root: Path) -> list[dict[str, Any]]:
    """All cases of all stages, each with its `stage`. Raises InputError for a file that holds others."""
    found = []
    for path in sorted((root / "data" / "evergreen").rglob(OUT)):
        stage = ".".join(path.parent.relative_to(root / "data").parts)
        for record in records(path, root) if path.stat().st_size else ():
            if record.fault or not all(isinstance(record.values.get(c), str) for c in NAMING):
                cure = f"headrace run {stage}"
                raise InputError(record.fault or "is no case", where=record.place(), cure=cure)
            found.append({"stage": stage, **record.values})
    return found


def collect(root: Path) -> list[Mapping[str, Any]]:
    """Adds the open cases that are not in the folder to `FILE`, as lines to fill in; returns them."""
    told = decisions(root)
    there = {line.wording for line in told.lines} | {_unreadable(r) for r in _faulty(told)}
    added: dict[Wording, Mapping[str, Any]] = {}
    for one in desk(root).cases:
        wording = (one["language"], question_key(one["question"]))
        if wording not in there and one["case"] not in there:
            added.setdefault(wording, one)
    lines = []
    for one in added.values():
        naming = {c: one[c] for c in NAMING}
        lines.append({**naming, **OPEN, "found": {k: v for k, v in one.items() if k not in NAMING}})
    _append(root, lines)
    return list(added.values())


def decide(root: Path, name: str, said: Mapping[str, str | None]) -> Decision:
    """Adds a decision on the case `name`. Raises ConfigError when it is unknown or what is said is none.

    `said`: decision, who, when (YYYY-MM-DD), and perhaps change_rate and answer.
    """
    known = {c["case"]: c for c in cases(root)}
    begin_so = [c for n, c in known.items() if name and n.startswith(name)]
    if len(begin_so) != 1:
        what = f"{len(begin_so)} cases begin with" if begin_so else "there is no case"
        raise ConfigError(f"{what} {name!r}", cure=nearest(name, known) if known else "headrace review")
    one = begin_so[0]
    line = {**{c: one[c] for c in NAMING}, **OPEN, **said}
    told = parse(Record(FILE, 0, line)).told
    if not isinstance(told, Decision):
        what = "nothing is decided" if told is None else f"{told.reason} {told.detail}".strip()
        column = "decision" if told is None else told.column
        if not said.get("who"):
            raise ConfigError("no one is named who decides", where="headrace review", cure="add --who NAME")
        raise ConfigError(f"{column}: {what}", where="headrace review", cure="see headrace review --help")
    if told.when > date.fromisoformat(today()):
        what = f"{told.when} is yet to come: it would outrank every decision until then"
        raise ConfigError(what, where="headrace review --when", cure="name the day on which it was decided")
    _append(root, [line])
    return told


def today() -> str:
    """The day, as a decision notes it. A person's act, so a clock may be asked."""
    return date.today().isoformat()


def _faulty(told: Decisions) -> list[Record]:
    return [line.record for line in told.lines if line.wording is None]


def _unreadable(record: Record) -> str:
    """The case that a torn line speaks of, so that it is not added beside it; "" where none is seen."""
    _, _, after = record.raw.partition('"case"')
    parts = after.split('"', 2)
    return parts[1] if len(parts) > 2 else ""


def _append(root: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    if not lines:
        return
    path = root / FILE
    before = path.read_bytes() if path.exists() else b""
    if before and not before.endswith(b"\n"):
        before += b"\n"
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    replace(path, lambda beside: beside.write_bytes(before + text.encode()))
