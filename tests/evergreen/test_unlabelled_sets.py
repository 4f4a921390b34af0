"""A question set without labels goes from ingest to the filter, and never into training or a scored test."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from evergreen_rows import FILTER, filtered, history, raw_folder, refresh_frame, run_curate, run_ingest

from pipelines.data.tables import write_parquet
from pipelines.evergreen import filter as parts
from pipelines.evergreen.refreshing.due import can_change
from pipelines.evergreen.refreshing.history import Held
from pipelines.evergreen.schema import CLASSIFIED, CURATED, labelled, questions
from pipelines.gates.evergreen import measures
from pipelines.step import Step

CLASSIFY = questions("evergreen.classify", CLASSIFIED)
HEAD = "is_evergreen,English,French\n"
TRAIN = HEAD + "1,Who built the mill?,Qui a construit le moulin ?\n0,Who runs it?,Qui le gère ?\n"
TEST = HEAD + "1,Who built the dam?,Qui a construit le barrage ?\n0,Who owns it?,Qui le possède ?\n"
ASKED = ("who built the mill", "who is the mayor now", "when was the bridge opened")


@pytest.fixture
def curated(tmp_path: Path) -> pl.DataFrame:
    """The curated rows of a labelled set and of one without labels that repeats a train question."""
    open_set = "".join(json.dumps({"question": q, "answer": ["x"]}) + "\n" for q in ASKED)
    raw_folder(tmp_path, {"train.csv": TRAIN, "test.csv": TEST, "NQ-open.dev.jsonl": open_set})
    run_ingest(tmp_path)
    run_curate(tmp_path)
    return pl.read_parquet(tmp_path / "data/evergreen/curate/rows.parquet")


def test_it_stands_in_no_split_whatever_its_files_name_tells(curated: pl.DataFrame) -> None:
    pool = curated.filter(split="pool")
    assert set(pool.select("label", "change_rate", "label_origin", "source").unique().rows()) == {
        ("unknown", "unknown", "none", "nq_open")
    }
    assert set(pool["question"]) == {*ASKED}
    assert set(labelled(curated)["split"]) == {"train", "test"}
    assert labelled(curated).height == curated.height - len(ASKED)


def test_it_is_in_conflict_with_no_label(curated: pl.DataFrame, tmp_path: Path) -> None:
    went = pl.read_parquet(tmp_path / "data/evergreen/curate/rejected.parquet")
    assert went.filter(reason="label_conflict").is_empty()
    assert "Who runs it?" in curated.filter(split="train")["question"].to_list()


def test_it_is_split_by_the_filter_and_refreshed_by_its_part(curated: pl.DataFrame, tmp_path: Path) -> None:
    rows = [
        CLASSIFY.row(
            **{c: r[c] for c in CURATED},
            p_evergreen=0.2 if "now" in r["question"] else 0.8,
            parents=[r["row_id"]],
        )
        for r in curated.iter_rows(named=True)
    ]
    write_parquet(CLASSIFY.frame(rows), tmp_path / "data/evergreen/classify/rows.parquet")
    step = Step("evergreen.filter", None, tmp_path, 7)
    parts.run(step, parts.Params(threshold=0.5))
    step.finish(FILTER)
    found = pl.read_parquet(step.folder / "rows.parquet").filter(split="pool")
    assert {r["question"]: r["part"] for r in found.to_dicts()} == {
        ASKED[0]: "evergreen",
        ASKED[1]: "mutable",
        ASKED[2]: "evergreen",
    }
    assert {
        r["question"] for r in found.to_dicts() if can_change(r["label"], r["label_origin"], r["part"])
    } == {ASKED[1]}


@pytest.mark.parametrize("p", [0.1, 0.9])
def test_the_gate_calls_an_unknown_label_neither_a_conflict_nor_a_mistake(
    p: float, refresh_rows: Callable[[float], pl.DataFrame]
) -> None:
    told = measures(refresh_rows(p))
    assert told["label_conflicts"] == 0
    assert told["labels_against_rates"] == 0
    assert told["part_is_label"] == 1.0


@pytest.fixture
def refresh_rows() -> Callable[[float], pl.DataFrame]:
    """Histories of a train question and of an unlabelled one of the same words, of probability p."""

    def make(p: float) -> pl.DataFrame:
        held = Held("a", None, None, None, 0, None)
        part = "evergreen" if p > 0.5 else "mutable"
        told = {"label": "unknown", "change_rate": "unknown", "label_origin": "none", "split": "pool"}
        one = filtered("Who built it?", label="evergreen", p_evergreen=0.95)
        other = filtered("who built it", question_id="open", part=part, p_evergreen=p, **told)
        return refresh_frame([*history(one, held), *history(other, held)])

    return make
