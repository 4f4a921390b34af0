"""A workspace with few problems, and a client that says what a test tells it to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from pipelines.asking import AskingStep
from pipelines.data.config import load, read_params
from pipelines.llm.answer import Answer, Failure, Usage
from pipelines.llm.client import Pulse
from pipelines.llm.request import Request
from pipelines.trit import feedback, ingest, reason, translate

ROOT = Path(__file__).parents[2]
MODULES = {"ingest": ingest, "translate": translate, "reason": reason, "feedback": feedback}


@dataclass
class Scripted:
    """A client of tests: item -> what the model says, or the way in which it fails. In any order."""

    told: Mapping[str, str | Failure]
    backwards: bool = False
    asked: list[Request] = field(default_factory=list)

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        return

    def pulse(self) -> Pulse:
        return Pulse(len(self.asked), 0, 0, 0, 0, len(self.asked), 0, 0.0)

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        listed = list(requests)
        self.asked += listed
        for request in reversed(listed) if self.backwards else listed:
            said = self.told[request.row]
            key = hashlib.sha256(f"{request.prompt}{request.seed}{request.sample}".encode()).hexdigest()
            if isinstance(said, Failure):
                yield Answer(request, key, failure=said, detail="told so")
            else:
                yield Answer(request, key, text=said, finish="stop", usage=Usage(10, 3))


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
