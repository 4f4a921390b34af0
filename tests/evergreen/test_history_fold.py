"""The fold of dated answers: intervals without overlap and gap, whatever the order of what was seen."""

from __future__ import annotations

import json
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from evergreen_rows import EVERY, FILTER, filtered, history
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.data.tables import write_parquet
from pipelines.errors import StageError
from pipelines.evergreen import refresh
from pipelines.evergreen.refreshing.history import Held, Seen, answer_key, contradicting, fold
from pipelines.evergreen.refreshing.observations import FOLDER, Observation, write
from pipelines.evergreen.reviewing import review
from pipelines.gates.evergreen import measures
from pipelines.step import Step

D = [date(2025, 1, 1) + timedelta(days=n) for n in range(60)]
ENDS = [date.min, date(2024, 2, 29), date.max]  # of the calendar, and a day that most years lack
DAYS = st.one_of(st.none(), st.sampled_from([*D, *ENDS]))
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


@given(POINTS, st.sampled_from(["fast", "slow", "unknown"]))
def test_only_the_open_interval_of_a_dated_answer_falls_due_and_not_before_it_was_seen(
    points: list[Seen], rate: str
) -> None:
    rows = history(filtered("Who leads?", change_rate=rate), *fold(points))
    assert all(r["refresh_after"] is None for r in rows[:-1])
    for r in rows[-1:]:
        assert (r["refresh_after"] is None) is (r["as_of"] is None)
        assert r["as_of"] is None or r["as_of"] <= r["refresh_after"]


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


def decide(root: Path, **told: str) -> None:
    """A person's line in the folder of reviews."""
    line = {"language": "en", "who": "Ann", **told}
    with (root / review.FOLDER / "ann.jsonl").open("a") as f:
        f.write(json.dumps(line) + "\n")


def note(root: Path, question_id: str, **answers: str | None) -> None:
    """Observations of a question: d3="4" is the answer of D[3]; None, that nothing was told."""
    for name, answer in answers.items():
        day = D[int(name[1:])]
        why = "" if answer else "no_answer"
        write(root, day, [Observation(question_id, "en", answer, day, "a test", why=why)])


def history_of(step: Step, question: str) -> list[tuple[Any, ...]]:
    rows = pl.read_parquet(step.folder / "rows.parquet").filter(question=question).sort("version")
    return list(rows.select("answer", "valid_from", "can_change", "review", "cleared").rows())


FIXED = "What is two and two?"


def test_an_evergreen_question_that_changed_is_a_case_for_a_person(questions: Path) -> None:
    note(questions, "whatistwoandtwo", d3="4", d9="5")
    note(questions, "whoismayor", d9="Bo")
    step = run_refresh(questions)
    [case] = [json.loads(line) for line in (step.folder / "review.jsonl").read_text().splitlines()]
    assert (case["kind"], case["question"], case["label"]) == ("evergreen_changed", FIXED, "evergreen")
    assert case["why"] == f"called evergreen, and answered '4', then '5' on {D[9]}"
    assert [a["answer"] for a in case["answers"]] == ["4", "5"]
    assert step.ledger.notes["changed, to review"] == 1
    assert history_of(step, FIXED) == [("4", None, False, True, None), ("5", D[9], False, True, None)]


@pytest.mark.parametrize(
    ("told", "can_change", "in_review", "cleared"),
    [
        ({"decision": "mutable", "when": "2025-01-20"}, True, False, None),
        ({"decision": "slow-changing", "when": "2025-01-02"}, True, False, None),
        ({"decision": "evergreen", "when": "2025-01-20"}, False, False, D[19]),
        ({"decision": "evergreen", "when": "2025-01-10"}, False, False, D[9]),
        ({"decision": "evergreen", "when": "2025-01-09"}, False, True, None),  # it changed since
    ],
)
def test_what_a_person_decides_outranks_label_and_part(
    questions: Path, told: dict[str, str], can_change: bool, in_review: bool, cleared: date | None
) -> None:
    note(questions, "whatistwoandtwo", d9="5")
    decide(questions, question=FIXED, **told)
    step = run_refresh(questions)
    assert {h[2:] for h in history_of(step, FIXED)} == {(can_change, in_review, cleared)}
    assert len((step.folder / "review.jsonl").read_text().splitlines()) == in_review


def test_the_answer_of_a_person_holds_from_its_day_and_outranks_what_was_observed_on_it(
    questions: Path,
) -> None:
    note(questions, "whatistwoandtwo", d9="5", d12="six")
    decide(questions, question=FIXED, decision="evergreen", when="2025-01-13", answer="four")
    step = run_refresh(questions)
    assert [h[:2] for h in history_of(step, FIXED)] == [("4", None), ("5", D[9]), ("four", D[12])]
    assert {h[4] for h in history_of(step, FIXED)} == {D[12]}
    assert step.ledger.notes["overruled by a person"] == 1
    rows = pl.read_parquet(step.folder / "rows.parquet").filter(question=FIXED, answer="four")
    assert rows["evidence"].to_list() == ["data/review/evergreen: Ann"]


def test_a_decision_on_one_wording_holds_for_the_others_but_its_answer_does_not(tmp_path: Path) -> None:
    rows = [
        filtered(q, language=c, question_id="moons", label="evergreen", answer=a)
        for q, c, a in (("How many moons?", "en", "95"), ("Combien de lunes ?", "fr", "95"))
    ]
    rows.append(filtered("Who leads?"))
    write_parquet(FILTER.frame(rows), tmp_path / "data/evergreen/filter/rows.parquet")
    for folder in (FOLDER, review.FOLDER):
        (tmp_path / folder).mkdir(parents=True)
    decide(tmp_path, question="how many MOONS", decision="mutable", when="2025-01-13", answer="97")
    step = run_refresh(tmp_path)
    assert [h[:3] for h in history_of(step, "Combien de lunes ?")] == [("95", None, True)]
    assert [h[:3] for h in history_of(step, "How many moons?")] == [("95", None, True), ("97", D[12], True)]


