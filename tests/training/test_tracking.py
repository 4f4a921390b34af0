"""MLflow on a SQLite of its own: the tree of runs, what a run tells, who is champion."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines import tracking, tracking_store
from pipelines.data.tables import file_md5
from pipelines.data.told import Data, Model, Record, code_commit
from pipelines.errors import EnvironmentFault
from pipelines.evergreen.eg_e5.classifier import BagRecipe, Classifier, HeadRecipe, fit_bag, fit_head
from pipelines.evergreen.eg_e5.served import NAME, registered

pytestmark = pytest.mark.slow
QUESTIONS = ["who was it", "how old is it"] * 10


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's empty tables, which take seconds to make, made once."""
    root = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        tracking_store.prepared(root)
    return root / ".headrace" / "mlflow.db"


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty workspace with an artifact that was read."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("HEADRACE_RUN_ID", raising=False)
    (tmp_path / "rows.parquet").write_bytes(b"rows of some version")
    return tmp_path


@pytest.fixture
def root(fresh: Path, database: Path) -> Path:
    """The same, where MLflow was used before."""
    (fresh / ".headrace").mkdir()
    shutil.copyfile(database, fresh / ".headrace" / "mlflow.db")
    return fresh


def told(root: Path, stage: str = "training.evergreen") -> Record:
    data = [Data("evergreen/curate", root / "rows.parquet", "training")]
    figures = {
        "weighted_f1": {"mean": {"value": 0.9, "low": 0.8, "high": 0.95}},
        "what": "words are no metric",
    }
    return Record(
        stage, tracking.now(), {"bag": {"c": 8.0}, "seed": 7}, figures, data, {"plot.svg": "<svg/>"}
    )


def model(root: Path, seed: int) -> Model:
    labels = np.array([1, 0] * 10)
    vectors = np.random.default_rng(seed).normal(size=(20, 384)).astype(np.float32)
    bag = fit_bag(BagRecipe(), QUESTIONS, ["en"] * 20, labels, np.ones(20))
    head = fit_head(HeadRecipe(hidden=2, epochs=1, min_steps=1), vectors, labels, np.ones(20), seed)
    folder = root / f"model{seed}"
    Classifier(bag, head).save(folder)
    return registered(folder)


def client(root: Path) -> Any:
    import mlflow

    return mlflow.MlflowClient(tracking.uri(root), tracking.uri(root))


def test_a_run_tells_params_metrics_with_bounds_data_version_commit_and_plot(root: Path) -> None:
    run = client(root).get_run(tracking.record(root, told(root)))
    assert run.data.params == {"bag.c": "8.0", "seed": "7"}
    assert run.data.metrics == {
        "weighted_f1.mean.value": 0.9,
        "weighted_f1.mean.low": 0.8,
        "weighted_f1.mean.high": 0.95,
    }
    version = file_md5(root / "rows.parquet")
    assert run.data.tags["data_version.evergreen.curate"] == version
    assert run.data.tags["headrace.stage"] == "training.evergreen"
    assert run.data.tags["headrace.commit"] == code_commit()
    (read,) = run.inputs.dataset_inputs
    assert (read.dataset.name, read.dataset.digest) == ("evergreen/curate", version)
    assert [(t.key, t.value) for t in read.tags] == [("mlflow.data.context", "training")]
    assert [a.path for a in client(root).list_artifacts(run.info.run_id)] == ["plot.svg"]
    assert run.info.status == "FINISHED"
    assert Path(run.info.artifact_uri.removeprefix("file://")).is_relative_to(
        root / ".headrace" / "mlartifacts"
    )


