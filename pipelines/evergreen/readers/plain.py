"""Plain files: a question a record, with any of the schema's columns, under their names or mapped ones.

Law: what a column says is taken as it stands; a record whose columns contradict
each other is refused.

The question is a text with its `language` (English where none is told), or an
object {"en": ..., "fr": ...}; `answer` and `aliases` likewise a value, or an
object by language. The label is `is_evergreen` or `label`, and `change_rate`
sharpens it or stands for it. A set without either has no labels: it is pooled, to be
classified and filtered. `split` and `source` are told, else by the file's name
(test, dev, train; a name with "synth"); where nothing tells the split, a labelled question
is drawn by a hash of its wordings: a quarter test, a tenth dev, the rest train.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.data.rows import ID_HEX, digest
from pipelines.evergreen.readers import values as v
from pipelines.evergreen.readers.alias_cells import alias_list
from pipelines.evergreen.readers.roles import (
    Reading,
    mapping_for,
    require_no_misspelt_label,
    roles_of,
)
from pipelines.evergreen.readers.seam import Fault, Reader, Said, Sheet
from pipelines.evergreen.schema import DEV, NO_ORIGIN, POOL, TEST, TRAIN, UNKNOWN, Label, parse_label

KIND = "long"
SPLIT_WORDS = {TRAIN: TRAIN, DEV: DEV, TEST: TEST, "validation": DEV, "valid": DEV, "val": DEV, POOL: POOL}
TEST_SHARE, DEV_SHARE = 0.25, 0.1  # of questions whose split nothing tells
ORIGINS = ("gold", "human", "agreement", "model")


@dataclass(frozen=True)
class Frame:
    """What the columns of a plain or wide file mean, and what its name tells."""

    stem: str
    roles: Mapping[str, str]  # role -> column
    words: Mapping[str, Label]  # label words of the file's own
    labelled: bool  # whether a record without a label is at fault

    def get(self, values: Mapping[str, Any], role: str) -> Any:
        """What a record has in the column of a role; None where there is none."""
        return values.get(self.roles[role]) if role in self.roles else None

    def said(self, values: Mapping[str, Any], texts: Texts | Fault) -> Said | Fault:
        """What a record says, given its wordings, answers and aliases."""
        label = self._label(values)
        if isinstance(label, Fault):
            return label
        if isinstance(texts, Fault):
            return texts
        known = label.value != UNKNOWN
        split = v.word(self.get(values, "split"), split_of(self.stem) or drawn(texts.wordings))
        if split not in SPLIT_WORDS:
            detail = f"{split!r}, known: train, dev, test"
            return Fault("unknown_split", self.roles.get("split"), detail)
        origin = v.word(self.get(values, "label_origin"), "gold") if known else NO_ORIGIN
        if known and origin not in ORIGINS:
            detail = f"{origin!r}, known: {', '.join(ORIGINS)}"
            return Fault("unknown_origin", self.roles.get("label_origin"), detail)
        as_of = v.day(self.get(values, "as_of"), self.roles.get("as_of", "as_of"))
        if isinstance(as_of, Fault):
            return as_of
        usual = ("synth" if "synth" in self.stem else "real") if self.labelled else self.stem
        source = v.word(self.get(values, "source"), usual)
        told = SPLIT_WORDS[split] if known else POOL
        return Said(texts.wordings, texts.answers, texts.aliases, label, told, source, origin, as_of)

    def _label(self, values: Mapping[str, Any]) -> Label | Fault:
        """The label, sharpened by the change rate where both are given and agree."""
        told: list[Label] = []
        for role in ("label", "change_rate"):
            value = self.get(values, role)
            if v.missing(value):
                continue
            label = self.words.get(v.word(value, "")) or parse_label(value)
            if label is None:
                return Fault("unknown_label", self.roles[role], v.shown(value))
            told.append(label)
        known = [label for label in told if label.value != UNKNOWN]
        if not known:
            asked = self.roles.get("label", self.roles.get("change_rate"))
            said_so = any(label.value == UNKNOWN for label in told)
            return v.NO_LABEL if said_so or not self.labelled else Fault("missing_label", asked)
        rates = [label.rate for label in known if label.rate != UNKNOWN]
        if len({label.value for label in known}) > 1 or len(set(rates)) > 1:
            first = known[0].value if known[0].value != known[-1].value else known[0].rate
            detail = f"{first} but {known[-1].rate}"
            return Fault("label_and_rate_disagree", self.roles["change_rate"], detail)
        return Label(known[0].value, rates[0] if rates else UNKNOWN)


@dataclass(frozen=True)
class Texts:
    """What a record says in words, by language."""

    wordings: Mapping[str, Any]
    answers: Mapping[str, str]
    aliases: Mapping[str, list[str]]


def frame_of(sheet: Sheet, reading: Reading) -> Frame:
    """The roles of a file's columns. Raises InputError, ConfigError."""
    roles = roles_of(sheet, mapping_for(sheet, reading.columns))
    require_no_misspelt_label(sheet, roles)
    labelled = any(roles.get(role) in sheet.usual for role in ("label", "change_rate"))
    return Frame(sheet.stem, roles, reading.words(), labelled)


