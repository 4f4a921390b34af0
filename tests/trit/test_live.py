"""Four problems through the loop with the embedded models, once a language."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.asking import AskingStep
from pipelines.data.language import NEUTRAL, identify, lost_numbers
from pipelines.data.outcomes import Outcome
from pipelines.data.tables import read_parquet
from pipelines.llm.client import open_client
from pipelines.llm.settings import Settings
from pipelines.step import store_path
from pipelines.trit.prompting import LABELS

pytestmark = [pytest.mark.slow, pytest.mark.live]
ROOT = Path(__file__).parents[2]
PROBLEMS = ("add-books", "add-flowers", "mul-baskets", "mul-vases")
# Where the models are good enough that some of their translations pass.
ABLE = ("fr", "pt")


@pytest.fixture(autouse=True)
def models_of_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded backend, with weights that are joined once for all languages."""
    for name in ("HEADRACE_LLM_BACKEND", "HEADRACE_LLM_MODEL", "HEADRACE_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HEADRACE_MODELS", str(ROOT / ".headrace" / "models"))


def run_all(loop: Any, language: str) -> list[AskingStep]:
    rows = (ROOT / "data/raw/trit/problems.jsonl").read_text(encoding="utf-8").split("\n")
    loop.raw("problems.jsonl", "\n".join(r for r in rows if any(f'"{p}"' in r for p in PROBLEMS)))
    loop.run("ingest")
    translate = loop.run("translate", language, samples=1)
    reason = loop.run("reason", language, samples=1)
    return [translate, reason, loop.run("feedback", language)]


@pytest.mark.parametrize("language", sorted(LABELS))
def test_four_problems_pass_the_loop_add_up_and_are_never_asked_again(
    loop: Any, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    translate, reason, feedback = run_all(loop, language)
    data = loop.root / "data" / "trit"
    made = read_parquet(data / "translate" / language / "rows.parquet")
    refused = read_parquet(data / "translate" / language / "rejected.parquet")
    answered = read_parquet(data / "reason" / language / "rows.parquet")
    table = read_parquet(data / "feedback" / language / "rows.parquet")
    assert len(made) + len(refused) == 4
    assert len(reason.ledger.planned) == len(made)
    assert len(answered) + len(reason.ledger.rejected) == len(made)
    assert len(table.filter(kind="translation")) == 4
    assert len(table.filter(kind="reasoning")) == len(made)
    assert feedback.ledger.counts[Outcome.ACCEPTED] == 4 + len(made)
    assert len(made) > 0 or language not in ABLE
    for row in made.iter_rows(named=True):
        assert lost_numbers(row["english"], row["translation"], language) == []
        assert identify(row["translation"], {"en", "fr", "pt", language}) in (language, NEUTRAL)
    _come_from_the_model(loop.root, made)
    assert sum(u[1] for u in translate._usage.values()) > 0
    before = _bytes(data)
    monkeypatch.setenv("HEADRACE_LLM_BACKEND", "replay")  # a question not yet answered would be an error
    run_all(loop, language)
    assert _bytes(data) == before


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def _come_from_the_model(root: Path, made: pl.DataFrame) -> None:
    """Each accepted translation is the text of a stored answer, and none is a given reference."""
    ids = set(made["responses"].explode())
    with open_client(Settings(backend="replay"), store_path(root)) as client:
        stored = client.store.answers(ids)
    assert {stored[r[0]].text.strip() for r in made["responses"]} == set(made["translation"])
    given = read_parquet(root / "data/trit/ingest/rows.parquet").filter(role="reference")
    assert not set(made["parents"].explode()) & set(given["row_id"])
