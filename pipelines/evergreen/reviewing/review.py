"""Cases that a person decides, and the decisions.

Law: a decision is about a wording in its language, so it outlives every rerun, and it outranks rules and
models. A line that cannot be used is refused with file, line, column and reason; a line without a decision
is open. Of several decisions on a wording the latest day's holds; two on that day that differ hold neither.

A stage that finds cases writes them as its out `review.jsonl`, by `case` and `write_cases`. A person's
lines lie in `data/review/evergreen/*.jsonl`, in version control:

    {"question": "...", "language": "en", "decision": "mutable", "who": "Ann", "when": "2026-11-30"}

`decision` is evergreen, mutable, drop, or any label that `schema.parse_label` knows ("slow-changing") but
unknown; `change_rate` (never | slow | fast | unknown) and `answer` may stand beside it, other keys are not
read. A file of other data in that folder is refused: what a person said there would be passed over.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from pipelines.data.duplicates import question_key
from pipelines.data.readers import SUFFIXES, Record, records, relative, suffix_of
from pipelines.data.rows import digest
from pipelines.data.tables import replace
from pipelines.errors import InputError, StageError
from pipelines.evergreen.schema import UNKNOWN, language_code, parse_label
from pipelines.step import Step

FOLDER = "data/review/evergreen"
OUT = "review.jsonl"
DROP = "drop"
DECISIONS = "evergreen, mutable, never, slow, fast or drop"

Wording = tuple[str, str]  # language, question_key


@dataclass(frozen=True)
class Decision:
    """What a person said of a question. `verdict`: evergreen | mutable | drop; `answer`: None if none."""

    verdict: str
    change_rate: str
    who: str
    when: date
    answer: str | None = None

    @property
    def said(self) -> tuple[str, str, str | None]:
        """What it says, whoever says so and when."""
        return self.verdict, self.change_rate, self.answer


@dataclass(frozen=True)
class Unusable:
    """Why a line is no decision."""

    reason: str
    column: str | None
    detail: str = ""


@dataclass(frozen=True)
class Line:
    """A line of the folder: a decision, one still open (None), or unusable. `wording` where it names one."""

    record: Record
    wording: Wording | None
    told: Decision | Unusable | None


@dataclass(frozen=True)
class Decisions:
    """All lines of the folder, and which decision holds for each wording."""

    lines: Sequence[Line] = ()
    holding: Mapping[Wording, Decision] = field(default_factory=dict)
    contradicted: frozenset[Wording] = frozenset()

    def of(self, question: str, language: str) -> Decision | None:
        """The decision on a wording, None where there is none."""
        return self.holding.get((language, question_key(question)))

    def on(self, wordings: Iterable[Wording]) -> list[Decision]:
        """What holds for one question in several wordings: the latest day's decisions, each saying else.

        None, one, or, where people decided differently on its translations, more.
        """
        found = [self.holding[w] for w in sorted(set(wordings)) if w in self.holding]
        latest = max((d.when for d in found), default=None)
        return list({d.said: d for d in found if d.when == latest}.values())

    def plan(self, step: Step) -> None:
        """Lists each line as a work item of a stage that accounts for them."""
        step.rows_in += len(self.lines)
        step.plan(line.record.key for line in self.lines)

    def settle(self, step: Step, known: Iterable[Wording]) -> None:
        """Ends each line. `known`: the wordings that the stage has rows of."""
        there = set(known)
        for line in self.lines:
            key, told = line.record.key, line.told
            if isinstance(told, Decision) and line.wording in self.contradicted:
                told = Unusable("contradiction", "decision", "another line of this day says otherwise")
            if isinstance(told, Unusable):
                place = line.record.place(told.column)
                step.reject(key, told.reason, detail=told.detail, place=place, raw=line.record.raw)
            elif told is None:
                step.accept(key, note="not decided yet")
            elif line.wording not in there:
                step.accept(key, note="decided, on no question here")
            else:
                holds = (
                    told.said == self.holding[line.wording].said if line.wording in self.holding else False
                )
                step.accept(key, note="decided" if holds else "decided anew since")


def decisions(root: Path) -> Decisions:
    """All lines of `data/review/evergreen/*.jsonl`. Raises StageError without the folder, InputError."""
    folder = root / FOLDER
    if not folder.is_dir():
        raise StageError("the folder of reviews is not there", where=FOLDER, cure=f"mkdir -p {FOLDER}")
    found = [parse(r) for path in _files(folder, root) for r in records(path, root)]
    by_wording: dict[Wording, list[Decision]] = defaultdict(list)
    for line in found:
        if line.wording is not None and isinstance(line.told, Decision):
            by_wording[line.wording].append(line.told)
    holding: dict[Wording, Decision] = {}
    contradicted = set()
    for wording, told in by_wording.items():
        latest = [d for d in told if d.when == max(d.when for d in told)]
        if len({d.said for d in latest}) > 1:
            contradicted.add(wording)
        else:
            holding[wording] = min(latest, key=lambda d: d.who)
    return Decisions(found, holding, frozenset(contradicted))


def _files(folder: Path, root: Path) -> list[Path]:
    """The files of decisions, sorted. Raises InputError for one that would be passed over in silence."""
    found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    for path in found:
        odd = suffix_of(path) in SUFFIXES and suffix_of(path) != ".jsonl"
        if path.is_dir() or odd:
            what = "is not read: decisions stand in files named .jsonl, in this folder"
            raise InputError(what, where=relative(path, root), cure="put the lines there, or take it away")
    return [path for path in found if suffix_of(path) == ".jsonl"]


def parse(record: Record) -> Line:
    """The line as read."""
    if record.fault:
        return Line(record, None, Unusable("unreadable", None, record.fault))
    words: dict[str, str] = {}
    for column in ("question", "language"):
        told = _word(record, column)
        if isinstance(told, Unusable):
            return Line(record, None, told)
        words[column] = told
    code, key = language_code(words["language"]), question_key(words["question"])
    if code is None:
        return Line(record, None, Unusable("unknown_language", "language", repr(words["language"])))
    if not key:
        return Line(record, None, Unusable("no_words", "question"))
    blank = record.values.get("decision") in (None, "")
    return Line(record, (code, key), None if blank else _decision(record))


def _decision(record: Record) -> Decision | Unusable:
    ruled = _ruled(record.values["decision"], record.values.get("change_rate"))
    if isinstance(ruled, Unusable):
        return ruled
    who, when, answer = _word(record, "who"), _word(record, "when"), record.values.get("answer")
    if isinstance(who, Unusable):
        return who
    if isinstance(when, Unusable):
        return when
    if not (answer is None or isinstance(answer, str)):
        return Unusable("wrong_type", "answer", f"{answer!r} is not a text")
    try:
        day = date.fromisoformat(when)
    except ValueError:
        return Unusable("bad_date", "when", f"{when!r}, expected YYYY-MM-DD")
    return Decision(*ruled, who, day, (answer or "").strip() or None)


def _ruled(said: object, rate: object) -> tuple[str, str] | Unusable:
    """Verdict and change rate of what stands under `decision` and, not always, `change_rate`."""
    if isinstance(said, str) and said.strip().casefold() == DROP:
        return DROP, UNKNOWN
    label = parse_label(said)
    if label is None or label.value == UNKNOWN:
        return Unusable("unknown_decision", "decision", f"{said!r}, expected {DECISIONS}")
    if rate in (None, "", UNKNOWN):
        return label.value, label.rate
    told = parse_label(rate)
    if told is None or told.rate == UNKNOWN:
        return Unusable("unknown_rate", "change_rate", f"{rate!r}, expected never, slow, fast or unknown")
    if told.value != label.value or label.rate not in (UNKNOWN, told.rate):
        return Unusable("rate_against_decision", "change_rate", f"{rate!r} of a question {said!r}")
    return label.value, told.rate


def _word(record: Record, column: str) -> str | Unusable:
    value = record.values.get(column)
    if value is None or value == "":
        return Unusable("missing_value", column)
    if not isinstance(value, str):
        return Unusable("wrong_type", column, f"{value!r} is not a text")
    return value.strip() or Unusable("missing_value", column)


def case(
    kind: str,
    *,
    question_id: str,
    question: str,
    language: str,
    label: str | None,
    change_rate: str | None,
    why: str,
    **more: Any,
) -> dict[str, Any]:
    """A case for a person. `kind`: a short stable word ("label_conflict"); `why`: a sentence for people.

    `case`, its name, depends on the wording and its language alone, as a decision does; `more` may hold
    plain values that help.
    """
    name = digest("case", language, question_key(question))
    own = {"question_id": question_id, "question": question, "language": language}
    return {"case": name, "kind": kind, **own, "label": label, "change_rate": change_rate, "why": why, **more}


def write_cases(path: Path, cases: Iterable[Mapping[str, Any]]) -> None:
    """Writes them sorted; of several of a kind on a wording that of the smallest question id.

    The ids of the others stand in its `also`. Raises EnvironmentFault.
    """
    alike: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for one in cases:
        alike[one["kind"], one["case"]].append(one)
    lines = []
    for _, told in sorted(alike.items()):
        first, *others = sorted(told, key=lambda c: (c["question_id"], json.dumps(c, default=str)))
        also = sorted({c["question_id"] for c in others} - {first["question_id"]})
        lines.append(json.dumps({**first, "also": also} if also else first, ensure_ascii=False, default=str))
    replace(path, lambda beside: beside.write_text("".join(x + "\n" for x in lines), encoding="utf-8"))
