"""The model that params or the environment name is the one that every generating stage asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.cli import main
from tests.llm.scripted_server import ScriptedServer

STAGES = (
    ["trit.ingest"],
    ["trit.translate", "fr"],
    ["trit.reason", "fr"],
    ["cbu.ingest"],
    ["cbu.neighbors"],
    ["cbu.rollout"],
)
PROBLEM = (
    '{"id": "a", "language": "en", "question": "Tom has 3 apples and buys 5. How many?", "answer": "8"}\n'
)


@pytest.mark.parametrize("by", ["environment", "params", "stage"])
def test_every_stage_that_generates_asks_the_model_that_was_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "problems.jsonl").write_text(PROBLEM)
    chosen = ["--set", "llm.model=chosen"] if by == "params" else []
    assert (
        main(["init", "w", "--source", "trit=problems.jsonl", "--set", "cbu.neighbors.problems=1", *chosen])
        == 0
    )
    monkeypatch.chdir(tmp_path / "w")
    answers = Path(__file__).parents[1] / "chaos" / "answers.py"
    with ScriptedServer(answers=answers) as server:
        monkeypatch.setenv("HEADRACE_LLM_BACKEND", "openai")
        monkeypatch.setenv("HEADRACE_LLM_BASE_URL", server.url)
        monkeypatch.delenv("HEADRACE_LLM_MODEL", raising=False)
        if by == "environment":
            monkeypatch.setenv("HEADRACE_LLM_MODEL", "chosen")
        for stage in STAGES:
            assert main(stage) == 0
        asked = {r["body"]["model"] for r in server.requests()}
    assert asked == ({"gemma3-270m", "smollm2-135m"} if by == "stage" else {"chosen"})
