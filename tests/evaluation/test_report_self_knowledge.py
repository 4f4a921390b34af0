"""The self-knowledge section of the report: each table says what the figures say, and what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_worth import row

from pipelines import tracking
from pipelines.data.tables import write_parquet
from pipelines.evaluation import implicit, report_plots, report_self_knowledge, retrieval_explained
from pipelines.evaluation.report_tables import Table
from pipelines.evaluation.uncertainty import SCHEMA
from pipelines.step import Step
from pipelines.training import self_knowledge
from pipelines.training.self_grids import GRIDS, THIN


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the stages make of thirty questions; the outs of a set without P(evergreen) beside them."""
    monkeypatch.setattr(tracking, "record", lambda *_: "")
    monkeypatch.setitem(GRIDS, "thin", {"logistic_regression": THIN["logistic_regression"]})
    rng = np.random.default_rng(2)
    rows = []
    for i in range(30):
        right = i % 3 == 0
        told = {"correct": right, "label": "evergreen" if i % 2 else "mutable", "searched": i % 2 == 0}
        score = {"perplexity": float(rng.normal() - right)}
        rows.append(row(f"a{i}", dataset="a", p_evergreen=float(rng.random()), scores=score, **told))
        rows.append(row(f"b{i}", dataset="b", scores=score, correct=right))
    data = tmp_path / "data"
    write_parquet(SCHEMA.frame(rows), data / "evaluation" / "uncertainty" / "rows.parquet")
    params = self_knowledge.Params(bootstrap=50, repeats=2)
    for module, name, values in (
        (self_knowledge, "training.self_knowledge", params),
        (implicit, "evaluation.implicit", implicit.Params(50)),
        (retrieval_explained, "evaluation.retrieval_explained", retrieval_explained.Params(50)),
    ):
        step = Step(name, None, tmp_path, 7)
        module.run(step, values)
        step.finish(getattr(module, "SCHEMA", None))
    return data


def told(data: Path, name: str) -> dict[str, Any]:
    return dict(json.loads((data / name / "metrics.json").read_text()))


def line(table: Table, name: str) -> list[str]:
    (found,) = [list(r) for r in table.rows if r[0] == name]
    return found


def test_every_arm_has_a_line_and_the_difference_its_bounds(data: Path) -> None:
    arms, knows, search = report_self_knowledge.tables(data)
    own = told(data, "training/self_knowledge")["sets"]["a"]["estimates"]["perplexity"]
    assert line(arms, "a, perplexity")[1:4] == [
        f"{own['without'][k]:.3f}" for k in ("auroc", "auprc", "base_rate")
    ]
    assert line(arms, "a, perplexity and P(evergreen)")[4:] == [f"{own['with']['prr']:.3f}", "15"]
    apart = own["with_minus_without"]["auroc"]
    assert line(arms, "a, perplexity: difference")[1] == "{value:.3f} ({low:.3f} to {high:.3f})".format(
        **apart
    )
    assert [r[0] for r in arms.rows if r[0].startswith("b")] == ["b, perplexity"]
    assert all(len(r) == len(table.columns) for table in (arms, knows, search) for r in table.rows)
    r = told(data, "evaluation/retrieval_explained")["signals"]["perplexity"]["pearson"]
    assert line(search, "perplexity")[3].startswith(f"{r:.3f} (")
    assert line(search, "evergreen label")[1:3] == ["30", "separated"]
    assert line(knows, "perplexity")[1] == "30"


def test_few_questions_are_called_few_in_every_table(data: Path) -> None:
    for table in report_self_knowledge.tables(data):
        assert "too few to speak of quality" in table.note


def test_the_plot_is_the_same_twice(data: Path) -> None:
    first = report_plots.self_knowledge(data)
    assert first.count("<svg") == 1 and first == report_plots.self_knowledge(data)
