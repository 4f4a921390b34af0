"""A cap stops a run cleanly: the rows that it left are typed and counted, and raising it asks just them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.cli import main
from tests.llm.scripted_server import ScriptedServer

ANSWERS = Path(__file__).parents[1] / "chaos" / "answers.py"
PRICED = "prices: {gemma3-270m: {prompt: 1, completion: 10}}"
STAGE = ["trit.translate", "fr"]


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
        for n in range(2, 32)
    ]
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["init", "w", "--source", "trit=problems.jsonl"]) == 0
    monkeypatch.chdir(tmp_path / "w")
    assert main(["trit.ingest"]) == 0
    return tmp_path / "w"


def llm(workspace: Path, prices: str, caps: str) -> None:
    path = workspace / "params.yaml"
    kept = [x for x in path.read_text().split("\n") if not x.startswith(("  prices:", "  caps:"))]
    at = kept.index(next(x for x in kept if x.startswith("llm:"))) + 1
    path.write_text("\n".join([*kept[:at], f"  {prices}", f"  {caps}", *kept[at:]]))


def test_a_cap_ends_the_stage_with_typed_rows_and_raising_it_asks_just_those(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outs = workspace / "data/trit/translate/fr"
    with ScriptedServer(answers=ANSWERS) as server:
        monkeypatch.setenv("HEADRACE_LLM_BACKEND", "openai")
        monkeypatch.setenv("HEADRACE_LLM_BASE_URL", server.url)
        llm(workspace, "prices: {}", "caps: {month: {usd: 0.005}}")
        assert main(STAGE) == 1
        assert "model 'gemma3-270m' has no price" in capsys.readouterr().err
        assert server.requests() == []

        llm(workspace, PRICED, "caps: {month: {usd: 0.006}}")
        assert main(STAGE) == 1
        said = capsys.readouterr().err
        counts = json.loads((outs / "outcomes.json").read_text())
        asked, over = len(server.requests()), counts["over_budget"]
        assert f"{over} of 60 items are over budget: llm.caps.month.usd of 0.006 is reached: 0.00" in said
        assert 0 < over < 60 and asked + over == 60 == counts["items"]
        rejected = pl.read_parquet(outs / "rejected.parquet")
        assert (rejected["outcome"] == "over_budget").sum() == over
        assert not (outs / "rows.parquet").exists()
        assert counts["answers"] == asked, "what was left unasked is no answer"
        assert f"{asked}/60 ({100 * asked // 60} %) answers in " in said and f", {over} over budget" in said
        told = json.loads((workspace / ".headrace/pace/trit.translate@fr.json").read_text())["figures"]
        assert (told["answers"], told["answers_over_budget"], told["answers_failed"]) == (asked, over, 0)

        llm(workspace, PRICED, "caps: {month: {usd: 1}}")
        assert main(STAGE) == 0
        assert len(server.requests()) == 60 and max(server.asked().values()) == 1
        done = json.loads((outs / "outcomes.json").read_text())
        assert done["over_budget"] == 0 and done["cost_usd"] > 0 and (outs / "rows.parquet").exists()


def test_stats_tell_what_the_ledger_counts_beyond_the_stored_answers(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with ScriptedServer({"faults": [{"garbage": True}] * 3}, answers=ANSWERS) as server:
        monkeypatch.setenv("HEADRACE_LLM_BACKEND", "openai")
        monkeypatch.setenv("HEADRACE_LLM_BASE_URL", server.url)
        assert main(STAGE) == 0
        assert stats(capsys)["ledger"] is None
        llm(workspace, PRICED, "caps: {month: {usd: 1}}")
        (workspace / ".headrace/responses.sqlite").unlink()
    with ScriptedServer({"faults": [{"garbage": True}] * 3}, answers=ANSWERS) as server:
        monkeypatch.setenv("HEADRACE_LLM_BASE_URL", server.url)
        assert main(STAGE) == 0
    told = stats(capsys)
    ledger, answered = told["ledger"], told["prompt_tokens"] + told["completion_tokens"]
    assert ledger["cost_usd"] > told["cost_usd"] > 0 and ledger["tokens"] > answered
    assert (ledger["held_usd"], ledger["held_tokens"]) == (0, 0)
    assert main(["store", "stats"]) == 0
    sums = f"{ledger['month']}: {ledger['cost_usd']:.4f} USD and {ledger['tokens']:,} tokens"
    assert f"{sums}, of lost answers too" in capsys.readouterr().out


def stats(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["store", "stats", "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize(
    ("prices", "caps", "said"),
    [
        ("prices: {m: {prompt: 1}}", "caps: {}", "key 'completion' is missing"),
        ("prices: {}", "caps: {run: {eur: 1}}", "unknown key 'eur'"),
        ("prices: {}", "caps: {day: {usd: 1}}", "unknown key 'day'"),
        ("prices: {}", "caps: {run: {usd: -1}}", "must not be negative"),
    ],
)
def test_a_wrong_price_or_cap_is_named_before_anything_runs(
    workspace: Path, capsys: pytest.CaptureFixture[str], prices: str, caps: str, said: str
) -> None:
    llm(workspace, prices, caps)
    assert main(STAGE) == 1
    assert said in capsys.readouterr().err
