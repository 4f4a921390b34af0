"""The verbs answer quickly, in one line when something is wrong, and tell the truth about the graph."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from pipelines.cli import main

HEAVY = ("polars", "dvc", "dagster", "mlflow", "numpy", "pandas", "yaml", "aiohttp", "great_expectations")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "mine"]) == 0
    monkeypatch.chdir(tmp_path / "mine")
    return tmp_path / "mine"


def test_help_loads_nothing_heavy() -> None:
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "pipelines", "--help"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in told.stderr.splitlines()}
    assert loaded & set(HEAVY) == set()
    assert "trace" in told.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu"], "unknown command 'rnu' (did you mean 'run'?)"),
        (["evergreen.curat"], "unknown stage 'evergreen.curat' (did you mean 'evergreen.curate'?)"),
        (["run", "evergreen.curat"], "unknown stage 'evergreen.curat' (did you mean 'evergreen.curate'?)"),
        (["trit.translate"], "stage trit.translate needs one of its entries (add one of fr, pt)"),
        (["trit.translate", "fr", "pt"], "'pt' is one word too many"),
        (["trit.translate", "xx"], "stage trit.translate has no entry 'xx' (known: fr, pt)"),
        (["evergreen.curate", "fr"], "stage evergreen.curate has no entry 'fr'"),
        (["evergreen.curate"], "data/evergreen/ingest/rows.parquet: the artifact is not there"),
        (["refresh", "--as-of", "tomorrow"], "--as-of: 'tomorrow' is not a date"),
        (["trace", "abcdef"], "'abcdef' is no row id of this workspace"),
        (["models", "fetch", "gemma-270m"], "unknown model 'gemma-270m' (did you mean 'gemma3-270m'?)"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_cure(
    workspace: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    capfd.readouterr()
    assert main(arguments) == 1
    error = capfd.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert error.strip().count("\n") == 0


@pytest.mark.parametrize(
    ("arguments", "missing", "cure"),
    [
        (
            ["--single", "evergreen.curate"],
            "data/evergreen/ingest/rows.parquet",
            "headrace run makes it first, without --single",
        ),
        (["evergreen.ingest"], "data/raw/evergreen", "put it back"),
    ],
)
def test_a_stage_whose_input_is_not_there_names_it(
    workspace: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], missing: str, cure: str
) -> None:
    shutil.rmtree(workspace / "data/raw/evergreen")
    assert main(["run", *arguments]) == 1
    assert capfd.readouterr().err.endswith(f" lacks its input {missing} ({cure})\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("sede: 3\n", "params.yaml: unknown key 'sede' (did you mean 'seed'?)"),
        ("evergreen:\n  curat: {}\n", "params.yaml: evergreen: unknown key 'curat' (did you mean 'curate'?)"),
        (
            "llm:\n  concurency: 3\n",
            "params.yaml: llm: unknown key 'concurency' (did you mean 'concurrency'?)",
        ),
        ("evaluation:\n  report: {samples: many}\n", "evaluation.report.samples: must be int, is 'many'"),
        ("seed: [\n", "params.yaml:"),
        ("trit: {languages: fr}\n", "trit.languages: must be a list of at least one word, is 'fr'"),
        ("trit: {languages: []}\n", "trit.languages: must be a list of at least one word, is []"),
        ("trit: {languages: [fr, fr]}\n", "trit.languages: 'fr' stands twice"),
        ("trit: {languages: [fr, no]}\n", "trit.languages: False is no plain word"),
        ("trit: {languages: ['fr; touch made']}\n", "trit.languages: 'fr; touch made' is no plain word"),
    ],
)
def test_a_wrong_params_file_stops_a_run_before_it_starts(
    workspace: Path, capfd: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    path = workspace / "params.yaml"
    try:
        told = yaml.safe_load(line)
    except yaml.YAMLError:
        path.write_text(line)
    else:
        path.write_text(yaml.safe_dump(laid_over(yaml.safe_load(path.read_text()), told)))
    capfd.readouterr()
    for verb in ("run", "status"):
        assert main([verb]) == 1
        assert message in capfd.readouterr().err
    assert not (workspace / "data" / "evergreen").exists()


def laid_over(base: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {
        **base,
        **{k: laid_over(base[k], v) if k in base and isinstance(v, dict) else v for k, v in other.items()},
    }


def test_outside_a_workspace_the_cure_is_init(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (["run"], ["status"], ["evergreen.curate"]):
        assert main(arguments) == 1
        assert "headrace init DIR" in capfd.readouterr().err


def _let_templates_make_questions(workspace: Path) -> None:
    """So that no stage up to curate asks a model."""
    path = workspace / "params.yaml"
    params = yaml.safe_load(path.read_text())
    params["evergreen"]["synthesize"]["by_model"] = 0.0
    for step in ("verify", "translate", "aliases"):
        params["evergreen"][step]["sources"] = ["model"]
    path.write_text(yaml.safe_dump(params, sort_keys=False))


def test_a_run_of_some_stages_status_and_trace_agree(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _let_templates_make_questions(workspace)
    assert main(["run", "evergreen.curate"]) == 0
    assert "6 stages made" in capfd.readouterr().out
    assert main(["run", "evergreen.curate"]) == 0
    assert "nothing to be done: 6 stages up to date" in capfd.readouterr().out

    assert main(["status", "--json"]) == 0
    told = {s["stage"]: s for s in json.loads(capfd.readouterr().out)["stages"]}
    rows = pl.read_parquet("data/evergreen/curate/rows.parquet")
    curate = told["evergreen.curate"]
    assert curate["fresh"] is True
    made = told["evergreen.aliases"]["rows_out"]
    assert made > 0 and curate["rows_in"] == told["evergreen.ingest"]["rows_out"] + made
    assert curate["accepted"] + curate["rejected"] + curate["other"] == curate["rows_in"]
    assert curate["rows_out"] == len(rows)
    assert (told["evergreen.filter"]["rows_in"], told["evergreen.filter"]["fresh"]) == (None, False)

    row = rows.filter(source="real").row(0, named=True)
    assert main(["trace", row["row_id"]]) == 0
    tree = capfd.readouterr().out
    assert f"evergreen/curate  {row['row_id']}" in tree
    assert f"evergreen/ingest  {row['parents'][0]}" in tree
    origin = pl.read_parquet("data/evergreen/ingest/origin.parquet")
    place = origin.filter(pl.col("row_id") == row["parents"][0]).row(0, named=True)
    assert f"raw: data/raw/evergreen/{place['file']}:{place['line']}" in tree


def test_a_changed_parameter_reruns_only_what_depends_on_it(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _let_templates_make_questions(workspace)
    assert main(["run", "evergreen.synthesize", "egoavu.ingest"]) == 0
    path = workspace / "params.yaml"
    path.write_text(path.read_text().replace("limit: 0", "limit: 50", 1))
    capfd.readouterr()
    assert main(["run", "evergreen.synthesize", "egoavu.ingest"]) == 0
    said = capfd.readouterr().err
    assert "evergreen.ingest" in said
    assert "evergreen.synthesize" in said
    assert "egoavu.ingest" not in said


def test_a_python_without_the_environment_is_told_how_to_get_it() -> None:
    bare = [sys.executable, "-S", "-m", "pipelines", "evergreen.curate"]  # -S: no site-packages
    ran = subprocess.run(bare, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "this Python lacks the package 'polars'" in ran.stderr
    assert ". .venv/bin/activate" in ran.stderr
    assert "Traceback" not in ran.stderr
