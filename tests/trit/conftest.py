"""A workspace with few problems, and a client that says what a test tells it to."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipelines.asking import AskingStep
from pipelines.data.config import load, read_params
from pipelines.llm.answer import Answer, Failure, Usage
from pipelines.llm.request import Request
from pipelines.trit import feedback, ingest, reason, translate
from tests import scripted_client

ROOT = Path(__file__).parents[2]
MODULES = {"ingest": ingest, "translate": translate, "reason": reason, "feedback": feedback}


class Scripted(scripted_client.Scripted):
    """A client of tests: item -> what the model says, or the way in which it fails. In any order."""

    def __init__(self, told: Mapping[str, str | Failure], backwards: bool = False) -> None:
        super().__init__(reverse=backwards)
        self.told = told

    def answer(self, request: Request, key: str) -> Answer:
        said = self.told[request.row]
        if isinstance(said, Failure):
            return Answer(request, key, failure=said, detail="told so")
        return Answer(request, key, text=said, finish="stop", usage=Usage(10, 3))


@dataclass
class Loop:
    """Runs steps of the engine in one workspace."""

    root: Path

    def run(
        self, name: str, item: str | None = None, client: Scripted | None = None, **params: Any
    ) -> AskingStep:
        values = read_params(ROOT / "params.yaml")["trit"][name] | params
        module = MODULES[name]
        step = AskingStep(f"trit.{name}", item, self.root, 7)
        if client is not None:
            step.client = lambda backend, model: client  # type: ignore[method-assign,assignment,return-value]
        loaded = load(module.Params, values, f"trit.{name}")  # type: ignore[attr-defined]
        module.run(step, loaded)  # type: ignore[attr-defined]
        step.finish(module.SCHEMA, getattr(module, "GATE", None), getattr(loaded, "allow_failed", 0.0))
        return step

    def raw(self, name: str, text: str | bytes) -> None:
        path = self.root / "data" / "raw" / "trit" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def problems(self, *rows: tuple[str, str, str, str]) -> None:
        names = ("id", "language", "question", "answer")
        lines = (json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in rows)
        self.raw("problems.jsonl", "\n".join(lines) + "\n")


@pytest.fixture
def loop(tmp_path: Path) -> Loop:
    return Loop(tmp_path)


@pytest.fixture
def scripted() -> Callable[..., Scripted]:
    return Scripted
