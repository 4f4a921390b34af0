"""`headrace refresh` as a shell sees it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from evergreen_rows import filtered
from refresh_workspace import files, lay, noted

from pipelines.cli import main

ROOT = Path(__file__).parents[2]
ROWS = [
    *(filtered(f"Who leads club {n}?") for n in range(12)),
    filtered("Who rests?", change_rate="slow"),
    filtered("What is two and two?", label="evergreen", answer="4"),
]
WORLD = """
def world(question, language, day):
    if question == "Who rests?":
        raise TimeoutError("no word from the archive")
    return None if question.endswith("11?") else "Ann"
"""


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lays a workspace with the project's graph and parameters, but for who is asked; the current folder."""

    def act(**told: Any) -> Path:
        lay(tmp_path, ROWS)
        shutil.copy(ROOT / "dvc.yaml", tmp_path)
        params = yaml.safe_load((ROOT / "params.yaml").read_text())
        params["evergreen"]["refresh"] |= {"audit_share": 0.0, **told}
        (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
        (tmp_path / "world.py").write_text(WORLD)
        monkeypatch.chdir(tmp_path)
        return tmp_path

    return act


def test_a_dry_run_says_what_is_due_and_asks_nothing(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    root = shell(source="callable", callable="world:gone")  # it is not even loaded
    assert main(["refresh", "--as-of", "2025-03-01", "--dry-run"]) == 0
    out = capsys.readouterr().out.splitlines()
    due = "as of 2025-03-01: 13 of 14 rows are due (0 in the audit of evergreen ones)"
    assert out[0] == f"{due}, 1 requests saved (7.1%)"
    assert len([line for line in out if line.startswith("  en: ")]) == 10
    assert out[-2:] == ["  and 3 more: --json lists all", "nothing was asked"]
    assert main(["refresh", "--as-of", "2025-03-01", "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["due"], len(told["would_ask"]), told["would_ask"][0]["language"]) == (13, 13, "en")
    assert files(root) == []


def test_what_failed_is_told_and_the_rest_is_noted(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    root = shell(source="callable", callable="world:world")
    assert main(["refresh", "--as-of", "2025-03-01"]) == 1
    told = capsys.readouterr()
    assert "11 answered: 11 for the first time" in told.out
    assert "1 without an answer, 1 failed" in told.out
    assert "13 requests to world:world, 0 more answered before" in told.out
    assert "failed: source_failed TimeoutError: no word from the archive (en: Who rests?)" in told.out
    last = told.err.splitlines()[-1]
    assert "1 of 13 questions failed" in last
    assert "run again for the rest" in last
    assert "Traceback" not in told.err
    assert len(noted(root)) == 12


def test_json_holds_all_figures(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell(source="callable", callable="world:world", allow_failed=0.1)
    assert main(["refresh", "--as-of", "2025-03-01", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {k: told[k] for k in ("rows", "due", "answered", "unanswered", "saved", "waiting", "first")} == {
        "rows": 14, "due": 13, "answered": 11, "unanswered": 1, "saved": 1, "waiting": 0, "first": 11,
    }  # fmt: skip
    assert (told["requests"]["sent"], len(told["failed"]), told["as_of"]) == (13, 1, "2025-03-01")


def test_the_help_says_who_is_asked(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell()
    with pytest.raises(SystemExit):
        main(["refresh", "--help"])
    out = " ".join(capsys.readouterr().out.split())
    assert "evergreen.refresh in params.yaml says who is asked" in out
    assert "--dry-run" in out


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"source": "modle"}, "must be one of facts, callable, model, is 'modle' (did you mean 'model'?)"),
        ({"source": "model"}, "no model is named"),
        ({"source": "callable"}, 'names no function (write it as "module:function")'),
        ({"facts": "gone.csv"}, "gone.csv: no facts here"),
        ({"model": {"serach": "x:y"}}, "unknown key 'serach' (did you mean 'search'?)"),
        ({"retry_days": -1}, "evergreen.refresh.retry_days: must not be negative, is -1"),
    ],
)
def test_parameters_that_name_nobody_are_refused_in_one_line(
    shell: Any, capsys: pytest.CaptureFixture[str], told: dict[str, Any], says: str
) -> None:
    root = shell(**told)
    assert main(["refresh", "--as-of", "2025-03-01"]) == 1
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1
    assert files(root) == []