def fit(sheet: Sheet, reading: Reading) -> Reader | None:
    """A reader for a file with a column of questions, else None."""
    frame = frame_of(sheet, reading)
    if "question" not in frame.roles:
        return None

    def tell(values: Mapping[str, Any]) -> Said | Fault:
        return frame.said(values, _texts(frame, values))

    ignored = v.ignored(sheet.columns, [*frame.roles.values()])
    question, index = frame.roles["question"], frame.roles.get("index")
    return Reader(KIND, question, tell, ignored, joins=sheet.stem, index=index, by_language=True)


def _texts(frame: Frame, values: Mapping[str, Any]) -> Texts | Fault:
    question, column = frame.get(values, "question"), frame.roles["question"]
    if isinstance(question, Mapping):
        wordings = {str(k): told for k, told in question.items()}
        where = column
    else:
        wordings = {v.word(frame.get(values, "language"), "en"): question}
        where = frame.roles.get("language", column)
    if not wordings:
        return Fault("empty_question", column)
    codes = [v.language(k) for k in wordings]
    unknown = next((k for k, code in zip(wordings, codes, strict=True) if code is None), None)
    if unknown is not None:
        return Fault("unknown_language", where, repr(unknown))
    if len(set(codes)) < len(codes):
        return Fault("language_twice", where, ", ".join(wordings))
    return _with_answers(frame, values, wordings)


def _with_answers(frame: Frame, values: Mapping[str, Any], wordings: Mapping[str, Any]) -> Texts | Fault:
    aliases: dict[str, list[str]] = {}
    for key, cell in _by_key(frame.get(values, "aliases"), wordings).items():
        listed = alias_list(cell)
        if listed is None:
            return Fault("unreadable_aliases", frame.roles["aliases"], v.shown(cell))
        aliases[key] = listed
    answers: dict[str, str] = {}
    for key, cell in _by_key(frame.get(values, "answer"), wordings).items():
        told = v.answers(cell, frame.roles["answer"])
        if isinstance(told, Fault):
            return told
        if told:
            answers[key] = told[0]
        if len(told) > 1:
            aliases[key] = list(dict.fromkeys([a.strip() for a in told] + aliases.get(key, [])))
    return Texts(wordings, answers, aliases)


def _by_key(value: Any, wordings: Mapping[str, Any]) -> dict[str, Any]:
    """A value for each wording: of an object what stands under its language, else for the only wording."""
    if isinstance(value, Mapping):
        told = {v.language(str(k)): one for k, one in value.items()}
        return {k: told[code] for k in wordings if (code := v.language(k)) in told}
    return {} if len(wordings) != 1 or v.missing(value) else {next(iter(wordings)): value}


def split_of(stem: str) -> str:
    """What the file's name tells; train for a synthetic set, empty where it tells nothing."""
    words = re.split(r"[^a-z]+", stem)
    told = next((SPLIT_WORDS[w] for w in words if w in SPLIT_WORDS), "")
    return told or (TRAIN if "synth" in stem else "")


def drawn(wordings: Mapping[str, Any]) -> str:
    """A split by a hash of the wordings: the same whatever the file, the line or other rows."""
    told = sorted(w if isinstance(w, str) else v.shown(w) for w in wordings.values())
    share = int(digest("split", *told), 16) / 16**ID_HEX
    return TEST if share < TEST_SHARE else DEV if share < TEST_SHARE + DEV_SHARE else TRAIN
