"""`headrace init` makes a whole workspace or nothing, and says what is wrong in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from pipelines.cli import init, main
from pipelines.data.config import read_params

QUESTIONS = ",is_evergreen,English\n0,1,Who wrote Faust?\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.csv").write_text(QUESTIONS)
    return tmp_path


def names(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def test_a_workspace_holds_the_graph_the_knobs_the_code_and_the_inputs(here: Path) -> None:
    assert main(["init", "mine"]) == 0
    mine = here / "mine"
    assert {"dvc.yaml", "params.yaml", ".dvc/config", ".gitignore"} <= names(mine)
    assert (mine / "pipelines").is_symlink()
    assert (mine / "pipelines" / "step.py").is_file()
    sample = Path(__file__).parents[2] / "data"
    for part in ("raw", "observations", "review"):
        assert names(mine / "data" / part) == names(sample / part)


def test_a_given_source_stands_in_for_the_sample_and_is_copied(here: Path) -> None:
    assert main(["init", "mine", "--source", "evergreen=train.csv"]) == 0
    raw = here / "mine" / "data" / "raw"
    assert names(raw / "evergreen") == {"train.csv"}
    assert not (raw / "evergreen" / "train.csv").is_symlink()
    assert names(raw / "trit") == names(Path(__file__).parents[2] / "data" / "raw" / "trit")
    for part in ("observations", "review"):
        assert names(here / "mine" / "data" / part) == {"evergreen/.gitkeep"}


def test_answers_with_scores_of_ones_own_stand_in_for_the_samples(here: Path) -> None:
    (here / "mine.jsonl").write_text('{"question": "Who wrote Faust?", "correct": 1, "perplexity": 1.5}\n')
    assert main(["init", "mine", "--source", "self_knowledge=mine.jsonl"]) == 0
    assert names(here / "mine" / "data" / "raw" / "self_knowledge") == {"mine.jsonl"}


def test_a_source_may_be_repeated_and_a_folder_keeps_its_shape(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "more" / "aliases").mkdir(parents=True)
    (here / "more" / "test.csv").write_text(QUESTIONS)
    (here / "more" / "aliases" / "test_aliases.csv").write_text(QUESTIONS)
    (here / "more" / "README.md").write_text("not data")
    assert main(["init", "mine", "--source", "evergreen=train.csv", "--source", "evergreen=more"]) == 0
    found = names(here / "mine" / "data" / "raw" / "evergreen")
    assert found == {"train.csv", "more/test.csv", "more/aliases/test_aliases.csv"}
    assert "evergreen: no data, not copied from more: README.md\n" in capsys.readouterr().out


def test_a_workspace_has_the_projects_own_comments_and_a_set_parameter_changes_its_line_alone(
    here: Path,
) -> None:
    assert main(["init", "mine"]) == 0
    project = (init.PROJECT / "params.yaml").read_text()
    assert (here / "mine" / "params.yaml").read_text() == project
    assert main(["init", "other", "--set", "trit.languages=[ja, ko]"]) == 0
    changed = project.replace("languages: [fr, pt] # paper: fr", "languages: [ja, ko] # paper: fr")
    assert changed != project
    assert (here / "other" / "params.yaml").read_text() == changed


def test_a_parameter_can_be_set(here: Path) -> None:
    assert main(["init", "mine", "--set", "trit.languages=[ja]", "--set", "seed=11"]) == 0
    params = yaml.safe_load((here / "mine" / "params.yaml").read_text())
    assert (params["trit"]["languages"], params["seed"]) == (["ja"], 11)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("evergreen.ingest.labels", {"no": "mutable", "0": "evergreen", "oui": "evergreen"}),
        ("evergreen.synthesize.topics", ["1", "on", "a: b", "Wörter, # und Zeichen", ""]),
        ("evergreen.synthesize.model", "null"),
        ("llm.caps", {"run": {"usd": 0.5}, "stage": {"tokens": 10}}),
        ("training.evergreen.encoder.prefix", "query: " * 30),
    ],
)
def test_what_is_set_is_what_is_read(here: Path, name: str, value: object) -> None:
    assert main(["init", "mine", "--set", f"{name}={json.dumps(value)}"]) == 0
    told = read_params(here / "mine" / "params.yaml")
    for key in name.split("."):
        told = told[key]
    assert told == value


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--source", "evergren=train.csv"], "unknown engine 'evergren' (did you mean 'evergreen'?)"),
        (["--source", "evergreen=gone.csv"], "gone.csv: no such file or folder"),
        (["--source", "evergreen"], "'evergreen' is not ENGINE=PATH"),
        (["--source", "evergreen=notes.txt"], "notes.txt: unknown suffix '.txt'"),
        (["--source", "evergreen=void"], "holds no data files"),
        (["--profile", "dema"], "unknown profile 'dema' (did you mean 'demo'?)"),
        (["--set", "trit.languges=[fr]"], "unknown key 'languges' (did you mean 'languages'?)"),
        (["--set", "seed=many"], "params.yaml: seed: must be int, is 'many'"),
        (["--set", "trit.languages=[fr"], "--set trit.languages: '[fr' is not a YAML value"),
        (["--source", "evergreen=ring.csv"], "ring.csv: is a link to itself"),
        (["--source", "evergreen=\udcff.csv"], "the file's name is not UTF-8 (rename it)"),
        (["--sauce", "x"], "unrecognized arguments: --sauce"),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_is_made(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (here / "notes.txt").write_text("x")
    (here / "void").mkdir()
    (here / "ring.csv").symlink_to("ring.csv")
    (here / "\udcff.csv").write_text(QUESTIONS)
    before = names(here)
    assert main(["init", "mine", *arguments]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert names(here) == before
    assert not (here / "mine").exists()


def test_a_folder_with_something_in_it_is_left_alone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "mine").mkdir()
    (here / "mine" / "thesis.tex").write_text("years of work")
    assert main(["init", "mine"]) == 1
    assert "exists already and is not empty" in capsys.readouterr().err
    assert names(here / "mine") == {"thesis.tex"}


def test_two_files_of_one_name_are_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "more").mkdir()
    (here / "more" / "train.csv").write_text(QUESTIONS)
    twice = ["--source", "evergreen=train.csv", "--source", "evergreen=more/train.csv"]
    assert main(["init", "mine", *twice]) == 1
    assert "two sources have this name" in capsys.readouterr().err
    assert not (here / "mine").exists()
