"""The fold of dated answers: intervals without overlap and gap, whatever the order of what was seen."""

from __future__ import annotations

from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from evergreen_rows import EVERY, FILTER, filtered, history
from hypothesis import given
from hypothesis import strategies as st

from pipelines.data.tables import write_parquet
from pipelines.errors import StageError
from pipelines.evergreen import refresh, review
from pipelines.evergreen.history import Held, Seen, answer_key, contradicting, fold
from pipelines.evergreen.observations import FOLDER, Observation, write
from pipelines.step import Step

D = [date(2025, 1, 1) + timedelta(days=n) for n in range(60)]
DAYS = st.one_of(st.none(), st.sampled_from(D))
# One answer a day, as `contradicting` leaves it.
POINTS = st.dictionaries(DAYS, st.sampled_from("abc"), max_size=12).map(
    lambda told: [Seen(answer, day) for day, answer in told.items()]
)


@given(POINTS)
def test_intervals_follow_one_another_and_only_the_last_is_open(points: list[Seen]) -> None:
    held = fold(points)
    assert all(a.valid_to == b.valid_from is not None for a, b in pairwise(held))
    assert all(h.valid_from is None or h.valid_to is None or h.valid_from < h.valid_to for h in held)
    assert all(h.valid_from is not None for h in held[1:])
    assert [h.valid_to for h in held[-1:]] == ([None] if points else [])
    assert all(a.answer != b.answer for a, b in pairwise(held))
    assert sum(h.days for h in held) == len(points)


@given(POINTS, st.randoms())
def test_order_and_repetition_change_nothing(points: list[Seen], random: Any) -> None:
    turned = [*points, *points[:5]]
    random.shuffle(turned)
    assert fold(turned) == fold(points)


@given(POINTS)
def test_each_point_lies_in_the_interval_of_its_answer(points: list[Seen]) -> None:
    held = fold(points)
    for point in points:
        if point.day is None:
            assert held[0].valid_from is None
            continue
        inside = [
            h
            for h in held
            if (h.valid_from is None or h.valid_from <= point.day)
            and (h.valid_to is None or point.day < h.valid_to)
        ]
        assert [h.answer for h in inside] == [point.answer]


@given(POINTS)
def test_folding_the_history_again_gives_the_same_history(points: list[Seen]) -> None:
    held = fold(points)
    again = fold([Seen(h.answer or "", h.valid_from) for h in held])
    assert [(h.answer, h.valid_from, h.valid_to) for h in again] == [
        (h.answer, h.valid_from, h.valid_to) for h in held
    ]


def test_an_answer_that_comes_back_is_a_new_interval() -> None:
    assert fold([Seen("a", D[0]), Seen("b", D[3]), Seen("a.", D[7]), Seen("A", D[9])]) == [
        Held("a", D[0], D[3], D[0], 1, None),
        Held("b", D[3], D[7], D[3], 1, None),
        Held("a.", D[7], None, D[9], 2, None),
    ]


def test_an_undated_answer_holds_until_another_is_seen() -> None:
    assert fold([Seen("b", D[4]), Seen("a", None), Seen("a", D[2])]) == [
        Held("a", None, D[4], D[2], 2, None),
        Held("b", D[4], None, D[4], 1, None),
    ]


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("Paris", " paris. ", True),
        ("４１", "41", True),
        ("C", "C++", False),
        ("5", "-5", False),
        ("4.20", "4.60", False),
        ("...", "", False),
    ],
)
def test_answers_are_compared_by_what_they_say(a: str, b: str, same: bool) -> None:
    assert (answer_key(a) == answer_key(b)) is same


def test_two_answers_on_a_day_are_found_and_never_folded() -> None:
    points = [Seen("a", D[0]), Seen("b", D[0]), Seen("a", D[1]), Seen("A.", D[1])]
    assert contradicting(points) == {D[0]}
    with pytest.raises(StageError, match="two answers on 2025-01-01"):
        fold(points)


def test_an_evergreen_question_that_changed_is_up_for_review_in_all_its_rows() -> None:
    row = filtered("How many moons?", label="evergreen", answer="95")
    held = fold([Seen("95", None), Seen("97", D[3])])
    assert [(r["answer"], r["review"], r["refresh_after"]) for r in history(row, *held)] == [
        ("95", True, None),
        ("97", True, None),
    ]


