"""What a signal says of a label or of a search flag is measured on the rows that have both."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines import tracking
from pipelines.data.tables import write_parquet
from pipelines.evaluation import implicit, retrieval_explained
from pipelines.evaluation.uncertainty import SCHEMA
from pipelines.evaluation.worth import apart, strongest, worth
from pipelines.step import Step

HOW: dict[str, Any] = {"draws": 200, "confidence": 0.95, "seed": 1}


def row(key: str, **values: Any) -> dict[str, Any]:
    scores = values.pop("scores", {})
    plain = dict.fromkeys(SCHEMA.columns) | {
        "dataset": "d",
        "key": key,
        "language": "en",
        "question": f"{key}?",
        "golds": [],
        "origin": "told",
        "samples": 0,
        "scores": [{"name": n, "value": v} for n, v in scores.items()],
    }
    return SCHEMA.row(**{**plain, **values})


def ended(
    module: Any, name: str, root: Path, rows: list[dict[str, Any]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """metrics.json and outcomes.json of a stage over these rows."""
    write_parquet(SCHEMA.frame(rows), root / "data" / "evaluation" / "uncertainty" / "rows.parquet")
    step = Step(f"evaluation.{name}", None, root, 7)
    module.run(step, module.Params(bootstrap=50))
    step.finish(None)
    folder = root / "data" / "evaluation" / name
    metrics, outcomes = (json.loads((folder / f"{n}.json").read_text()) for n in ("metrics", "outcomes"))
    return metrics, outcomes


@pytest.fixture(autouse=True)
def untracked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "record", lambda *_: "")


def test_a_signal_is_measured_where_it_is_known() -> None:
    y = np.array([1, 1, 1, 0, 1, 0, 0, 0, 1.0])
    x = np.array([1, 1, 1, 1, 0, 0, 0, 0, math.nan])
    told = worth(y, x, **HOW)
    assert (told["rows"], told["base_rate"]) == (8, 0.5)
    assert told["mcfadden"] == pytest.approx(0.1887219, abs=1e-7)
    assert told["pearson"] == pytest.approx(0.5)
    assert told["low"] < 0.5 < told["high"]
    order = np.random.default_rng(3).permutation(9)
    assert worth(y[order], x[order], **HOW) == told


def test_what_is_undefined_is_null() -> None:
    one_class = worth(np.ones(4), np.arange(4.0), **HOW)
    assert [one_class[k] for k in ("pearson", "low", "mcfadden", "slope")] == [None] * 4
    assert worth(np.full(2, math.nan), np.arange(2.0), **HOW)["rows"] == 0
    apart_far = worth(np.array([0, 0, 1, 1.0]), np.arange(4.0), **HOW)
    assert (apart_far["mcfadden"], apart_far["separated"], apart_far["slope"]) == (1.0, True, None)
    assert strongest({"a": one_class}, {"a"}) is None


def test_two_signals_are_set_apart_on_the_rows_that_have_both() -> None:
    y = np.array([0, 0, 1, 1, 0, 1.0])
    exact, loose = y.copy(), np.array([0, 1, 1, 1, 0, math.nan])
    found = apart(y, exact, loose, **HOW)
    assert found is not None and found["rows"] == 5
    r = float(np.corrcoef(y[:5], loose[:5])[0, 1])
    assert found["value"] == pytest.approx(1.0 - r) and found["times"] == pytest.approx(1.0 / r)
    assert found["low"] >= 0.0
    assert apart(y, np.ones(6), loose, **HOW) is None


def test_implicit_regresses_the_label_on_each_estimate(tmp_path: Path) -> None:
    x, label = [1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 1, 0, 0, 0]
    words = ["mutable", "evergreen"]
    rows = [
        row(f"q{i}", label=words[y], scores={"perplexity": float(v)})
        for i, (v, y) in enumerate(zip(x, label, strict=True))
    ]
    rows += [row("unlabelled", scores={"perplexity": 2.0}), row("unscored", label="mutable")]
    metrics, outcomes = ended(implicit, "implicit", tmp_path, rows)
    assert metrics["estimates"]["perplexity"]["mcfadden"] == pytest.approx(0.188722)
    assert (metrics["evergreen"], metrics["mutable"], metrics["strongest"]) == (4, 4, "perplexity")
    assert metrics["sample"]["demo"] is True
    assert outcomes["accepted"] == 8
    assert outcomes["reasons"] == {"rejected(no_label)": 1, "rejected(no_score)": 1}


def test_retrieval_is_explained_by_the_signal_that_goes_with_it(tmp_path: Path) -> None:
    searched = [True, True, True, False, False, False]
    doubt = [2.0, 1.0, 2.5, 1.5, 1.0, 2.0]
    rows = [
        row(
            f"q{i}",
            searched=s,
            label="mutable" if s else "evergreen",
            p_evergreen=0.1 + 0.1 * i,
            scores={"perplexity": d, "flat": 1.0},
        )
        for i, (s, d) in enumerate(zip(searched, doubt, strict=True))
    ]
    rows.append(row("not logged", label="mutable"))
    metrics, outcomes = ended(retrieval_explained, "retrieval_explained", tmp_path, rows)
    signals = metrics["signals"]
    assert signals["evergreen_label"]["pearson"] == -1.0 and signals["evergreen_label"]["separated"] is True
    assert signals["p_evergreen"]["rows"] == 6 and signals["flat"]["pearson"] is None
    assert (metrics["strongest"], metrics["best_estimate"]) == ("evergreen_label", "perplexity")
    r = float(np.corrcoef(searched, doubt)[0, 1])
    assert metrics["evergreen_minus_best_estimate"]["times"] == pytest.approx(1 / r, abs=1e-5)
    assert outcomes["reasons"] == {"rejected(no_flag)": 1} and metrics["searched"] == 3


def test_a_set_without_flags_or_labels_says_so_and_fails_nothing(tmp_path: Path) -> None:
    rows = [row("q", scores={"perplexity": 1.0})]
    for module, name in ((implicit, "implicit"), (retrieval_explained, "retrieval_explained")):
        metrics, outcomes = ended(module, name, tmp_path, rows)
        assert (outcomes["accepted"], outcomes["rejected"]) == (0, 1)
        assert metrics["sample"]["questions"] == 0 and metrics["strongest"] is None
    assert len(pl.read_parquet(tmp_path / "data/evaluation/implicit/rejected.parquet")) == 1
