"""The workspace of CBU's tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from cbu_workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)
