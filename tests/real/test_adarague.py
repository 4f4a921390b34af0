"""AdaRAGUE: the published AUROCs of its scores, and what P(evergreen) adds to them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines import tracking
from pipelines.asking import AskingStep
from pipelines.evaluation import uncertainty
from pipelines.evaluation.correctness import exact
from pipelines.evaluation.known_files import read_folder
from pipelines.evaluation.known_questions import Known
from pipelines.evaluation.known_scores import SURER
from pipelines.evaluation.metrics import auroc
from pipelines.evergreen.eg_e5.bag import BagRecipe, fit_bag
from pipelines.step import Step
from pipelines.training import self_knowledge as sk

pytestmark = pytest.mark.real
SCORES = ("perplexity", "energy_score", "ln_entropy", "eigen_score")


@pytest.fixture(scope="module")
def known(real_data: Path) -> list[Known]:
    folder = real_data / "adarague"
    found = list(read_folder(folder, real_data, set()))
    assert all(isinstance(one, Known) for one in found)
    return [one for one in found if isinstance(one, Known)]


def published(real_data: Path) -> dict[str, list[float]]:
    """Set -> n, correct, and the AUROC of each score as it stands, from the file beside the data."""
    lines = (real_data / "adarague" / "AUROC.txt").read_text().split("\n")
    table = [line.split("\t") for line in lines if "\t" in line]
    assert table[0] == ["set", "n", "correct", *SCORES]
    return {cells[0]: [float(c) for c in cells[1:]] for cells in table[1:]}


def test_the_scores_of_the_sets_that_lie_here_have_their_published_auroc(
    real_data: Path, known: list[Known]
) -> None:
    table = published(real_data)
    here = {one.dataset for one in known if "eigen_score" in one.scores}
    assert {"nq", "squad"} <= here <= table.keys()
    assert [round(table[name][-1], 3) for name in ("nq", "squad", "trivia")] == [0.646, 0.797, 0.760]
    for name in sorted(here):
        rows = [one for one in known if one.dataset == name]
        wrong = np.array([not exact(one.answer or "", one.golds) for one in rows])
        assert [len(rows), int((~wrong).sum())] == table[name][:2]
        for score, expected in zip(SCORES, table[name][2:], strict=True):
            as_told = -1.0 if score in SURER else 1.0
            found = auroc(wrong, as_told * np.array([one.scores[score] for one in rows]))
            assert found == pytest.approx(expected, abs=6e-5), (name, score)


def test_every_question_of_every_set_is_read_once(known: list[Known]) -> None:
    sizes = pl.Series([one.dataset for one in known]).value_counts(sort=True, name="rows")
    assert set(sizes["rows"]) == {500}
    assert len(sizes) >= 5
    asked = {one.dataset for one in known if one.question is not None}
    assert {"2wikimultihopqa", "hotpotqa", "musique"} <= asked
    wiki = {one.key: one for one in known if one.dataset == "2wikimultihopqa"}
    bull = wiki["19041a7f08e111ebbda2ac1f6bf848b6"]
    assert (bull.answer, bull.golds) == ("Halcón Suriano Jr", ("Halcón Suriano Jr.",))
    assert 0.0 <= bull.scores["retrieval_need"] <= 1.0


class Bag:
    """P(evergreen) by a bag of words alone, fitted to EverGreenQA's English train rows."""

    def __init__(self, folder: Path) -> None:
        parts = [pl.read_csv(folder / f"{name}.csv") for name in ("train", "train_synth")]
        rows = pl.concat([part.select("English", "is_evergreen") for part in parts])
        questions, labels = rows["English"].to_list(), rows["is_evergreen"].to_numpy()
        self.bag = fit_bag(BagRecipe(), questions, ["en"] * len(rows), labels, np.ones(len(rows)))

    def predict(self, questions: list[str], languages: list[str], embed: Any) -> np.ndarray:
        return self.bag.predict(questions, languages)


@pytest.mark.slow
def test_what_p_evergreen_adds_is_told_with_an_interval_over_three_repeats(
    real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2WikiMultiHopQA has questions and a score in the public files; NQ has scores and no questions."""
    raw = tmp_path / "data" / "raw" / "self_knowledge"
    for path in (real_data / "adarague").rglob("*"):
        if path.is_file() and ("2wiki" in path.name or "nq_to_nq" in path.name or "nq_ours" in path.name):
            raw.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, raw / path.name)
    monkeypatch.setattr(tracking, "record", lambda *_: "")
    bag = Bag(real_data / "evergreenqa")
    monkeypatch.setattr(uncertainty, "load", lambda folder: bag)
    asking = AskingStep("evaluation.uncertainty", None, tmp_path, 7)
    uncertainty.run(asking, uncertainty.Params(model="smollm2-135m"))
    asking.finish(uncertainty.SCHEMA)
    step = Step("training.self_knowledge", None, tmp_path, 7)
    sk.run(step, sk.Params(estimates=("retrieval_need", "eigen_score"), bootstrap=100))
    step.finish(sk.SCHEMA)

    folder = tmp_path / "data" / "training" / "self_knowledge"
    sets = json.loads((folder / "metrics.json").read_text())["sets"]
    assert "with" not in sets["nq"]["estimates"]["eigen_score"]  # nobody tells its questions
    assert sets["nq"]["estimates"]["eigen_score"]["without"]["auroc"] > 0.55
    told = sets["2wikimultihopqa"]["estimates"]["retrieval_need"]
    assert told["as_it_is"]["auroc"] == pytest.approx(0.7326, abs=1e-4)
    assert told["as_it_is"]["base_rate"] == 172 / 500
    rows = pl.read_parquet(folder / "rows.parquet").filter(pl.col("estimate") == "retrieval_need")
    rows = rows.filter(pl.col("dataset") == "2wikimultihopqa")
    by_arm = {
        arm: [
            auroc(one["correct"].to_numpy(), one["p_correct"].to_numpy())
            for one in rows.filter(pl.col("features") == arm).sort("repeat").partition_by("repeat")
        ]
        for arm in (sk.WITHOUT, sk.WITH)
    }
    apart = np.array(by_arm[sk.WITH], float) - np.array(by_arm[sk.WITHOUT], float)
    found = told["with_minus_without"]["auroc"]
    assert len(apart) == 3 and found["value"] == pytest.approx(apart.mean(), abs=1e-6)
    assert found["better"] == (apart > 0).sum()
    assert found["low"] < found["value"] < found["high"]
