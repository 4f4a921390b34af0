"""A workspace of the EgoAVU engine, and a scene to put in it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from pipelines.cli.stage import run_stage

ROOT = Path(__file__).parents[2]
STAGES = ("ingest", "filter", "graph", "narrate", "questions")


class Workspace:
    """A folder with raw files; `run` makes artifacts, `rows` and `outcomes` read them."""

    def __init__(self, root: Path, raw: Path | None = None) -> None:
        self.root = root
        self.raw = root / "data" / "raw" / "egoavu"
        given = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
        self.params: dict[str, Any] = {key: given[key] for key in ("seed", "egoavu")}
        if raw is not None:
            shutil.copytree(raw, self.raw)
        self.raw.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "dvc.yaml", root)

    def run(self, *stages: str) -> Workspace:
        (self.root / "params.yaml").write_text(yaml.safe_dump(self.params), encoding="utf-8")
        for stage in stages or STAGES:
            run_stage(f"egoavu.{stage}", None, self.root)
        return self

    def rows(self, stage: str) -> pl.DataFrame:
        return pl.read_parquet(self.root / "data" / "egoavu" / stage / "rows.parquet")

    def rejected(self, stage: str) -> pl.DataFrame:
        return pl.read_parquet(self.root / "data" / "egoavu" / stage / "rejected.parquet")

    def outcomes(self, stage: str) -> dict[str, Any]:
        path = self.root / "data" / "egoavu" / stage / "outcomes.json"
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return value

    def bytes_of(self, stage: str) -> bytes:
        return (self.root / "data" / "egoavu" / stage / "rows.parquet").read_bytes()

    def scenes(self, *scenes: dict[str, Any]) -> Workspace:
        text = "".join(json.dumps(s) + "\n" for s in scenes)
        (self.raw / "scenes.jsonl").write_text(text, encoding="utf-8")
        return self


def scene(**changes: Any) -> dict[str, Any]:
    """A short scene that every step accepts."""
    values: dict[str, Any] = {
        "clip_id": "c1",
        "video_id": "v1",
        "setting": "kitchen",
        "start": 0,
        "end": 30,
        "actions": [
            {"start": 1, "end": 4, "text": "open drawer", "nouns": ["drawer"]},
            {"start": 6, "end": 14, "text": "chop onion", "nouns": ["onion"]},
            {"start": 16, "end": 20, "text": "pour water", "nouns": ["water"]},
        ],
        "sounds": [
            {"start": 7, "end": 13, "label": "cut / chop"},
            {"start": 15, "end": 25, "label": "rain"},
        ],
        "background_objects": ["lamp"],
        "exhaustive": {"action": True, "object": True, "sound": True},
    }
    return values | changes
