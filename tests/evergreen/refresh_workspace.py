"""A workspace that is nothing but what `headrace refresh` needs: filtered rows, params, two folders."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from evergreen_rows import FILTER

from pipelines.data.tables import write_parquet
from pipelines.evergreen import refresh
from pipelines.evergreen.refreshing.observations import FOLDER
from pipelines.evergreen.reviewing import review
from pipelines.step import Step


def lay(
    root: Path, rows: Iterable[Mapping[str, Any]], llm: Mapping[str, Any] | None = None, **told: Any
) -> Path:
    """Lays rows of the filter and the section `evergreen.refresh`; nothing is audited unless told."""
    write_parquet(FILTER.frame(rows), root / "data/evergreen/filter/rows.parquet")
    for folder in (FOLDER, review.FOLDER):
        (root / folder).mkdir(parents=True, exist_ok=True)
    section = {"audit_share": 0.0, **told}
    params = {"seed": 7, "llm": dict(llm or {}), "evergreen": {"refresh": section}}
    (root / "params.yaml").write_text(yaml.safe_dump(params))
    return root


def noted(root: Path) -> list[dict[str, Any]]:
    """All lines of all files of observations."""
    files = sorted((root / FOLDER).glob("*.jsonl"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def files(root: Path) -> list[str]:
    """What lies in the folder of observations."""
    return sorted(p.name for p in (root / FOLDER).iterdir())


def fold(root: Path, **told: Any) -> Step:
    """Runs and publishes the stage evergreen.refresh."""
    step = Step("evergreen.refresh", None, root, 7)
    refresh.run(step, refresh.Params(**told))
    step.finish(refresh.SCHEMA, refresh.GATE)
    return step