def test_only_the_answer_that_holds_falls_due() -> None:
    held = fold([Seen("a", D[0]), Seen("b", D[3])])
    fast = history(filtered("Who leads?", change_rate="unknown"), *held)
    slow = history(filtered("Who is mayor?", change_rate="slow"), *held)
    assert [r["refresh_after"] for r in fast] == [None, D[3] + timedelta(days=30)]
    assert [r["refresh_after"] for r in slow] == [None, D[3] + timedelta(days=365)]
    assert not any(r["review"] for r in fast)


def test_aliases_stay_with_the_answer_that_they_are_of() -> None:
    row = filtered("Who leads?", answer="Ann", aliases=["Annie"])
    held = fold([Seen("Ann", None), Seen("Bo", D[1])])
    assert [r["aliases"] for r in history(row, *held)] == [["Annie"], []]


def run_refresh(root: Path) -> Step:
    step = Step("evergreen.refresh", None, root, 7)
    refresh.run(step, refresh.Params())
    step.finish(refresh.SCHEMA, refresh.GATE)
    return step


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    rows = [
        filtered("Who leads?"),
        filtered("Who is mayor?", change_rate="slow", answer="Ann", as_of=D[0]),
        filtered("What is two and two?", label="evergreen", answer="4"),
    ]
    write_parquet(FILTER.frame(rows), tmp_path / "data/evergreen/filter/rows.parquet")
    for folder in (FOLDER, review.FOLDER):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / ".gitkeep").touch()
    return tmp_path


def test_without_observations_each_question_has_one_row(questions: Path) -> None:
    step = run_refresh(questions)
    rows = pl.read_parquet(step.folder / "rows.parquet").sort("question")
    assert rows.select("question", "answer", "valid_from", "valid_to", "seen").rows() == [
        ("What is two and two?", "4", None, None, 1),
        ("Who is mayor?", "Ann", D[0], None, 1),
        ("Who leads?", None, None, None, 0),
    ]
    assert step.ledger.notes == {"no answer yet": 1}


def test_every_line_of_the_observations_ends_once_with_its_place(questions: Path) -> None:
    good = '{"question_id": "wholeads", "language": "en", "answer": "Bo", "as_of": "2025-01-05"}'
    (questions / FOLDER / "2025-01-05-a.jsonl").write_text(
        f"{good}\n"
        "{torn\n"
        '{"question_id": "wholeads", "language": "en", "answer": "Cy", "as_of": "5.1.2025"}\n'
        '{"question_id": "wholeads", "language": "en", "answer": "", "as_of": "2025-01-05"}\n'
        '{"question_id": "wholeads", "language": "fr", "answer": "Cy", "as_of": "2025-01-05"}\n'
        '{"question_id": "whoismayor", "language": "en", "answer": "Di", "as_of": "2025-01-01"}\n'
    )
    (questions / FOLDER / "2025-01-05-b.jsonl").write_text(f"{good}\n")
    step = run_refresh(questions)
    out = pl.read_parquet(step.folder / "rejected.parquet").sort("line")
    assert out.select("line", "column", "reason").rows() == [
        (2, None, "unreadable"),
        (3, "as_of", "bad_date"),
        (4, "answer", "missing_value"),
        (5, "question_id", "unknown_question"),
        (6, "answer", "contradiction"),
    ]
    assert step.ledger.notes == {"observed": 1, "observed again": 1}
    assert step.rows_in == 3 + 7 == len(step.ledger.planned)
    rows = pl.read_parquet(step.folder / "rows.parquet").filter(question="Who leads?")
    assert rows.select("answer", "valid_from", "evidence").rows() == [("Bo", D[4], "2025-01-05-a.jsonl:1")]


def test_observations_in_another_order_or_twice_give_the_same_bytes(questions: Path) -> None:
    told = [Observation("wholeads", "en", a, D[n]) for n, a in ((1, "Bo"), (9, "Cy"), (20, "Bo"))]
    for o in told:
        write(questions, o.as_of, [o])
    once = (run_refresh(questions).folder / "rows.parquet").read_bytes()
    again = (run_refresh(questions).folder / "rows.parquet").read_bytes()
    assert again == once
    for path in (questions / FOLDER).glob("*.jsonl"):
        path.unlink()
    for o in reversed(told):
        write(questions, o.as_of, [o])
        write(questions, o.as_of, [o])
    assert (run_refresh(questions).folder / "rows.parquet").read_bytes() == once


def test_an_interval_is_as_long_as_the_parameters_say() -> None:
    assert (EVERY.fast, EVERY.slow, EVERY.audit_share) == (30, 365, 0.01)