def test_stages_of_one_pipeline_run_share_a_parent_and_others_stand_alone(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = tracking.record(root, told(root))
    monkeypatch.setenv("HEADRACE_RUN_ID", "2026-a")
    children = [tracking.record(root, told(root, s)) for s in ("training.evergreen", "evaluation.evergreen")]
    monkeypatch.setenv("HEADRACE_RUN_ID", "2026-b")
    other = tracking.record(root, told(root))
    parent = [client(root).get_run(r).data.tags.get("mlflow.parentRunId") for r in (alone, *children, other)]
    assert parent[0] is None
    assert parent[1] == parent[2] is not None
    assert parent[3] not in (None, parent[1])
    assert client(root).get_run(parent[1]).info.run_name == "run 2026-a"
    assert client(root).get_run(parent[1]).info.status == "FINISHED"


def test_the_champion_changes_only_for_a_model_that_is_not_worse(root: Path) -> None:
    def alias(name: str) -> str:
        return str(client(root).get_model_version_by_alias(NAME, name).version)

    def judge(seed: int, figure: float, test: str = "t1", floor: float = 0.6) -> bool:
        return tracking.evaluated(
            root, told(root, "evaluation.evergreen"), model(root, seed), figure, test, floor
        )

    assert judge(1, 0.80)
    assert (alias("candidate"), alias("champion")) == ("1", "1")
    assert not judge(2, 0.79)
    assert (alias("candidate"), alias("champion")) == ("2", "1")
    assert judge(3, 0.81)
    assert alias("champion") == "3"
    assert judge(3, 0.81)  # the same files again: no new version
    assert (alias("candidate"), alias("champion")) == ("3", "3")
    assert judge(4, 0.70, test="t2")  # other test data: the old figure says nothing
    assert alias("champion") == "4"
    assert not judge(5, 0.59, test="t3")  # below the constant answer
    assert alias("champion") == "4"


def test_the_champion_is_compared_by_the_verdicts_of_both_where_they_are_kept(root: Path) -> None:
    """Paired: 40 questions; half a point less is not worse, a dozen more mistakes are."""
    from pipelines.evaluation.promotion import judged

    labels = [i % 4 != 0 for i in range(40)]

    def judge(seed: int, mistakes: int, figure: float) -> bool:
        said = [y != (i < mistakes) for i, y in enumerate(labels)]
        rows = [(f"q{i:02}", "en", y, p) for i, (y, p) in enumerate(zip(labels, said, strict=True))]
        verdicts = judged(rows, 500, 0.95, 7)
        record = told(root, "evaluation.evergreen")
        return tracking.evaluated(root, record, model(root, seed), figure, "t1", 0.5, verdicts)

    assert judge(1, 2, 0.95)
    assert judge(2, 3, 0.945)  # one mistake more, within what chance gives
    assert not judge(3, 15, 0.99)  # whatever its figure says
    version = client(root).get_model_version_by_alias(NAME, "champion")
    assert str(version.version) == "2"
    kept = client(root).download_artifacts(version.tags["verdicts"], "verdicts.json")
    assert len(json.loads(Path(kept).read_text())) == 40


def test_the_registered_model_predicts_as_the_folder_and_holds_no_pickle(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow
    import pandas as pd

    kept = model(root, 1)
    tracking.record(root, told(root), kept)
    artifacts = root / ".headrace" / "mlartifacts"
    assert [p for p in artifacts.rglob("*") if p.suffix in (".pkl", ".pickle", ".joblib")] == []
    names = {p.name for p in artifacts.rglob("*") if p.is_file()}
    assert {"arrays.npz", "model.json", "vocabulary.json", "classifier.py"} <= names
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking.uri(root))
    loaded = mlflow.pyfunc.load_model(f"models:/{NAME}@candidate")
    frame = pd.DataFrame({"question": ["who was it", "wer war das"], "language": ["en", "de"]})
    got = loaded.predict(frame)["p_evergreen"].to_numpy()
    from pipelines.evergreen.eg_e5.served import _load_pyfunc

    np.testing.assert_array_equal(
        got, _load_pyfunc(str(kept.folder)).predict(frame)["p_evergreen"].to_numpy()
    )


def test_tracking_leaves_the_environment_as_it_was(root: Path) -> None:
    before = dict(os.environ)
    tracking.record(root, told(root), model(root, 1))
    assert {k for k in os.environ if k.startswith("MLFLOW_") and k not in tracking.QUIET} == {
        k for k in before if k.startswith("MLFLOW_") and k not in tracking.QUIET
    }


def _record(root: Path) -> None:
    tracking.record(root, told(root))


def test_two_stages_may_make_and_fill_the_database_at_once(fresh: Path) -> None:
    root = fresh
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=_record, args=(root,)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [p.exitcode for p in both] == [0, 0]
    experiment = client(root).get_experiment_by_name(tracking.EXPERIMENT)
    assert len(client(root).search_runs([experiment.experiment_id])) == 2


def test_a_run_whose_process_died_is_marked_killed_by_the_next(root: Path) -> None:
    first = tracking.record(root, told(root))
    code = "import os; print(os.getpid())"
    gone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    mlflow = client(root)
    process = mlflow.get_run(first).data.tags["headrace.process"]
    mlflow.set_tag(first, "headrace.process", f"{process.split(':')[0]}:{gone.stdout.strip()}")
    mlflow.update_run(first, status="RUNNING")
    tracking.record(root, told(root))
    assert mlflow.get_run(first).info.status == "KILLED"


def test_a_database_half_made_by_a_killed_first_use_is_made_anew(fresh: Path) -> None:
    root = fresh
    (root / ".headrace").mkdir()
    with sqlite3.connect(root / ".headrace" / ".mlflow.db.tmp") as torn:
        torn.execute("create table alembic_version (version_num text)")
        torn.execute("insert into alembic_version values ('0000000000ff')")
    tracking.record(root, told(root))
    assert (root / ".headrace" / "mlflow.db").is_file()
    assert not (root / ".headrace" / ".mlflow.db.tmp").exists()


def test_a_folder_version_is_what_dvc_calls_it(root: Path) -> None:
    from dvc.repo import Repo

    kept = model(root, 1)
    Repo.init(str(root), no_scm=True).close()
    with Repo(str(root)) as repo:
        (stage,) = repo.add(str(kept.folder))
        assert kept.version == stage.outs[0].hash_info.value


def test_a_server_that_does_not_answer_is_one_error_with_its_cure(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(EnvironmentFault, match="unset MLFLOW_TRACKING_URI"):
        tracking.record(root, told(root))


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        ("locked", "database is locked .end the process that holds it"),
        ("version", "out-of-date database schema .* .move it away"),
        ("torn", "database disk image is malformed .move it away"),
    ],
)
def test_a_database_that_cannot_be_used_is_one_error_that_names_it(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], damage: str, what: str
) -> None:
    monkeypatch.setattr(tracking_store, "WAIT_S", 0.1)
    path = root / ".headrace" / "mlflow.db"
    holder = sqlite3.connect(path, isolation_level=None)
    if damage == "locked":
        holder.execute("begin exclusive")
    elif damage == "version":
        holder.execute("update alembic_version set version_num = 'abcdefabcdef'")
    else:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(EnvironmentFault, match=f"^.headrace/mlflow.db: MLflow does not answer: .*{what}"):
        tracking.record(root, told(root))
    holder.close()
    assert "Traceback" not in capfd.readouterr().err


def test_where_nobody_can_say_who_is_champion_nobody_becomes_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow
    from mlflow.exceptions import MlflowException

    def judge(seed: int, figure: float) -> bool:
        record = told(root, "evaluation.evergreen")
        return tracking.evaluated(root, record, model(root, seed), figure, "t1", 0.5)

    assert judge(1, 0.9)
    asked = mlflow.MlflowClient.get_model_version_by_alias

    def silent(self: Any, name: str, alias: str) -> Any:
        if alias == "champion":
            raise MlflowException("the server has no time")
        return asked(self, name, alias)

    with monkeypatch.context() as patch:
        patch.setattr(mlflow.MlflowClient, "get_model_version_by_alias", silent)
        with pytest.raises(EnvironmentFault, match="the server has no time"):
            judge(2, 0.6)
    assert str(client(root).get_model_version_by_alias(NAME, "champion").version) == "1"
