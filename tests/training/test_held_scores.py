"""The scores of train questions that a threshold is chosen on."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.evergreen.eg_e5.calibration import sigmoid
from pipelines.training.crossval import OutOfFold
from pipelines.training.decontaminate import Wording
from pipelines.training.examples import Examples
from pipelines.training.held_scores import COLUMNS, no_scores, scores


def wording(n: int, language: str) -> Wording:
    return Wording(
        f"row {n} {language}", f"q{n}", language, f"question {n}", n % 2 == 0, "real" if n < 9 else "synth"
    )


@pytest.fixture
def found() -> tuple[OutOfFold, Examples]:
    rows = [wording(n, c) for n in range(11, -1, -1) for c in ("fr", "en")]
    drawn = np.random.default_rng(3)
    margins = {"bag": np.array([2.0 * w.evergreen - 1 for w in rows]) + drawn.normal(size=len(rows))}
    told = OutOfFold(
        [w.question_id for w in rows],
        [w.language for w in rows],
        np.array([w.evergreen for w in rows], dtype=int),
        np.array([int(w.question_id[1:]) % 3 for w in rows]),
        margins,
    )
    return told, Examples(rows, [], np.empty((0, 2)))


def test_each_wording_has_its_label_its_source_and_its_score(found: tuple[OutOfFold, Examples]) -> None:
    told, examples = found
    p = sigmoid(told.judged())
    table = scores(told, p, examples)
    assert dict(table.schema) == COLUMNS == dict(no_scores().schema)
    assert table.select("question_id", "language").rows() == sorted(
        zip(told.questions, told.languages, strict=True)
    )
    for row in table.iter_rows(named=True):
        n = int(row["question_id"][1:])
        assert row["label"] == ("evergreen" if n % 2 == 0 else "mutable")
        assert row["source"] == ("real" if n < 9 else "synth")
    at = {(q, c): x for q, c, x in zip(told.questions, told.languages, p, strict=True)}
    for row in table.iter_rows(named=True):
        assert row["p"] == at[row["question_id"], row["language"]]
