"""Fixtures: the small workspace, before any run and after one from a shell, and a Dagster of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from brook_workspace import Brook


@pytest.fixture
def brook(tmp_path: Path) -> Brook:
    return Brook(tmp_path).lay()


@pytest.fixture(scope="session")
def _run_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Brook(tmp_path_factory.mktemp("brook")).lay()
    ended = made.dvc("repro")
    assert ended.returncode == 0, ended.stderr
    return made.root


@pytest.fixture
def shell_made(_run_once: Path, tmp_path: Path) -> Brook:
    """The workspace after `dvc repro`."""
    shutil.copytree(_run_once, tmp_path, dirs_exist_ok=True)
    return Brook(tmp_path)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made
