"""What the evergreen engine's tests are made of: rows, raw folders, runs of single steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.asking import AskingStep
from pipelines.data.duplicates import question_key
from pipelines.evergreen import curate, ingest, refresh
from pipelines.evergreen.refresh import Params as RefreshParams
from pipelines.evergreen.refresh import history_rows
from pipelines.evergreen.reviewing import review
from pipelines.evergreen.schema import FILTERED, questions
from pipelines.step import Step

FILTER = questions("evergreen.filter", FILTERED)
EVERY = RefreshParams().every


def filtered(question: str, **values: Any) -> dict[str, Any]:
    """A row of evergreen.filter about `question`."""
    given = {
        "question_id": question_key(question),
        "language": "en",
        "answer": None,
        "aliases": [],
        "label": "mutable",
        "source": "real",
        "split": "train",
        "label_origin": "gold",
        "as_of": None,
        "question_key": question_key(question),
        "leaks_into_test": False,
        "leaks_into_dev": False,
        **values,
    }
    label = given["label"]
    given.setdefault("change_rate", "never" if label == "evergreen" else "fast")
    given.setdefault("p_evergreen", 0.9 if label == "evergreen" else 0.1)
    given.setdefault("part", label)
    return FILTER.row(question=question, **given)


def raw_folder(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Lays raw files of the engine in a workspace; returns the workspace."""
    for name, content in files.items():
        path = root / "data/raw/evergreen" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def run_ingest(root: Path, limit: int = 0) -> Step:
    """Runs and publishes evergreen.ingest."""
    step = Step("evergreen.ingest", None, root, 7)
    ingest.run(step, ingest.Params(limit))
    step.finish(ingest.SCHEMA)
    return step


def run_curate(root: Path, params: curate.Params | None = None) -> Step:
    """Runs and publishes evergreen.curate."""
    (root / review.FOLDER).mkdir(parents=True, exist_ok=True)
    step = AskingStep("evergreen.curate", None, root, 7)
    curate.run(step, params or curate.Params())
    step.finish(curate.SCHEMA)
    return step


def history(row: Mapping[str, Any], *held: Any) -> list[dict[str, Any]]:
    """The rows of evergreen.refresh for a row of the filter."""
    return history_rows(row, held, EVERY)


def refresh_frame(rows: list[dict[str, Any]]) -> Any:
    """A frame of evergreen.refresh."""
    return refresh.SCHEMA.frame(rows)
