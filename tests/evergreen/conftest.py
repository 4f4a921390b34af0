"""Fixtures of the evergreen engine's tests; the rows they are made of stand in evergreen_rows.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from evergreen_rows import raw_folder, run_ingest

from pipelines.step import Step


@pytest.fixture
def read_raw(tmp_path: Path) -> Callable[..., Step]:
    """Lays raw files and ingests them: `read_raw({"train.csv": "..."})`."""

    def act(files: Mapping[str, str | bytes], limit: int = 0) -> Step:
        return run_ingest(raw_folder(tmp_path, files), limit)

    return act
