"""MLflow is told once what the model calls of each stage came to, whoever ran it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines import tracking
from pipelines.data.told import Record
from pipelines.pace import Figures
from pipelines.progress import Told, keep, untold
from pipelines.tracking_figures import tell_figures

pytestmark = pytest.mark.slow
ASKED = Figures(100, 60, 40, 3, 1.5, 10.0, 7, 2).plain()
METRICS = {
    "rows_per_s": 10.0, "answers": 100.0, "answers_asked": 60.0, "answers_stored": 40.0,
    "answers_failed": 3.0, "answers_over_budget": 7.0, "answers_unpriced": 2.0, "stored_share": 0.3636,
    "cost_usd": 1.5, "seconds": 10.0,
}  # fmt: skip


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("HEADRACE_RUN_ID", "run-7")
    return tmp_path


def runs(root: Path) -> dict[str, Any]:
    import mlflow

    client = mlflow.MlflowClient(tracking.uri(root), tracking.uri(root))
    experiment = client.get_experiment_by_name(tracking.EXPERIMENT)
    found = client.search_runs([experiment.experiment_id])
    assert len({r.info.run_name for r in found}) == len(found), "a stage was told twice"
    return {r.info.run_name: r for r in found}


def test_the_figures_of_a_run_stand_under_it_once(root: Path) -> None:
    said: list[str] = []
    started = tracking.now()
    trained = Record("training.evergreen", started + 5, {}, {"weighted_f1": 0.9})
    tracking.record(root, trained)  # by the stage's own process, this one
    for stage, ended in (("trit.translate@fr", True), ("cbu.rollout", False), ("training.evergreen", True)):
        keep(root, Told(stage, started, ASKED, ended, until=started + 10_000))
    assert tell_figures(root, said.append) == 3
    assert tell_figures(root, said.append) == 0
    found = runs(root)
    assert set(found) == {"run run-7", "trit.translate@fr", "cbu.rollout", "training.evergreen"}
    assert found["trit.translate@fr"].data.metrics == METRICS
    assert found["training.evergreen"].data.metrics == {**METRICS, "weighted_f1": 0.9}
    assert (found["trit.translate@fr"].info.status, found["cbu.rollout"].info.status) == (
        "FINISHED",
        "FAILED",
    )
    assert found["trit.translate@fr"].info.end_time == started + 10_000
    parent = found.pop("run run-7")
    assert {r.data.tags["mlflow.parentRunId"] for r in found.values()} == {parent.info.run_id}
    assert parent.info.status == "FINISHED"
    assert said == [] and list(untold(root)) == []


def test_figures_wait_while_nothing_was_asked_or_mlflow_is_away(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    keep(root, Told("cbu.rollout", 1, Figures(5, 0, 5).plain(), ended=True))
    assert tell_figures(root, said.append) == 0
    assert said == [] and not (root / ".headrace" / "mlflow.db").exists()
    keep(root, Told("trit.reason@fr", 2, ASKED, ended=True))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert tell_figures(root, said.append) == 0
    [line] = said
    assert line.startswith("MLflow is not told the figures") and len(list(untold(root))) == 2