def test_an_alias_of_the_known_answer_is_no_change(questions: Path) -> None:
    row = filtered("Who is king?", answer="Charles III", aliases=["King Charles", "Charles the Third"])
    fixed = filtered(FIXED, label="evergreen")
    write_parquet(FILTER.frame([row, fixed]), questions / "data/evergreen/filter/rows.parquet")
    note(questions, "whoisking", d1="king charles.", d4="CHARLES III", d9="William V")
    step = run_refresh(questions)
    assert [h[:2] for h in history_of(step, "Who is king?")] == [("Charles III", None), ("William V", D[9])]
    rows = pl.read_parquet(step.folder / "rows.parquet").filter(question="Who is king?").sort("version")
    assert rows["seen"].to_list() == [3, 1]
    assert [len(a) for a in rows["aliases"]] == [2, 0]


def test_asking_in_vain_is_counted_and_changes_no_history(questions: Path) -> None:
    note(questions, "wholeads", d1=None, d2="Bo", d3=None)
    step = run_refresh(questions)
    assert [h[:2] for h in history_of(step, "Who leads?")] == [("Bo", D[2])]
    assert step.ledger.notes["asked, no answer"] == 2
    assert step.metrics["observations"] == {"read": 3, "used": 1}
    assert step.metrics["requests"] == {
        "days": 3, "asked": 3, "of_evergreen": 0, "everything": 9, "saved": 6, "saved_share": 0.6667,
    }  # fmt: skip


def test_days_that_a_person_notes_save_no_requests(questions: Path) -> None:
    note(questions, "wholeads", d1="Bo")
    lines = [{"question_id": "wholeads", "language": "en", "answer": "Bo", "as_of": str(d)} for d in D[2:40]]
    (questions / FOLDER / "archive.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    step = run_refresh(questions)
    assert step.metrics["observations"] == {"read": 39, "used": 39}
    told = step.metrics["requests"]
    assert (told["days"], told["asked"], told["everything"], told["saved"]) == (1, 1, 3, 2)


def test_the_answers_of_models_that_a_row_rests_on_are_named(questions: Path) -> None:
    for n, answer, response in ((1, "Bo", "r1"), (2, "bo", "r2"), (9, "Cy", "r3")):
        write(questions, D[n], [Observation("wholeads", "en", answer, D[n], "model:m", response=response)])
    step = run_refresh(questions)
    rows = pl.read_parquet(step.folder / "rows.parquet").filter(question="Who leads?").sort("version")
    assert [list(r) for r in rows["responses"]] == [["r1", "r2"], ["r3"]]


IMPOSSIBLE = (
    "overlaps",
    "gaps",
    "backward_intervals",
    "without_one_current_answer",
    "changes_to_the_same",
    "unflagged_changes",
)
LINES = st.lists(
    st.tuples(
        st.sampled_from(["wholeads", "whoismayor", "whatistwoandtwo", "nobody"]),
        st.sampled_from(D[:8]),
        st.sampled_from(["Ann", "ann.", "Bo", "4", None]),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LINES, st.randoms(use_true_random=False))
def test_whatever_was_observed_the_histories_have_no_overlap_and_no_gap(
    questions: Path, lines: list[tuple[str, date, str | None]], drawn: Any
) -> None:
    for path in (questions / FOLDER).glob("*.jsonl"):
        path.unlink()
    drawn.shuffle(lines)
    for n in range(0, len(lines), 4):  # files of several days each, in no order
        told = [Observation(q, "en", a, day, why="" if a else "no_answer") for q, day, a in lines[n : n + 4]]
        write(questions, D[n], told)
    step = Step("evergreen.refresh", None, questions, 7)
    refresh.run(step, refresh.Params())
    step.ledger.check()
    rows = refresh.SCHEMA.frame(step._rows)
    told = measures(rows)
    assert {told[m] for m in IMPOSSIBLE} == {0}
    assert rows["question_id"].n_unique() == 3
    assert step.ledger.counts["accepted"] + step.ledger.counts["rejected"] == len(step.ledger.planned)
    for question in ("wholeads", "whoismayor", "whatistwoandtwo"):
        held = rows.filter(question_id=question).sort("version").rows(named=True)
        assert held[-1]["valid_to"] is None
        assert all(a["valid_to"] == b["valid_from"] for a, b in pairwise(held))
        own = {"whoismayor": ("Ann", D[0]), "whatistwoandtwo": ("4", None)}.get(question)
        by_day: dict[date | None, set[str]] = {}
        for q, day, answer in [*lines, *([(question, own[1], own[0])] if own else [])]:
            if q == question and answer is not None:
                by_day.setdefault(day, set()).add(answer_key(answer))
        for day, answers in by_day.items():
            inside = [
                h["answer"] for h in held
                if (h["valid_from"] is None or (day is not None and h["valid_from"] <= day))
                and (h["valid_to"] is None or day is None or day < h["valid_to"])
            ]  # fmt: skip
            if len(answers) == 1 and day is not None:
                assert [answer_key(a) for a in inside] == list(answers)


def test_an_interval_is_as_long_as_the_parameters_say() -> None:
    assert (EVERY.fast, EVERY.slow, EVERY.audit_share) == (30, 365, 0.01)
