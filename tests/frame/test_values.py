"""A stage that asks for JSON: what gives no value is kept as text, and a changed reader asks nothing."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from pipelines.asking import AskingStep
from pipelines.llm import structured
from pipelines.llm.coercion import Form
from pipelines.llm.request import Request, Sampling
from pipelines.llm.structured import Reading
from tests.llm.scripted_server import ScriptedServer

FORM = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
SCRIPT = """
def answer(body):
    n = int(body["prompt"].split("number ")[1][0])
    if n == 2 or "not the JSON" in body["prompt"]:
        return "as I said" if n == 3 else "{'n': '%d'}" % n
    return "none" if n == 3 else "n is %d" % n if n == 1 else '{"n": %d}' % n
"""


def run(root: Path) -> AskingStep:
    step = AskingStep("evergreen.toy", None, root, 7)
    step.plan(str(n) for n in range(4))
    requests = (
        Request(
            "completion",
            "m",
            Sampling(9),
            prompt=f"number {n}",
            schema=FORM,
            seed=n,
            row=str(n),
            purpose=step.name,
        )
        for n in range(4)
    )
    with step.client("openai", "m") as client:
        for end in step.values(client, requests, 4):
            if end.ok:
                step.accept(end.request.row, note=str(end.ending))
            else:
                step.settle_unread(end.request.row, end)
    step.finish(None)
    return step


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedServer:
    (tmp_path / "answers.py").write_text(SCRIPT)
    with ScriptedServer(answers=tmp_path / "answers.py") as started:
        monkeypatch.setenv("HEADRACE_LLM_BASE_URL", started.url)
        monkeypatch.delenv("HEADRACE_LLM_BACKEND", raising=False)
        monkeypatch.delenv("HEADRACE_LLM_MODEL", raising=False)
        yield started


def test_each_item_ends_by_the_ladder_and_a_changed_reader_asks_nothing(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path)
    folder = tmp_path / "data/evergreen/toy"
    counts = json.loads((folder / "outcomes.json").read_text())
    assert (counts["accepted"], counts["unparsable"], counts["answers"]) == (3, 1, 6)
    assert (counts["cost_usd"], counts["answers_unpriced"]) == (0, 6)  # llm.prices does not name the model
    assert counts["notes"] == {"read": 2, "repaired": 1}
    (kept,) = pl.read_parquet(folder / "rejected.parquet").iter_rows(named=True)
    assert (kept["item"], kept["reason"], kept["raw"]) == ("3", "no_value", "none\n---\nas I said")
    assert len(kept["responses"]) == 2 and len(server.requests()) == 6

    def reads_none(text: str, form: Form, before=structured.reading) -> Reading:
        return Reading({"n": 0}) if text == "none" else before(text, form)

    monkeypatch.setattr(structured, "reading", reads_none)
    run(tmp_path)
    again = json.loads((folder / "outcomes.json").read_text())
    assert (again["accepted"], again["unparsable"]) == (4, 0)
    assert len(server.requests()) == 6
