"""AdaRAGUE: the published AUROCs of its scores, and what P(evergreen) adds to them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.evaluation.correctness import exact
from pipelines.evaluation.known_files import read_folder
from pipelines.evaluation.known_questions import Known
from pipelines.evaluation.known_scores import SURER
from pipelines.evaluation.metrics import auroc

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
