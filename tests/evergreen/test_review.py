"""Decisions of people: by wording and language, the latest holds, a bad line is refused with its place."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.data.readers import Record
from pipelines.errors import InputError, StageError
from pipelines.evergreen.reviewing.review import (
    FOLDER,
    Decision,
    Decisions,
    Unusable,
    case,
    decisions,
    parse,
    write_cases,
)
from pipelines.step import Step

SAID = {"question": "How old is she?", "language": "en", "who": "Ann", "when": "2026-11-30"}
Lay = Callable[..., Decisions]


@pytest.fixture
def lay(tmp_path: Path) -> Lay:
    """Writes lines to the folder of reviews and reads them back."""

    def act(*lines: dict[str, Any] | str) -> Decisions:
        folder = tmp_path / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        text = "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines)
        (folder / "cases.jsonl").write_text(text, encoding="utf-8")
        return decisions(tmp_path)

    return act


def test_a_decision_is_found_by_any_manner_of_writing_in_its_language_alone(lay: Lay) -> None:
    found = lay({**SAID, "decision": "mutable", "change_rate": "fast", "answer": " 7 "})
    assert found.of("HOW old is she", "en") == Decision("mutable", "fast", "Ann", date(2026, 11, 30), "7")
    assert found.of("How old is she?", "fr") is None


@pytest.mark.parametrize(
    ("decision", "rate", "verdict"),
    [
        ("evergreen", None, ("evergreen", "never")),
        ("Evergreen", "never", ("evergreen", "never")),
        ("mutable", None, ("mutable", "unknown")),
        ("mutable", "slow-changing", ("mutable", "slow")),
        ("fast", None, ("mutable", "fast")),
        ("1", "", ("evergreen", "never")),
        (0, "unknown", ("mutable", "unknown")),
        ("drop", "never", ("drop", "unknown")),
    ],
)
def test_verdicts_are_read_in_all_spellings_of_labels(
    lay: Lay, decision: object, rate: str | None, verdict: tuple[str, str]
) -> None:
    told = lay({**SAID, "decision": decision, "change_rate": rate}).of("how old is she", "en")
    assert told is not None and (told.verdict, told.change_rate) == verdict


@pytest.mark.parametrize(
    ("change", "reason", "column"),
    [
        ({"decision": "maybe"}, "unknown_decision", "decision"),
        ({"decision": ["mutable"]}, "unknown_decision", "decision"),
        ({"decision": "mutable", "change_rate": "never"}, "rate_against_decision", "change_rate"),
        ({"decision": "slow", "change_rate": "fast"}, "rate_against_decision", "change_rate"),
        ({"decision": "evergreen", "change_rate": "slow"}, "rate_against_decision", "change_rate"),
        ({"decision": "mutable", "change_rate": "often"}, "unknown_rate", "change_rate"),
        ({"decision": "mutable", "who": ""}, "missing_value", "who"),
        ({"decision": "mutable", "who": " "}, "missing_value", "who"),
        ({"decision": "mutable", "when": None}, "missing_value", "when"),
        ({"decision": "mutable", "when": "30.11.2026"}, "bad_date", "when"),
        ({"decision": "mutable", "answer": 7}, "wrong_type", "answer"),
        ({"decision": "mutable", "language": "xx"}, "unknown_language", "language"),
        ({"decision": "mutable", "question": "???"}, "no_words", "question"),
        ({"decision": "mutable", "question": 3}, "wrong_type", "question"),
    ],
)
def test_a_bad_line_is_refused_with_its_column(
    lay: Lay, change: dict[str, object], reason: str, column: str
) -> None:
    found = lay({**SAID, "decision": "drop"}, {**SAID, **change})
    told = found.lines[1].told
    assert isinstance(told, Unusable) and (told.reason, told.column) == (reason, column)
    assert found.of(SAID["question"], "en") is not None  # the good line before it holds


def test_of_two_decisions_the_later_holds(lay: Lay) -> None:
    found = lay({**SAID, "decision": "drop"}, {**SAID, "decision": "slow", "when": "2026-12-01", "who": "Bo"})
    told = found.of("How old is she?", "en")
    assert told == Decision("mutable", "slow", "Bo", date(2026, 12, 1))


def test_two_that_differ_on_one_day_hold_neither_and_two_that_agree_hold(lay: Lay) -> None:
    assert lay({**SAID, "decision": "drop"}, {**SAID, "decision": "slow"}).of("how old is she", "en") is None
    agreed = lay({**SAID, "decision": "drop"}, {**SAID, "decision": "drop", "who": "Al"})
    told = agreed.of("how old is she", "en")
    assert told is not None and told.who == "Al"


def test_translations_decided_differently_on_one_day_are_both_told(lay: Lay) -> None:
    french = {**SAID, "question": "Quel âge a-t-elle ?", "language": "fr"}
    wordings = [("en", "howoldisshe"), ("fr", "quelâgeatelle")]
    found = lay({**SAID, "decision": "mutable"}, {**french, "decision": "drop"})
    assert [d.verdict for d in found.on(wordings)] == ["mutable", "drop"]
    later = lay({**SAID, "decision": "mutable"}, {**french, "decision": "drop", "when": "2026-12-01"})
    assert [d.verdict for d in later.on(wordings)] == ["drop"]
    assert later.on([]) == []


def test_every_line_ends_once_in_the_ledger_with_its_place(lay: Lay, tmp_path: Path) -> None:
    other = {**SAID, "question": "Where?"}
    found = lay(
        {**SAID, "decision": "drop", "when": "2026-01-01"},
        {**SAID, "decision": "slow"},
        {**other, "decision": "drop"},
        {**other, "decision": "drop", "question": "Why?"},
        {**other, "decision": "slow", "question": "Why?"},
        {**other, "decision": None},
        '{"question": ',
    )
    step = Step("evergreen.curate", None, tmp_path, 7)
    found.plan(step)
    found.settle(step, [("en", "howoldisshe"), ("en", "why")])
    step.ledger.check()
    assert step.rows_in == 7
    assert step.ledger.summary()["notes"] == {
        "decided": 1,
        "decided anew since": 1,
        "decided, on no question here": 1,
        "not decided yet": 1,
    }
    assert [(s.reason, str(s.place)) for s in step.ledger.rejected] == [
        ("contradiction", "data/review/evergreen/cases.jsonl:4 (column 'decision')"),
        ("contradiction", "data/review/evergreen/cases.jsonl:5 (column 'decision')"),
        ("unreadable", "data/review/evergreen/cases.jsonl:7"),
    ]


def test_a_workspace_without_the_folder_is_told_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="mkdir -p data/review/evergreen"):
        decisions(tmp_path)


VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers(), max_size=1)
)
FIELDS = ("question", "language", "decision", "change_rate", "who", "when", "answer")


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, VALUES)))
def test_any_line_is_a_decision_open_or_refused_with_a_reason(values: dict[str, Any]) -> None:
    told = parse(Record("f.jsonl", 1, {**SAID, "decision": "drop", **values})).told
    assert told is None or isinstance(told, Decision) or told.reason


def test_cases_are_written_sorted_and_once_a_wording(tmp_path: Path) -> None:
    about = {"language": "en", "label": "mutable", "change_rate": "slow", "why": "the model disagrees"}
    cases = [
        case("b", question_id="3", question="Where?", **about),
        case("a", question_id="2", question="Why?", **about),
        case("a", question_id="1", question="why", **about, score=0.5),
    ]
    for n, order in enumerate((cases, cases[::-1])):
        write_cases(tmp_path / f"{n}.jsonl", order)
    text = (tmp_path / "0.jsonl").read_text(encoding="utf-8")
    assert text == (tmp_path / "1.jsonl").read_text(encoding="utf-8")
    first, second = map(json.loads, text.splitlines())
    assert (first["kind"], first["question_id"], first["also"], first["score"]) == ("a", "1", ["2"], 0.5)
    assert (second["kind"], second["question_id"], "also" in second) == ("b", "3", False)


@pytest.mark.parametrize("name", ["a.json", "a.csv", "a.csv.gz", "more/a.jsonl", "a.parquet"])
def test_a_file_in_which_a_persons_word_would_be_passed_over_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / FOLDER / name
    path.parent.mkdir(parents=True)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=rf"{FOLDER}/{name.split('/', maxsplit=1)[0]}: is not read"):
        decisions(tmp_path)


@pytest.mark.parametrize("name", ["A.JSONL", "a.jsonl.gz"])
def test_decisions_are_read_however_the_suffix_is_written_and_packed(tmp_path: Path, name: str) -> None:
    line = b'{"question": "A?", "language": "en", "decision": "drop", "who": "Ann", "when": "2026-01-01"}\n'
    folder = tmp_path / FOLDER
    folder.mkdir(parents=True)
    (folder / name).write_bytes(gzip.compress(line) if name.endswith(".gz") else line)
    for beside in ("README.md", ".gitkeep", ".a.csv"):
        (folder / beside).write_text("what lies here")
    told = decisions(tmp_path).of("A?", "en")
    assert told is not None
    assert (told.verdict, told.who) == ("drop", "Ann")


def test_unknown_is_no_decision() -> None:
    values = {"question": "A?", "language": "en", "decision": "unknown", "who": "Ann", "when": "2026-01-01"}
    told = parse(Record("r.jsonl", 1, values)).told
    assert isinstance(told, Unusable)
    assert (told.reason, told.column) == ("unknown_decision", "decision")
