"""Workspaces for the EgoAVU engine: the committed scenes, or files written by a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from egoavu_workspace import Workspace

ROOT = Path(__file__).parents[2]


@pytest.fixture
def workspace(tmp_path: Path) -> Callable[..., Workspace]:
    """Makes workspaces, each in a folder of its own."""
    made: list[Workspace] = []

    def make(raw: Path | None = None) -> Workspace:
        made.append(Workspace(tmp_path / str(len(made)), raw))
        return made[-1]

    return make


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The committed scenes, run to the end once."""
    return Workspace(tmp_path_factory.mktemp("demo") / "w", ROOT / "data" / "raw" / "egoavu").run()
