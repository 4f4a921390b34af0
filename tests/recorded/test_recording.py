"""The recorded answers of a model that sometimes succeeds, replayed: real texts, no weights, no network."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from recording import MODEL, RECORDING, ROOT, TARGETS, headrace, lay, recorded, stale

from pipelines.llm.models import REGISTRY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
REPLAY = {"HEADRACE_STORE": str(RECORDING), "HEADRACE_LLM_BACKEND": "replay"}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("recorded") / "qwen"
    lay(folder)
    headrace(folder, "run", *TARGETS, **REPLAY)
    yield folder


def rows(folder: Path, artifact: str, name: str = "rows") -> pl.DataFrame:
    return pl.read_parquet(folder / "data" / artifact / f"{name}.parquet")


def used(folder: Path) -> set[str]:
    files = [
        p for p in (folder / "data").rglob("*.parquet") if p.name in ("rows.parquet", "rejected.parquet")
    ]
    return {k for p in files for ids in pl.read_parquet(p).get_column("responses").to_list() for k in ids}


def test_the_recording_is_small_and_of_the_model_that_it_names() -> None:
    assert RECORDING.stat().st_size < 2_000_000
    told = pl.read_parquet(RECORDING).filter(pl.col("kind") != "embedding")
    assert set(told["model"]) == {MODEL}
    assert set(told["identity"]) == {REGISTRY[MODEL].identity}
    assert len(told) >= 30


def test_every_recorded_answer_is_still_asked_for(workspace: Path) -> None:
    """If not: a prompt, parameter or input changed. `make record` asks what is new and drops the rest."""
    assert stale(recorded(), used(workspace)) == {}
    assert used(workspace) == set(recorded())


def test_most_recorded_translations_keep_their_numbers(workspace: Path) -> None:
    accepted, rejected = (rows(workspace, "trit/translate/pt", n) for n in ("rows", "rejected"))
    assert len(accepted) > len(rejected)
    for row in accepted.to_dicts():
        numbers = [set(re.findall(r"\d+", row[c])) for c in ("english", "translation")]
        assert numbers[0] <= numbers[1]
        assert row["translation"] != row["english"]


def test_recorded_solutions_are_right_sometimes(workspace: Path) -> None:
    right = rows(workspace, "trit/reason/pt")["r_acc"]
    assert right.sum() > 0


def outcomes(folder: Path, stage: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((folder / f"data/evergreen/{stage}/outcomes.json").read_text())
    return told


def test_recorded_questions_meet_every_rule_or_are_refused_by_one(workspace: Path) -> None:
    told = outcomes(workspace, "synthesize")
    assert sum(told["metrics"]["by_model"].values()) >= 20
    assert sum(told["reasons"].values()) + told["accepted"] == told["items"]
    assert {"rejected(says_its_answer)", "rejected(duplicate)", "rejected(too_long)"} <= told[
        "reasons"
    ].keys()
    made = rows(workspace, "evergreen/synthesize").filter(source="model")
    assert made["question"].str.contains(r"\?$").all() and made["question"].n_unique() == len(made)


def test_the_recorded_model_is_of_another_opinion_on_some_of_its_own_labels(workspace: Path) -> None:
    told = outcomes(workspace, "verify")
    agreed = rows(workspace, "evergreen/verify").filter(label_origin="agreement")
    assert len(agreed) >= 20 and told["reasons"]["rejected(disagreement)"] >= 1
    assert len(agreed) + sum(told["reasons"].values()) == told["metrics"]["asked"]
    cases = (workspace / "data/evergreen/verify/review.jsonl").read_text().splitlines()
    assert len(cases) == told["metrics"]["cases"] == sum(told["reasons"].values())


def test_recorded_translations_keep_the_digits_of_their_source(workspace: Path) -> None:
    told = rows(workspace, "evergreen/translate")
    english = {r["question_id"]: r["question"] for r in told.filter(language="en").to_dicts()}
    made = told.filter(pl.col("translated_from").is_not_null()).to_dicts()
    assert len(made) >= 20 and {r["language"] for r in made} == {"fr", "de"}
    for row in made:
        source = english[row["question_id"]]
        assert row["question"] != source
        assert sorted(re.findall(r"\d+", row["question"])) == sorted(re.findall(r"\d+", source))


def test_recorded_aliases_hold_no_year_that_the_answer_does_not_say(workspace: Path) -> None:
    made = rows(workspace, "evergreen/aliases").filter(alias_state="made").to_dicts()
    assert len(made) >= 20
    for row in made:
        years = {y for alias in row["aliases"] for y in re.findall(r"\d{4}", alias)}
        assert years <= set(re.findall(r"\d{4}", row["answer"]))
    refused = {w for r in rows(workspace, "evergreen/aliases")["aliases_refused"] for w in r}
    assert "added_number: 4 juillet 2023" in refused  # the answer names no year


def test_a_changed_prompt_says_what_it_made_stale(workspace: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(workspace, tmp_path / "changed", symlinks=True))
    (folder / "pipelines").unlink()
    shutil.copytree(ROOT / "pipelines", folder / "pipelines", ignore=shutil.ignore_patterns("__pycache__"))
    prompt = folder / "pipelines/trit/prompts/translate_pt.txt"
    text = prompt.read_text(encoding="utf-8")
    prompt.write_text(text.replace("Lucy has 2 cats", "Lucy has 2 dogs", 1), encoding="utf-8")
    with pytest.raises(subprocess.CalledProcessError) as ended:
        headrace(folder, "trit.translate", "pt", stderr=subprocess.PIPE, **REPLAY)
    said = ended.value.stderr
    count = sum(purpose == "trit.translate@pt" for purpose, _ in recorded().values())
    assert f"replay: no stored answer of {MODEL} to trit.translate@pt of row " in said
    assert "differs from the stored one in prompt: 'English: Lucy has 2 dogs" in said
    assert "where 'English: Lucy has 2 cats" in said
    assert f"{count - 1} more of the requests at hand are not stored" in said
    assert f"{count} answers stored for trit.translate@pt are stale by them (rows " in said
    assert "Traceback" not in said


def test_answers_that_no_row_reaches_are_named_by_stage_and_row() -> None:
    told = {"a": ("trit.translate@fr", "apples#1"), "b": ("trit.translate@fr", "apples#0"), "c": ("cbu", "x")}
    assert stale(told, {"c"}) == {"trit.translate@fr": ["apples#0", "apples#1"]}
