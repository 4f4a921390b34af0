"""A stage reruns when its code has changed, in a workspace too, and then only what depends on it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("pipelines", "data/raw", "data/observations", "data/review", "dvc.yaml", "params.yaml")
HIDDEN = (".gitignore", ".dvcignore")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project whose code a test may change."""
    project = tmp_path / "project"
    for part in (*PARTS, *HIDDEN):
        source, target = ROOT / part, project / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, target)
    return project


def headrace(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "pipelines", *arguments]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout + ran.stderr


def test_an_edit_of_a_step_reruns_that_step_in_a_workspace(project: Path) -> None:
    headrace(project, "init", "mine")
    mine = project / "mine"
    assert "2 stages made" in headrace(mine, "run", "evergreen.ingest", "trit.ingest")
    assert "nothing to be done" in headrace(mine, "run", "evergreen.ingest", "trit.ingest")

    code = project / "pipelines" / "evergreen" / "ingest.py"
    code.write_text(code.read_text() + "\n# an edit that changes no row\n")
    said = headrace(mine, "run", "evergreen.ingest", "trit.ingest")
    assert "1 stage made" in said
    assert "evergreen.ingest\n" in said


def test_no_path_of_the_machine_enters_the_lock(project: Path, tmp_path: Path) -> None:
    headrace(project, "init", "mine", "--source", f"trit={project / 'data/raw/trit/problems.jsonl'}")
    headrace(project / "mine", "run", "trit.ingest")
    lock = (project / "mine" / "dvc.lock").read_text()
    assert "pipelines/trit/ingest.py" in lock
    assert str(tmp_path) not in lock
