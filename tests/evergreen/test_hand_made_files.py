"""Facts and observations that people make and edit: a bad line costs itself, no file is passed over."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from evergreen_rows import filtered
from refresh_workspace import files, fold, lay, noted

from pipelines.errors import ConfigError, HeadraceError, InputError
from pipelines.evergreen.refreshing.ask import PartlyAsked, refresh
from pipelines.evergreen.refreshing.day import day_of
from pipelines.evergreen.refreshing.facts import read_facts
from pipelines.evergreen.refreshing.observations import FOLDER, LONGEST, Observation, write

DAY = date(2025, 3, 1)
HEAD = b"question,language,answer,as_of\n"
ROWS = [
    filtered("Who leads?"),
    filtered("Qui dirige ?", language="fr", question_id="wholeads"),
    filtered("What is two and two?", label="evergreen", answer="4"),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    lay(tmp_path, ROWS, facts="facts.csv")
    (tmp_path / "facts.csv").write_bytes(HEAD + b"Who leads?,en,Ann,2025-01-15\n")
    return tmp_path


def line(**told: Any) -> bytes:
    given = {"question_id": "wholeads", "language": "en", "answer": "Bo", "as_of": "2025-01-05", **told}
    return json.dumps(given).encode() + b"\n"


def test_a_line_of_other_bytes_is_a_reject_and_its_neighbors_are_used(root: Path) -> None:
    bad = b'{"question_id": "wholeads", "answer": "Jos\xe9"}\n{"a": "\0"}\n'
    (root / FOLDER / "a.jsonl").write_bytes(line() + bad + line(answer="Cy", as_of="2025-01-09") * 3)
    assert refresh(root, DAY).changed == 1  # from Cy to Ann
    step = fold(root)
    assert step.ledger.summary()["reasons"] == {"rejected(unreadable)": 2}
    rows = pl.read_parquet(step.folder / "rows.parquet").filter(question="Who leads?").sort("version")
    assert rows["answer"].to_list() == ["Bo", "Cy", "Ann"]


def test_a_language_may_be_named_and_an_answer_has_a_longest_length(root: Path) -> None:
    told = line(language="French") + line(language="EN") + line(answer="x" * (LONGEST + 1))
    (root / FOLDER / "a.jsonl").write_bytes(told)
    step = fold(root)
    assert step.ledger.summary()["reasons"] == {"rejected(too_long)": 1}
    assert step.ledger.notes["observed"] == 2


@pytest.mark.parametrize("name", ["a.json", "A.JSONL", "a.csv", "a.ndjson", "a.jsonl.gz", "older/"])
def test_a_file_that_only_looks_as_if_it_were_read_is_refused(root: Path, name: str) -> None:
    path = root / FOLDER / name.rstrip("/")
    path.mkdir() if name.endswith("/") else path.write_bytes(line())
    for act in (lambda: refresh(root, DAY), lambda: fold(root)):
        with pytest.raises(InputError) as e:
            act()
        assert str(e.value).startswith(f"{FOLDER}/{name.rstrip('/')}: is not read: observations lie in files")


@pytest.mark.parametrize("name", ["README.md", ".gitkeep", ".a.jsonl.swp", "a.jsonl~"])
def test_a_file_that_is_none_of_observations_may_lie_beside_them(root: Path, name: str) -> None:
    (root / FOLDER / name).write_text("about\n")
    assert refresh(root, DAY).answered == 1


@pytest.mark.parametrize("content", [b"", b"\n", b"\x1f\x8b\x08", b"[]\n", b"\xff\xfea\0", b"a\rb"])
def test_a_file_that_cannot_be_read_is_named_from_the_workspaces_root(root: Path, content: bytes) -> None:
    (root / FOLDER / "a.jsonl").write_bytes(content)
    with pytest.raises(InputError, match=f"^{FOLDER}/a.jsonl"):
        refresh(root, DAY)


def test_a_file_that_was_damaged_since_takes_no_observation_with_it(root: Path) -> None:
    told = [Observation("wholeads", "en", "Ann", DAY)]
    path = write(root, DAY, told)
    assert path is not None
    path.write_bytes(b"{torn\n")
    again = write(root, DAY, told)
    assert again is not None and again != path
    assert (write(root, DAY, told), path.read_bytes()) == (again, b"{torn\n")
    assert [x["answer"] for x in map(json.loads, again.read_text().splitlines())] == ["Ann"]


def test_the_same_observations_again_are_the_same_file(root: Path) -> None:
    told = [Observation("wholeads", "en", "Ann", DAY)]
    assert write(root, DAY, told) == write(root, DAY, told)
    assert len(files(root)) == 1


def test_what_was_true_before_two_facts_contradict_each_other_is_not_told_as_true_after(root: Path) -> None:
    path = root / "facts.csv"
    path.write_bytes(
        HEAD + b"Who leads?,en,Ann,2025-01-15\nWho leads?,en,Bo,2025-02-15\nWho leads?,en,Cy,2025-02-15\n"
        b"Who leads?,en,Di,2025-04-15\n"
    )
    facts, bad = read_facts(path, root)
    told = [facts.answer("Who leads?", "en", date(2025, m, 20)) for m in (1, 2, 3, 4)]
    assert told == ["Ann", None, None, "Di"]
    assert bad == ("facts.csv:4: contradicts line 3, both are passed over",)
    report = refresh(root, DAY)
    assert (report.answered, report.unanswered) == (0, 2)


def test_a_fact_names_its_language_as_people_do_and_one_of_none_is_told(root: Path) -> None:
    path = root / "facts.csv"
    path.write_bytes(
        HEAD + b"Who leads?,English,Ann,2025-01-15\nQui dirige ?, FR ,Anne,2025-01-15\n"
        b"Who rests?,Elvish,Bo,2025-01-15\nWho rests?,en,Jos\xe9,2025-01-15\n"
        + b"Who rests?,en,"
        + b"x" * (LONGEST + 1)
        + b",2025-01-15\n"
    )
    facts, bad = read_facts(path, root)
    assert facts.answer("Who leads?", "en", DAY) == "Ann"
    assert facts.answer("Qui dirige ?", "fr", DAY) == "Anne"
    assert bad == (
        "facts.csv:4: column 'language' is 'Elvish', expected a code such as 'en'",
        "facts.csv:5: it is not UTF-8",
        f"facts.csv:6: column 'answer': {LONGEST + 1} characters, at most {LONGEST}",
    )


def test_facts_may_lie_in_parquet_with_real_dates(root: Path) -> None:
    frame = pl.DataFrame({"question": ["Who leads?"], "language": ["en"], "answer": ["Ann"], "as_of": [DAY]})
    frame.write_parquet(root / "facts.parquet")
    facts, bad = read_facts(root / "facts.parquet", root)
    assert (facts.answer("Who leads?", "en", DAY), bad) == ("Ann", ())


def test_rows_of_another_version_are_refused_with_the_column_that_is_not_there(root: Path) -> None:
    path = root / "data/evergreen/filter/rows.parquet"
    pl.read_parquet(path).drop("question_key").write_parquet(path)
    with pytest.raises(HeadraceError) as e:
        refresh(root, DAY)
    says = "data/evergreen/filter/rows.parquet: has no column 'question_key': another version made it"
    assert str(e.value) == f"{says} (headrace run evergreen.filter)"


def test_a_row_that_was_seen_on_a_day_to_come_is_told(root: Path) -> None:
    (root / FOLDER / "a.jsonl").write_bytes(line(as_of="2062-01-05"))
    report = refresh(root, DAY)
    assert (report.due, report.ahead) == (1, 1)
    assert "1 rows were last looked at after this day: a date may be wrong" in str(report)
    assert report.rows == report.due + report.waiting + report.saved
    (root / FOLDER / "a.jsonl").unlink()
    assert "a date may be wrong" not in str(refresh(root, DAY))


def test_a_clock_that_goes_back_asks_for_nothing_that_was_seen_since(root: Path) -> None:
    assert refresh(root, DAY).answered == 1
    before = files(root)
    back = refresh(root, date(2025, 2, 1))
    assert (back.answered, back.ahead) == (0, 2)
    assert {name[:10] for name in files(root)} <= {"2025-03-01", "2025-02-01"}
    assert set(before) <= set(files(root))
    assert refresh(root, DAY).file is None


NOW = datetime(2026, 11, 30, 23, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("told", "day"),
    [
        ("", date(2026, 11, 30)),
        ("2026-11-30", date(2026, 11, 30)),
        ("2026-12-01", date(2026, 12, 1)),  # it has begun in Auckland
        ("2024-02-29", date(2024, 2, 29)),
        ("0001-01-01", date(1, 1, 1)),
    ],
)
def test_a_day_is_today_in_utc_or_any_that_has_begun_somewhere(told: str, day: date) -> None:
    assert day_of(told, NOW, "--as-of") == day


@pytest.mark.parametrize("told", ["2026-12-02", "2062-01-01", "9999-12-31"])
def test_a_day_to_come_is_refused_unless_nothing_is_asked(told: str) -> None:
    with pytest.raises(ConfigError, match=f"^--as-of: {told} is still to come"):
        day_of(told, NOW, "--as-of")
    assert day_of(told, NOW, "--as-of", ahead=True) == date.fromisoformat(told)


@pytest.mark.parametrize("told", ["today", "30.11.2026", "2025-02-29", "2026-11-30T10:00+14:00", " "])
def test_what_is_no_day_is_refused(told: str) -> None:
    with pytest.raises(ConfigError, match="is not a date"):
        day_of(told, NOW, "--as-of")


def test_a_refresh_adds_nothing_that_it_would_refuse_to_read(root: Path) -> None:
    said = iter(["Ann\u2028\x85\x1b[2J", "Ann\0"])
    with pytest.raises(PartlyAsked, match="1 of 2 questions failed, first: unreadable"):
        refresh(root, DAY, lambda *_: next(said))
    assert len(noted(root)) == 1
    assert fold(root).ledger.summary()["rejected"] == 0
