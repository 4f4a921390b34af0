"""A workspace on public files runs to its end, and its rows add up against an independent count."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.cli import main
from pipelines.graph import stages
from tests.llm.scripted_server import ScriptedServer

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(900)]
ANSWERS = Path(__file__).parents[1] / "chaos" / "answers.py"
LIMITS = {
    "evergreen.ingest.limit": 60,
    "egoavu.ingest.limit": 3,
    "trit.ingest.limit": 4,
    "cbu.ingest.limit": 6,
}
OUTCOMES = ("accepted", "rejected", "refused", "unparsable", "unverified", "failed", "over_budget")


def sources(data: Path) -> list[str]:
    files = {
        "evergreen": [f"evergreenqa/{n}.csv" for n in ("train", "test", "dev", "train_synth")],
        "egoavu": ["epic/aligned"],
        "trit": [f"mgsm/mgsm_{x}.tsv" for x in ("en", "fr", "th")],
        "cbu": ["champ/v0_without_conversations.json"],
    }
    return [part for e, paths in files.items() for p in paths for part in ("--source", f"{e}={data / p}")]


@pytest.fixture(scope="module")
def workspace(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real")
    sets = [part for key, value in LIMITS.items() for part in ("--set", f"{key}={value}")]
    sets += ["--set", "trit.languages=[fr, th]", "--set", "egoavu.filter.tau=0.1"]
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert main(["init", "mine", *sources(real_data), *sets]) == 0
    finally:
        os.chdir(before)
    with ScriptedServer(answers=ANSWERS) as server:
        env = {**os.environ, "HEADRACE_LLM_BACKEND": "openai", "HEADRACE_LLM_BASE_URL": server.url}
        ran = subprocess.run(
            [sys.executable, "-m", "pipelines", "run"], cwd=folder / "mine", env=env,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-4000:]
    return folder / "mine"


def seen(workspace: Path, folder: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((workspace / "data" / folder / "outcomes.json").read_text())
    return found


def test_every_item_of_every_stage_has_one_outcome_and_a_row_or_a_reject(workspace: Path) -> None:
    folders = [p.parent for p in sorted((workspace / "data").glob("*/**/outcomes.json"))]
    assert len(folders) == len(stages(workspace)) - 1  # the report counts nothing
    for folder in folders:
        counts = json.loads((folder / "outcomes.json").read_text())
        assert sum(counts[o] for o in OUTCOMES) == counts["items"], folder
        rejected = pl.read_parquet(folder / "rejected.parquet")
        assert len(rejected) == counts["items"] - counts["accepted"], folder
        assert rejected["item"].n_unique() == len(rejected), folder
        if counts["rows_out"] is not None:
            rows = pl.read_parquet(folder / "rows.parquet")
            assert len(rows) == counts["rows_out"], folder
            assert rows["row_id"].n_unique() == len(rows), folder
            assert rows["row_id"].is_sorted(), folder


def test_every_parent_of_every_row_exists(workspace: Path) -> None:
    rows = [
        pl.read_parquet(p, columns=["row_id", "parents"])
        for name in ("rows", "rejected")
        for p in sorted((workspace / "data").glob(f"*/**/{name}.parquet"))
    ]
    known = set(pl.concat([r.select("row_id") for r in rows])["row_id"])
    parents = set(pl.concat([r.select(pl.col("parents").explode()) for r in rows])["parents"].drop_nulls())
    assert parents - known == set()
    assert len(parents) > 1000


def test_every_wording_of_the_questions_read_is_accepted_or_rejected(workspace: Path) -> None:
    """Counted with the standard library's reader, not with the project's."""
    wordings = 0
    for path in sorted((workspace / "data" / "raw" / "evergreen").glob("*.csv")):
        with open(path, encoding="utf-8", newline="") as f:
            rows = list(csv.DictReader(f))[: LIMITS["evergreen.ingest.limit"]]
        languages = ("English", "Russian", "French", "German", "Hebrew", "Arabic", "Chinese")
        wordings += sum(x in row for row in rows for x in languages)
    ingest = seen(workspace, "evergreen/ingest")
    assert wordings == 4 * 60 * 7
    assert ingest["accepted"] + ingest["rejected"] == ingest["items"] == wordings
    made = [seen(workspace, f"evergreen/{s}") for s in ("synthesize", "verify", "translate", "aliases")]
    curate, *below_it = (seen(workspace, f"evergreen/{s}") for s in ("curate", "classify", "filter"))
    assert curate["rows_in"] == ingest["rows_out"] + made[-1]["rows_out"]
    for above, below in (*pairwise([ingest, *made]), *pairwise([curate, *below_it])):
        assert below["rows_in"] == above["rows_out"]
    for told in (*made, curate, *below_it):
        assert told["items"] == sum(told[outcome] for outcome in OUTCOMES)


def test_the_problems_and_their_translations_add_up(workspace: Path) -> None:
    limit = LIMITS["trit.ingest.limit"]
    ingest = seen(workspace, "trit/ingest")
    assert ingest["items"] == ingest["accepted"] == 3 * limit
    for language in ("fr", "th"):
        translate, reason = (seen(workspace, f"trit/{s}/{language}") for s in ("translate", "reason"))
        assert translate["items"] == 2 * limit  # K = 2
        assert reason["items"] == 4 * translate["accepted"]  # G = 4
        feedback = pl.read_parquet(workspace / "data" / "trit" / "feedback" / language / "rows.parquet")
        kinds = dict(feedback.group_by("kind").len().iter_rows())
        assert kinds.get("translation", 0) == translate["items"]
        assert kinds.get("reasoning", 0) == reason["items"]


def test_the_annotations_of_the_videos_read_are_accepted_or_rejected(workspace: Path) -> None:
    ingest = seen(workspace, "egoavu/ingest")
    assert ingest["accepted"] > 100
    questions = pl.read_parquet(workspace / "data" / "egoavu" / "questions" / "rows.parquet")
    assert set(questions["task"]) == {"SSA", "AVSN", "AVDN", "TR", "AVH"}


def test_every_rollout_belongs_to_a_candidate_and_a_neighbor(workspace: Path) -> None:
    rollout = seen(workspace, "cbu/rollout")
    neighbors = pl.read_parquet(workspace / "data" / "cbu" / "neighbors" / "rows.parquet")
    candidates = pl.read_parquet(workspace / "data" / "cbu" / "score" / "rows.parquet")
    assert rollout["items"] >= 4 * len(neighbors)
    assert len(candidates) > 0
