"""The classifier on all of EverGreenQA, from raw files to the figure."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from pipelines import tracking
from pipelines.cli.stage import run_stage
from pipelines.evergreen.eg_e5.classifier import load

FILES = ("train.csv", "train_synth.csv", "test.csv", "dev.csv")
# Two of seven wordings of a train question are embedded: 11,000 texts in all, minutes on two cores.
PARAMS = """seed: 7
training: {evergreen: {languages_per_question: 2}}
evaluation: {evergreen: {further_splits: []}} # dev would be embedded for its calibration alone
"""


@pytest.mark.timeout(1800)  # of a busy machine
@pytest.mark.real
@pytest.mark.slow
@pytest.mark.live
def test_decontaminated_training_reaches_the_figure_on_the_whole_test(
    real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = tmp_path / "data" / "raw" / "evergreen"
    raw.mkdir(parents=True)
    (tmp_path / "data" / "review" / "evergreen").mkdir(parents=True)
    for name in FILES:
        shutil.copy(real_data / "evergreenqa" / name, raw)
    shutil.copy(Path(__file__).parents[2] / "dvc.yaml", tmp_path)
    (tmp_path / "params.yaml").write_text(PARAMS)
    monkeypatch.setattr(tracking, "record", lambda *_: "")  # tracking has tests of its own
    monkeypatch.setattr(tracking, "evaluated", lambda *_: True)
    for stage in ("evergreen.ingest", "evergreen.curate", "training.evergreen", "evaluation.evergreen"):
        run_stage(stage, None, tmp_path)

    test = pl.read_csv(real_data / "evergreenqa" / "test.csv")
    scored = pl.read_parquet(tmp_path / "data/evaluation/evergreen/rows.parquet")
    assert len(scored) == 7 * len(test)
    figures = json.loads((tmp_path / "data/evaluation/evergreen/metrics.json").read_text())
    mean = {name: figures[name]["weighted_f1"]["mean"]["value"] for name in ("classifier", "constant")}
    assert mean["classifier"] >= 0.86
    share = test["is_evergreen"].mean()
    assert isinstance(share, float)
    assert mean["constant"] == pytest.approx(share * 2 * share / (1 + share), abs=1e-6)
    assert figures["classifier"]["minus"]["without_decontamination"]["value"] < 0  # leaks flatter
    assert figures["classifier"]["minus"]["bag_of_ngrams"]["low"] > 0
    assert figures["sample"]["demo"] is False

    model = load(tmp_path / "data/training/evergreen/model")
    bag = model.bag.margins(scored["question"].to_list(), scored["language"].to_list())
    assert scored["p_bag"].to_list() == model.alone["bag"].predict({"bag": bag}).tolist()
