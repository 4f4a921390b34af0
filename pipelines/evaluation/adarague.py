"""Reads the files of AdaRAGUE: six QA sets, in which answers, scores and questions lie in separate files.

Law: the files of a set are joined by key; where scored answers carry no key (SeaKR's `direct.jsonl`)
line i belongs to the i-th key of the set's ground truth, and another number of lines is refused:
nothing is joined by guess. A damaged record costs its own question alone.

Known names: ground_truth__SET_to_SET__*.json, prediction__...json, {nq,sq,tq}_ours_*direct.jsonl,
{2wiki,hotpot,music}_*results.jsonl, SET_option_with_probas.json, adaptive_rag_SET*.csv.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.data.readers import load_json, records, relative
from pipelines.errors import InputError, Place
from pipelines.evaluation.known_questions import Known, Unread, spans_of, text_of, texts_of
from pipelines.evaluation.known_scores import scores_of

NAMES = {
    "nq": "nq", "sq": "squad", "squad": "squad", "tq": "trivia", "trivia": "trivia", "triviaqa": "trivia",
    "hotpot": "hotpotqa", "hotpotqa": "hotpotqa", "music": "musique", "musique": "musique",
    "2wiki": "2wikimultihopqa", "2wikimultihopqa": "2wikimultihopqa",
}  # fmt: skip
KINDS = {
    "truth": re.compile(r"ground_truth__([a-z0-9]+)_to_\w+\.json$"),
    "prediction": re.compile(r"prediction__([a-z0-9]+)_to_\w+\.json$"),
    "scored": re.compile(r"(?:^|[/_])(nq|sq|tq)_ours_[\d_]*[/_]direct\.jsonl$"),
    "results": re.compile(r"(?:^|[/_])(2wiki|hotpot|music)_[\d_]*[/_]results\.jsonl$"),
    "options": re.compile(r"(?:^|/)([a-z0-9]+)_option_with_probas\.json$"),
    "table": re.compile(r"adaptive_rag_([a-z0-9]+)(?:/|_)(?:train|test)\w*\.csv$"),
}


@dataclass
class _Set:
    """What the files say of one set, by key, before it is judged."""

    name: str
    fields: dict[str, dict[str, Any]] = field(default_factory=dict)  # key -> fields of Known
    places: dict[str, Place] = field(default_factory=dict)
    faults: dict[str, Unread] = field(default_factory=dict)
    truth: list[str] = field(default_factory=list)  # keys of the ground truth, in its order

    def say(self, key: str, place: Place, scores: Mapping[str, float] | None = None, **fields: Any) -> None:
        self.places.setdefault(key, place)
        known = self.fields.setdefault(key, {})
        known.update({k: v for k, v in fields.items() if v is not None})
        if scores:
            known["scores"] = {**known.get("scores", {}), **scores}

    def refuse(self, key: str, place: Place, why: Exception | str, raw: Any = "") -> None:
        item = f"{self.name}/{key}"
        self.places.setdefault(key, place)
        self.faults.setdefault(key, Unread(item, "bad_record", str(why), place, str(raw)[:2000]))

    def ends(self) -> Iterator[Known | Unread]:
        for key in self.places:
            if key in self.faults:
                yield self.faults[key]
            else:
                yield Known(self.name, key, self.places[key], **self.fields.get(key, {}))


def kind_of(path: Path, base: Path) -> tuple[str, str] | None:
    """Which kind of AdaRAGUE file this is, and of which set; None for any other file."""
    name = relative(path, base)
    for kind, pattern in KINDS.items():
        found = pattern.search(name)
        if found and found[1] in NAMES:
            return kind, NAMES[found[1]]
    return None


def read_sets(paths: Mapping[Path, tuple[str, str]], base: Path) -> Iterator[Known | Unread]:
    """All questions of all sets, each once. Raises InputError for a file that is not what its name says."""
    readers: dict[str, Callable[[_Set, Path, Path], None]] = {
        "truth": _truth, "prediction": _prediction, "scored": _scored,
        "results": _results, "options": _options, "table": _table,
    }  # fmt: skip
    sets: dict[str, _Set] = {}
    order = list(readers)
    for path in sorted(paths, key=lambda p: (order.index(paths[p][0]), p)):
        kind, name = paths[path]
        readers[kind](sets.setdefault(name, _Set(name)), path, base)
    for one in sets.values():
        yield from one.ends()


def _by_key(path: Path, base: Path) -> dict[str, Any]:
    value = load_json(path, base)
    if not isinstance(value, dict) or not value:
        raise InputError("must be one object, key to value", where=relative(path, base))
    return value


def _keyed(one: _Set, path: Path, base: Path, read: Callable[[Any], dict[str, Any]]) -> None:
    for n, (key, value) in enumerate(_by_key(path, base).items(), 1):
        place = Place(relative(path, base), n, key)
        try:
            one.say(key, place, **read(value))
        except (ValueError, TypeError, KeyError) as e:
            one.refuse(key, place, e, value)


def _truth(one: _Set, path: Path, base: Path) -> None:
    def read(value: Any) -> dict[str, Any]:
        golds = texts_of(value)
        if not golds:
            raise ValueError("no gold answer")
        return {"golds": golds, "split": "test"}

    _keyed(one, path, base, read)
    one.truth = list(_by_key(path, base))


def _prediction(one: _Set, path: Path, base: Path) -> None:
    _keyed(one, path, base, lambda value: {"answer": text_of(value) or ""})


def _options(one: _Set, path: Path, base: Path) -> None:
    """P(A), P(B), P(C): no retrieval, one step, several; the doubt is what is not A."""

    def read(value: Any) -> dict[str, Any]:
        shares = [float(p) for p in str(value["probas"]).split(",")]
        if len(shares) != 3 or not all(0.0 <= p <= 1.0 for p in shares):
            raise ValueError(f"no three probabilities: {value['probas']!r}")
        return {"scores": {"retrieval_need": 1.0 - shares[0]}}

    _keyed(one, path, base, read)


def _scored(one: _Set, path: Path, base: Path) -> None:
    """Answers with scores, without keys: by the order of the ground truth, which was read before."""
    found, keys = list(records(path, base)), one.truth
    if len(found) != len(keys):
        what = f"{len(found)} answers for {len(keys)} keys of the ground truth: they cannot be joined"
        raise InputError(what, where=relative(path, base), cure="give both files whole")
    for key, record in zip(keys, found, strict=True):
        try:
            if record.fault:
                raise ValueError(record.fault)
            scores = scores_of(record.values)
            one.say(key, record.place(), answer=text_of(record.values.get("answer")) or "", scores=scores)
        except ValueError as e:
            one.refuse(key, record.place(), e, record.raw)


def _results(one: _Set, path: Path, base: Path) -> None:
    for record in records(path, base):
        key = record.values.get("qid")
        if record.fault or not isinstance(key, str):
            one.refuse(record.key, record.place("qid"), record.fault or "no qid", record.raw)
            continue
        try:
            one.say(key, record.place(), question=text_of(record.values.get("question")))
        except ValueError as e:
            one.refuse(key, record.place("question"), e, record.raw)


def _table(one: _Set, path: Path, base: Path) -> None:
    """The large tables: question, gold answers (two printed columns) and the answer without retrieval."""
    split = "train" if "train" in path.name else "test"
    for record in records(path, base):
        key = record.values.get("qid")
        if record.fault or not key:
            one.refuse(record.key, record.place("qid"), record.fault or "no qid", record.raw)
            continue
        try:
            told = record.values
            golds = texts_of(told.get("reference")) or spans_of(told.get("answer_objects") or "[]")
            said: dict[str, Any] = {"question": text_of(told.get("question_text")), "split": split}
            known = one.fields.get(key, {})
            said["golds"] = known.get("golds") or golds or None
            said["answer"] = known.get("answer", text_of(told.get("no_retrieve")))
            one.say(key, record.place(), **said)
        except ValueError as e:
            one.refuse(key, record.place(), e, record.raw)
