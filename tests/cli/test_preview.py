"""A preview says what a run then asks, asks nobody and writes nothing."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli import main
from tests.llm.scripted_server import ScriptedServer

ANSWERS = Path(__file__).parents[1] / "chaos" / "answers.py"
PROBLEMS = 6
Json = dict[str, Any]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HEADRACE_LLM_MODEL", "HEADRACE_STORE", "HEADRACE_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    lines = [
        {
            "id": str(n),
            "language": "en",
            "question": f"Tom has {n} apples and buys 5. How many?",
            "answer": str(n + 5),
        }
        for n in range(2, 2 + PROBLEMS)
    ]
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    quiet = ["synthesize.by_model=0.0", *(f"{s}.sources=[model]" for s in ("verify", "translate", "aliases"))]
    sets = [word for each in quiet for word in ("--set", f"evergreen.{each}")]  # nothing is asked for
    assert main(["init", "w", "--source", "trit=problems.jsonl", *sets]) == 0
    path = tmp_path / "w" / "params.yaml"
    priced = "prices: {gemma3-270m: {prompt: 1, completion: 10}}"
    path.write_text(path.read_text().replace("prices: {}", priced))
    monkeypatch.chdir(tmp_path / "w")
    return tmp_path / "w"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    with ScriptedServer(answers=ANSWERS, latency_ms=20) as started:
        monkeypatch.setenv("HEADRACE_LLM_BACKEND", "openai")
        monkeypatch.setenv("HEADRACE_LLM_BASE_URL", started.url)
        yield started


@pytest.fixture
def preview(capsys: pytest.CaptureFixture[str]) -> Any:
    def told(*stages: str) -> tuple[dict[str, Json], Json]:
        capsys.readouterr()
        assert main(["preview", *stages, "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        return {line["stage"]: line for line in said["stages"]}, said["total"]

    return told


def translate() -> None:
    assert main(["trit.ingest"]) == main(["trit.translate", "fr"]) == 0


def files(root: Path) -> dict[str, str]:
    """Every file of the workspace but DVC's own state, with its hash."""
    return {
        str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(root.rglob("*"))
        if p.is_file() and ".dvc" not in p.relative_to(root).parts and not p.is_symlink()
        if p.suffix not in (".sqlite-shm", ".sqlite-wal") and "pipelines" not in p.parts
    }


@pytest.mark.slow
def test_a_run_asks_exactly_what_the_preview_counted(
    workspace: Path, server: ScriptedServer, preview: Any
) -> None:
    before = files(workspace)
    lines, total = preview()
    assert files(workspace) == before and server.requests() == []
    french = lines["trit.translate@fr"]
    assert french["rows"] == PROBLEMS
    (count,) = french["models"]
    assert (count["model"], count["new"], count["stored"]) == ("gemma3-270m", 2 * PROBLEMS, 0)
    assert count["completion_tokens"] == 2 * PROBLEMS * 60 and count["seconds"] is None
    assert 0 < count["usd"] < count["usd_most"]
    assert (
        lines["trit.reason@fr"]["unknown"] == "trit.translate@fr" and lines["trit.reason@fr"]["models"] == []
    )
    assert total["new"] == 4 * PROBLEMS and "trit.reason@fr" in total["unknown"]
    assert lines["evergreen.synthesize"]["models"] == [] and not lines["evergreen.verify"]["unknown"]
    assert lines["training.evergreen"]["texts_new"] > 0 and "evergreen.ingest" not in lines

    assert main(["run", "trit.translate@fr"]) == 0
    assert len(server.requests()) == 2 * PROBLEMS
    after = files(workspace)
    lines, total = preview("trit.translate@fr", "trit.reason@fr")
    assert files(workspace) == after and len(server.requests()) == 2 * PROBLEMS
    (count,) = lines["trit.translate@fr"]["models"]
    assert (count["new"], count["stored"], count["usd"], count["seconds"]) == (0, 2 * PROBLEMS, 0, 0)
    (count,) = lines["trit.reason@fr"]["models"]
    assert count["new"] > 0 and count["usd"] is None  # no price of this model is known

    assert main(["run", "trit.reason@fr"]) == 0
    assert len(server.requests()) == 2 * PROBLEMS + count["new"]
    _, total = preview("trit.translate@fr", "trit.reason@fr")
    assert (total["new"], total["stored"]) == (0, len(server.requests()))


@pytest.mark.slow
def test_more_rows_are_counted_as_new_by_the_pace_of_those_stored(
    workspace: Path, server: ScriptedServer, preview: Any
) -> None:
    translate()
    path = workspace / "params.yaml"
    path.write_text(path.read_text().replace("samples: 2", "samples: 3"))
    lines, _ = preview("trit.translate@fr")
    (count,) = lines["trit.translate@fr"]["models"]
    assert (count["new"], count["stored"]) == (PROBLEMS, 2 * PROBLEMS)
    assert count["seconds"] >= PROBLEMS * 0.02 / 8 and count["completion_tokens"] < PROBLEMS * 60
    asked = len(server.requests())
    translate()
    assert len(server.requests()) == asked + PROBLEMS


@pytest.mark.slow
def test_a_stage_whose_answers_are_all_stored_lets_the_preview_look_beyond_it(
    workspace: Path, server: ScriptedServer, preview: Any
) -> None:
    """An edit that changes no question makes a stage stale and asks nothing, so what follows is known."""
    translate()
    path = workspace / "params.yaml"
    path.write_text(path.read_text().replace("fewest_letters: 6", "fewest_letters: 7"))
    lines, _ = preview("trit.translate@fr", "trit.reason@fr")
    (count,) = lines["trit.translate@fr"]["models"]
    assert (lines["trit.translate@fr"]["fresh"], count["new"], count["stored"]) == (False, 0, 2 * PROBLEMS)
    assert lines["trit.reason@fr"]["unknown"] == "" and lines["trit.reason@fr"]["models"][0]["new"] > 0


@pytest.mark.slow
def test_the_table_says_the_same_in_words(
    workspace: Path, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["preview", "trit.translate@fr", "trit.reason@fr"]) == 0
    head, line, note = capsys.readouterr().out.strip().split("\n")
    assert head.split() == "stage model rows new stored tokens USD at most time".split()
    assert line.split()[:5] == ["trit.translate@fr", "gemma3-270m", str(PROBLEMS), str(2 * PROBLEMS), "0"]
    assert note == "trit.reason@fr: unknown until trit.translate@fr has run"
    assert main(["preview", "evergreen.filter"]) == 0
    assert capsys.readouterr().out == "evergreen.filter: asks no model\n"
    assert main(["preview", "trit.translat"]) == 1
    assert "unknown stage 'trit.translat'" in capsys.readouterr().err
    assert server.requests() == []


@pytest.mark.slow
def test_a_replay_that_lacks_answers_is_told_to_stop_and_not_to_cost(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_LLM_BACKEND", "replay")
    assert main(["preview", "trit.translate@fr"]) == 1
    head, note = capsys.readouterr().out.strip().split("\n")
    assert head.split()[0] == "stage"
    lacks = f"replay: {2 * PROBLEMS} answers are missing from the store, and a run would stop"
    assert note.startswith("trit.translate@fr: ") and lacks in note
    assert "run once with the backend that has the model" in note
