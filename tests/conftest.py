"""Shared fixtures: where the public data lies, and a workspace of one's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.demo import demo

__all__ = ["demo"]
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of the public data sets; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("HEADRACE_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "evergreenqa" / "test.csv").is_file():
        pytest.skip("public data sets are absent: set HEADRACE_DATA")
    return folder
