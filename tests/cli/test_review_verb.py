"""`headrace review`: open cases are listed, laid out without touching what is there, and decided."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.cli import main
from pipelines.evergreen.reviewing.review import case, decisions, write_cases

ABOUT = {"language": "en", "label": "mutable", "change_rate": "slow", "why": "the model says evergreen"}
FILE = Path("data/review/evergreen/cases.jsonl")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with two cases of one stage and one, on a wording of those, of another."""
    monkeypatch.chdir(tmp_path)
    assert main(["init", "mine", "--source", f"evergreen={_questions(tmp_path)}"]) == 0
    root = tmp_path / "mine"
    monkeypatch.chdir(root)
    where = case("disagreement", question_id="1", question="Where is it?", **ABOUT)
    who = case("disagreement", question_id="2", question="Who is it?", **ABOUT)
    write_cases(root / "data/evergreen/verify/review.jsonl", [where, who])
    also = case("label_conflict", question_id="3", question="where is it", **ABOUT)
    write_cases(root / "data/evergreen/curate/review.jsonl", [also])
    write_cases(root / "data/evergreen/refresh/review.jsonl", [])
    return root


def _questions(folder: Path) -> Path:
    path = folder / "train.csv"
    path.write_text("question,language,label\nWho is it?,en,1\n")
    return path


def listed(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    capsys.readouterr()
    assert main(["review", "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_the_cases_of_all_stages_are_listed(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["review"]) == 0
    out = capsys.readouterr().out
    assert "1  evergreen.curate  label_conflict\n" in out
    assert "2  evergreen.verify  disagreement\n" in out
    assert "3  open, 0 decided\n" in out
    assert "[en] Who is it?  (mutable): the model says evergreen\n" in out


def test_cases_are_laid_out_once_and_lines_that_are_there_stay_as_they_are(workspace: Path) -> None:
    mine = '{"question":"Who is it",  "language":"en","decision":"slow","who":"Ann","when":"2026-11-30"}'
    torn = '{"case": "torn'
    FILE.write_bytes(f"{mine}\r\n{torn}".encode())
    assert main(["review", "--collect"]) == 0
    lines = FILE.read_bytes().split(b"\n")
    assert lines[:2] == [f"{mine}\r".encode(), torn.encode()]
    (added,) = (json.loads(line) for line in lines[2:] if line)  # one wording, of two stages
    assert (added["question"].casefold().strip("?"), added["decision"], added["who"]) == (
        "where is it",
        None,
        None,
    )
    assert added["found"]["why"] == "the model says evergreen"
    before = FILE.read_bytes()
    assert main(["review", "--collect"]) == 0
    assert FILE.read_bytes() == before


def test_a_case_torn_by_an_editor_is_refused_and_not_added_again(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["review", "--collect"]) == 0
    FILE.write_text(FILE.read_text().replace('"language"', "language"))
    before = FILE.read_bytes()
    assert main(["review", "--collect"]) == 0
    assert FILE.read_bytes() == before
    refused = listed(capsys)["refused"]
    assert isinstance(refused, list) and len(refused) == 2
    assert refused[0].startswith("data/review/evergreen/cases.jsonl:1: unreadable not JSON")


def test_a_decision_closes_a_case_in_all_stages(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = case("disagreement", question_id="1", question="Where is it?", **ABOUT)["case"]
    assert main(["review", "--decide", name[:12], "fast", "--who", "Ann", "--when", "2026-11-30"]) == 0
    assert "mutable (fast) by Ann on 2026-11-30" in capsys.readouterr().out
    told = decisions(workspace).of("Where is it", "en")
    assert told is not None and told.said == ("mutable", "fast", None)
    left = listed(capsys)
    assert left["decided"] == 2
    assert [c["question"] for c in left["open"]] == ["Who is it?"]  # type: ignore[attr-defined]
    assert main(["review"]) == 0
    assert "1  open, 2 decided; `headrace run` applies them\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--decide", "abc", "drop", "--who", "Ann"], "there is no case 'abc'"),
        (
            ["--decide", "CASE", "perhaps", "--who", "Ann"],
            "decision: unknown_decision 'perhaps', expected evergreen, mutable, never, slow",
        ),
        (["--decide", "CASE", "drop"], "no one is named who decides (add --who NAME)"),
        (["--decide", "CASE", "drop", "--who", "Ann", "--when", "today"], "when: bad_date 'today'"),
        (
            ["--decide", "CASE", "drop", "--who", "Ann", "--when", "9998-01-01"],
            "9998-01-01 is yet to come: it would outrank every decision until then",
        ),
        (["--who", "Ann"], "--who, --when, --change-rate and --answer go with --decide"),
    ],
)
def test_what_is_no_decision_is_refused_and_nothing_is_added(
    workspace: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    name = case("disagreement", question_id="1", question="Where is it?", **ABOUT)["case"]
    assert main(["review", *(name if a == "CASE" else a for a in arguments)]) == 1
    assert message in capsys.readouterr().err
    assert not FILE.exists()


def test_a_file_of_cases_that_holds_none_is_named(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "data/evergreen/verify/review.jsonl").write_text('{"case": 1}\n')
    assert main(["review"]) == 1
    assert "data/evergreen/verify/review.jsonl:1: is no case" in capsys.readouterr().err
