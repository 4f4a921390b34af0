"""The committed questions, facts and observations: each step that can reject rejects something."""

from __future__ import annotations

import csv
import json
import shutil
from collections import Counter
from datetime import date
from pathlib import Path

import polars as pl
import pytest
from evergreen_rows import FILTER, run_curate, run_ingest

from pipelines.data.tables import write_parquet
from pipelines.evergreen import refresh
from pipelines.evergreen.refreshing.ask import refresh as ask
from pipelines.evergreen.refreshing.facts import read_facts
from pipelines.evergreen.schema import CURATED
from pipelines.gates.evergreen import SUITE
from pipelines.step import Step

ROOT = Path(__file__).parents[2]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """The sample inputs, up to the filter, with parts that are the labels (no model takes part here)."""
    shutil.copytree(ROOT / "data/raw/evergreen", tmp_path / "data/raw/evergreen")
    shutil.copytree(ROOT / "data/raw/facts", tmp_path / "data/raw/facts")
    shutil.copytree(ROOT / "data/observations", tmp_path / "data/observations")
    shutil.copytree(ROOT / "data/review", tmp_path / "data/review")
    shutil.copy(ROOT / "params.yaml", tmp_path)
    run_ingest(tmp_path)
    run_curate(tmp_path)
    rows = [
        FILTER.row(
            **{c: r[c] for c in CURATED},
            p_evergreen=0.9 if r["label"] == "evergreen" else 0.1,
            part=r["label"],
            parents=[r["row_id"]],
        )
        for r in pl.read_parquet(tmp_path / "data/evergreen/curate/rows.parquet").iter_rows(named=True)
    ]
    write_parquet(FILTER.frame(rows), tmp_path / "data/evergreen/filter/rows.parquet")
    return tmp_path


def read(root: Path, step: str, name: str = "rows") -> pl.DataFrame:
    return pl.read_parquet(root / f"data/evergreen/{step}/{name}.parquet")


def test_rows_add_up_against_a_count_of_the_files(workspace: Path) -> None:
    with open(ROOT / "data/raw/evergreen/questions.csv", newline="") as f:
        table = list(csv.DictReader(f))
    lines = (ROOT / "data/raw/evergreen/test_questions.jsonl").read_text().splitlines()
    torn = sum(not line.endswith("}") for line in lines)
    assert len(table) + len(lines) - torn == 150
    more = len((ROOT / "data/raw/evergreen/unlabelled.jsonl").read_text().splitlines())
    told = json.loads((workspace / "data/evergreen/ingest/outcomes.json").read_text())
    assert told["rows_in"] == told["items"] == (150 + more) * 3 + torn == told["accepted"] + told["rejected"]
    assert told["reasons"] == {
        "rejected(empty_question)": 1,
        "rejected(unknown_label)": 3,
        "rejected(unreadable)": 1,
    }
    curated = json.loads((workspace / "data/evergreen/curate/outcomes.json").read_text())
    assert curated["rows_in"] == told["rows_out"] == curated["accepted"] + curated["rejected"]
    assert curated["reasons"] == {"rejected(duplicate)": 6, "rejected(label_conflict)": 6}
    assert curated["notes"] == {"leaks into test": 3}


def test_all_change_rates_and_splits_are_there_in_three_languages(workspace: Path) -> None:
    rows = read(workspace, "curate").filter(pl.col("split") != "pool", language="fr")
    assert set(read(workspace, "curate")["language"]) == {"de", "en", "fr"}
    by_rate = Counter(rows["change_rate"])
    assert set(by_rate) == {"never", "slow", "fast"}
    assert min(by_rate.values()) >= 30
    by_split = Counter(rows.select("split", "label").rows())
    assert min(by_split.values()) >= 9
    assert len(by_split) == 6


def test_origin_names_the_line_of_each_row(workspace: Path) -> None:
    lines = {
        name: (ROOT / "data/raw/evergreen" / name).read_text().split("\n")
        for name in ("questions.csv", "test_questions.jsonl", "unlabelled.jsonl")
    }
    rows = read(workspace, "ingest").join(read(workspace, "ingest", "origin"), on="row_id", validate="1:1")
    assert len(rows) == len(read(workspace, "ingest"))
    for row in rows.iter_rows(named=True):
        line = lines[row["file"]][row["line"] - 1]
        assert row["question"] in line.replace('""', '"').replace('\\"', '"')


def test_one_duplicate_shows_in_french_only(workspace: Path) -> None:
    went = read(workspace, "curate", "rejected").filter(reason="duplicate")
    assert "Whose work is the portrait called La Gioconda?" in went["raw"].to_list()
    english = [r for r in went["raw"] if r.startswith("Whose")]
    assert english not in read(workspace, "curate").filter(language="en")["question"].to_list()


def test_the_facts_change_some_answers_and_confirm_some(workspace: Path) -> None:
    facts, bad = read_facts(ROOT / "data/raw/facts/facts.csv", ROOT)
    assert bad == ()
    known = {(r["language"], r["question_key"]) for r in read(workspace, "curate").to_dicts()}
    assert set(facts.answers) <= known
    twice = [[a for _, a in told] for told in facts.answers.values() if len(told) == 2]
    changed = sum(a != b for a, b in twice)
    assert changed >= 30
    assert len(twice) - changed >= 30


def test_the_first_observations_are_folded_and_a_withdrawn_question_is_refused(workspace: Path) -> None:
    step = Step("evergreen.refresh", None, workspace, 7)
    refresh.run(step, refresh.Params())
    step.finish(refresh.SCHEMA, SUITE)
    assert step.ledger.summary()["reasons"] == {"rejected(unknown_question)": 3}
    rows = read(workspace, "refresh").filter(question="Who coaches Corvane FC at the moment?")
    assert rows.select("answer", "valid_from", "valid_to").rows() == [
        ("Tomas Breck", date(2025, 1, 15), None)
    ]


def test_a_refresh_at_the_second_date_keeps_the_old_answer_with_its_validity(workspace: Path) -> None:
    report = ask(workspace, date(2025, 7, 15))
    assert report.changed >= 30
    assert report.confirmed >= 10
    step = Step("evergreen.refresh", None, workspace, 7)
    refresh.run(step, refresh.Params())
    step.finish(refresh.SCHEMA, SUITE)
    rows = read(workspace, "refresh").filter(question="Who coaches Corvane FC at the moment?").sort("version")
    assert rows.select("answer", "valid_from", "valid_to").rows() == [
        ("Tomas Breck", date(2025, 1, 15), date(2025, 7, 15)),
        ("Aline Duroy", date(2025, 7, 15), None),
    ]
