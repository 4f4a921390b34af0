"""`headrace refresh`: only what is due is asked, one file a day at most, and labels save requests."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from evergreen_rows import EVERY, FILTER, filtered
from hypothesis import given
from hypothesis import strategies as st

from pipelines.data.tables import write_parquet
from pipelines.errors import HeadraceError
from pipelines.evergreen.refresh import Params
from pipelines.evergreen.refreshing.ask import look, refresh
from pipelines.evergreen.refreshing.due import Due, Intervals, State, can_change, due, refresh_after
from pipelines.evergreen.refreshing.facts import read_facts
from pipelines.evergreen.refreshing.history import fold
from pipelines.evergreen.refreshing.observations import FOLDER, Observation
from pipelines.evergreen.refreshing.points import usable_points
from pipelines.evergreen.reviewing.review import FOLDER as REVIEWS

DAY = date(2025, 3, 1)
NO_AUDIT = Intervals(30, 365, 0.0)


def state(key: str, rate: str, days_ago: int | None, *, mutable: bool = True) -> State:
    return State(key, mutable, rate, None if days_ago is None else DAY - timedelta(days=days_ago))


def test_rows_fall_due_by_their_change_rate_and_unknown_counts_as_fast() -> None:
    rows = [
        state("fast 29", "fast", 29),
        state("fast 30", "fast", 30),
        state("slow 364", "slow", 364),
        state("slow 365", "slow", 365),
        state("unknown 30", "unknown", 30),
        state("never seen", "slow", None),
        state("evergreen", "never", None, mutable=False),
        state("from the future", "fast", -5),
    ]
    found = due(rows, DAY, NO_AUDIT, 7)
    assert [d.key for d in found] == ["fast 30", "never seen", "slow 365", "unknown 30"]
    assert not any(d.audit for d in found)


def test_the_day_on_which_an_answer_falls_due() -> None:
    assert refresh_after(True, "slow", DAY, EVERY) == date(2026, 3, 1)
    assert refresh_after(True, "unknown", DAY, EVERY) == date(2025, 3, 31)
    assert refresh_after(False, "never", DAY, EVERY) is None
    assert refresh_after(True, "fast", None, EVERY) is None
    assert refresh_after(True, "slow", date(9999, 12, 1), EVERY) == date.max


def test_about_one_evergreen_row_in_a_hundred_is_audited_and_another_each_period() -> None:
    rows = [state(f"row {n}", "never", None, mutable=False) for n in range(20_000)]
    first = {d.key for d in due(rows, DAY, EVERY, 7)}
    later = {d.key for d in due(rows, DAY + timedelta(days=30), EVERY, 7)}
    other = {d.key for d in due(rows, DAY, EVERY, 8)}
    assert 150 < len(first) < 250  # 200 expected, standard deviation 14
    assert len(first & later) < 20
    assert len(first & other) < 20
    assert {d.key for d in due(rows[:500], DAY, EVERY, 7)} == {k for k in first if int(k[4:]) < 500}


def test_an_audited_row_is_not_asked_again_in_its_period() -> None:
    every = Intervals(30, 365, 1.0)
    asked = state("a", "never", None, mutable=False)
    assert due([asked], DAY, every, 7) == [Due("a", audit=True)]
    assert due([state("a", "never", 0, mutable=False)], DAY, every, 7) == []
    assert due([state("a", "never", 30, mutable=False)], DAY, every, 7) == [Due("a", audit=True)]


@given(st.lists(st.integers(0, 400), max_size=20), st.randoms())
def test_what_is_due_does_not_depend_on_order(ages: list[int], random: Any) -> None:
    rows = [
        state(f"{n}", ("fast", "slow", "never")[n % 3], age, mutable=n % 3 < 2) for n, age in enumerate(ages)
    ]
    turned = list(rows)
    random.shuffle(turned)
    assert due(turned, DAY, EVERY, 7) == due(rows, DAY, EVERY, 7)


@pytest.mark.parametrize(
    ("label", "origin", "part", "changes"),
    [
        ("mutable", "gold", "evergreen", True),
        ("evergreen", "human", "mutable", False),
        ("evergreen", "model", "mutable", True),
        ("mutable", "model", "evergreen", False),
    ],
)
def test_a_label_that_people_gave_outranks_the_model(
    label: str, origin: str, part: str, changes: bool
) -> None:
    assert can_change(label, origin, part) is changes


FACTS = (
    "question,language,answer,as_of\n"
    "Who leads?,en,Ann,2025-01-15\n"
    "who LEADS,en,Bo,2025-07-15\n"
    "Qui mène ?,fr,Anne,2025-01-15\n"
)


def test_the_answer_on_a_day_is_the_latest_one_not_after_it(tmp_path: Path) -> None:
    path = tmp_path / "facts.csv"
    path.write_text(FACTS)
    facts, bad = read_facts(path, tmp_path)
    told = [
        facts.answer("Who leads??", "en", date(2025, m, d)) for m, d in ((1, 14), (1, 15), (7, 14), (7, 15))
    ]
    assert told == [None, "Ann", "Ann", "Bo"]
    assert facts.answer("Who leads?", "fr", DAY) is None
    assert bad == ()


def test_bad_and_contradicting_facts_answer_nothing_and_are_told(tmp_path: Path) -> None:
    path = tmp_path / "facts.csv"
    path.write_text(
        f"{FACTS}Who rules?,en,Ann,soon\n???,en,x,2025-01-15\nWho rests?,en,,2025-01-15\n"
        "Who wins?,en,Ann,2025-01-15\nWho wins?,en,Bo,2025-01-15\nWho wins?,en,Cy,2025-02-15\nshort\n"
    )
    facts, bad = read_facts(path, tmp_path)
    assert [b.split(": ")[0] for b in bad] == [f"facts.csv:{n}" for n in (5, 6, 7, 9, 11)]
    assert facts.answer("Who wins?", "en", date(2025, 1, 20)) is None
    assert facts.answer("Who wins?", "en", date(2025, 2, 20)) == "Cy"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    rows = [
        filtered("Who leads?"),
        filtered("Qui mène ?", language="fr"),
        filtered("Who rests?"),
        filtered("What is two and two?", label="evergreen", answer="4"),
    ]
    write_parquet(FILTER.frame(rows), tmp_path / "data/evergreen/filter/rows.parquet")
    for folder in (FOLDER, REVIEWS):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "params.yaml").write_text(
        "seed: 7\nevergreen:\n  refresh: {facts: facts.csv, audit_share: 0.0}\n"
    )
    (tmp_path / "facts.csv").write_text(FACTS)
    return tmp_path


def files(root: Path) -> list[str]:
    return sorted(p.name for p in (root / FOLDER).iterdir())


def test_a_due_day_adds_one_file_and_the_same_day_adds_none(workspace: Path) -> None:
    report = refresh(workspace, DAY)
    assert (report.rows, report.due, report.answered, report.first, report.saved) == (4, 3, 2, 2, 1)
    assert [f"{FOLDER}/{n}" for n in files(workspace)] == [report.file]
    assert files(workspace)[0].startswith("2025-03-01-")
    second = refresh(workspace, DAY)
    assert (second.due, second.answered, second.file) == (1, 0, None)
    assert len(files(workspace)) == 1


def test_a_later_day_confirms_and_changes(workspace: Path) -> None:
    refresh(workspace, DAY)
    assert refresh(workspace, date(2025, 3, 30)).answered == 0
    report = refresh(workspace, date(2025, 8, 1))
    assert (report.confirmed, report.changed, report.review) == (1, 1, 0)
    assert "1 confirmed, 1 changed" in str(report)


def test_what_a_killed_call_left_is_no_observation_and_goes(workspace: Path) -> None:
    torn = workspace / FOLDER / ".2025-03-01-aaaa.jsonl.99.tmp"
    torn.write_text('{"question_id": "wholea')
    assert refresh(workspace, DAY).first == 2
    assert not torn.exists()


def test_an_audited_evergreen_row_that_changed_is_reported(workspace: Path) -> None:
    (workspace / "params.yaml").write_text(
        "seed: 7\nevergreen:\n  refresh: {facts: facts.csv, audit_share: 1.0}\n"
    )
    report = refresh(workspace, DAY, lambda question, language, day: "5")
    assert (report.audited, report.changed, report.review) == (1, 1, 1)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("facts.csv", None, "no facts here"),
        ("facts.csv", "question,answer\nWho?,x\n", "column 'language', 'as_of' is missing"),
        ("facts.csv", "", "the file is empty"),
        ("params.yaml", "evergreen: {refresh: {fast_day: 3}}\n", "did you mean 'fast_days'?"),
        ("params.yaml", "evergreen: {refresh: {fast_days: 0}}\n", "must be in [1, 36525]"),
        ("data/evergreen/filter/rows.parquet", None, "headrace run evergreen.filter"),
    ],
)
def test_a_refresh_that_cannot_be_done_says_why_and_adds_nothing(
    workspace: Path, name: str, content: str | None, says: str
) -> None:
    (workspace / name).unlink()
    if content is not None:
        (workspace / name).write_text(content)
    if name == "params.yaml" and "fast_days" in (content or ""):
        (workspace / "params.yaml").write_text("evergreen: {refresh: {facts: facts.csv, fast_days: 0}}\n")
    with pytest.raises(HeadraceError) as e:
        refresh(workspace, DAY)
    assert says in str(e.value)
    assert files(workspace) == []


def test_questions_that_were_made_to_train_on_are_asked_only_where_that_is_wanted() -> None:
    rows = [filtered("a"), filtered("b", source="template"), filtered("c", source="model")]
    told, report = look(rows, [], DAY, Params(), 7, lambda *_: "yes")
    assert ([o.question for o in told], report.rows, report.due, report.made, report.saved) == (
        ["a"], 1, 1, 2, 0
    )  # fmt: skip
    assert "2 questions that were made to train on are not asked" in str(report)
    told, report = look(rows, [], DAY, Params(made=True), 7, lambda *_: "yes")
    assert ([o.question for o in told], report.made) == (["a", "b", "c"], 0)


def test_thirty_days_of_refreshes_follow_the_world_and_ask_little() -> None:
    """Fast answers every 5 days here; one changes on day 12, an evergreen one on day 17."""
    params = Params(fast_days=5, slow_days=20, audit_share=1.0)
    rows = [
        filtered("fast"),
        filtered("steady"),
        filtered("slow", change_rate="slow"),
        filtered("fixed", label="evergreen", answer="f"),
        filtered("mislabelled", label="evergreen", answer="m0"),
    ]

    def world(question: str, language: str, day: date) -> str:
        n = (day - DAY).days
        changing = {"fast": "x" if n < 12 else "y", "mislabelled": "m0" if n < 17 else "m1"}
        return changing.get(question, question[0])

    known: list[tuple[str, Observation]] = []
    requests = 0
    for n in range(30):
        day = DAY + timedelta(days=n)
        found, report = look(rows, known, day, params, 7, world)
        assert report.answered == report.due == len(found)
        known += [(f"{day}:{i}", o) for i, o in enumerate(found)]
        requests += len(found)
        again, _ = look(rows, known, day, params, 7, world)
        assert again == []
    by_key = {(r["question_id"], r["language"]): r for r in rows}
    points, why = usable_points(by_key, known)
    held = {q: fold(points[q, "en"]) for q, _ in by_key}
    assert why == {}
    assert [(h.answer, (h.valid_from - DAY).days) for h in held["fast"]] == [("x", 0), ("y", 15)]
    assert [h.days for h in held["steady"]] == [6]
    assert [h.days for h in held["slow"]] == [2]
    assert [h.answer for h in held["mislabelled"]] == ["m0", "m1"]
    assert 17 <= (held["mislabelled"][1].valid_from - DAY).days < 17 + 2 * params.fast_days
    # fast and steady six times each, slow twice, the audited ones once a period (six or seven touch 30 days)
    assert requests in (6 + 6 + 2 + 2 * 6, 6 + 6 + 2 + 2 * 7)
    assert requests < 5 * 30
