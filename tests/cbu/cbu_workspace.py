"""A workspace of one's own for CBU, and a solver whose answers a test writes."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.asking import AskingStep
from pipelines.llm.answer import Answer, Failure, Usage
from pipelines.llm.request import Request
from tests.scripted_client import Scripted, ScriptedStep

Script = Callable[[Request], str | Failure]


class ScriptedClient(Scripted):
    """Answers by a script."""

    def __init__(self, script: Script, reverse: bool = False) -> None:
        super().__init__(reverse=reverse)
        self.script = script

    def answer(self, request: Request, key: str) -> Answer:
        said = self.script(request)
        if isinstance(said, Failure):
            text = "cut in the mid" if said is Failure.LENGTH else ""
            return Answer(request, key, text, "length", Usage(10, 5), said, "as the script says")
        return Answer(request, key, said, "stop", Usage(10, 5))


class Workspace:
    """A folder with data/raw/cbu, and the stages run in it by hand."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.raw = root / "data" / "raw" / "cbu"
        self.raw.mkdir(parents=True)

    def put(self, name: str, text: str) -> Path:
        path = self.raw / name
        path.write_text(text, encoding="utf-8")
        return path

    def put_rows(self, name: str, rows: Iterable[dict[str, Any]]) -> Path:
        return self.put(name, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))

    def run(
        self, name: str, client: ScriptedClient | None = None, seed: int = 7, **params: Any
    ) -> AskingStep:
        """Runs cbu.`name` to its end as the driver does."""
        module = importlib.import_module(f"pipelines.cbu.{name}")
        step = ScriptedStep(f"cbu.{name}", None, self.root, seed)
        step.scripted = client or ScriptedClient(lambda _: "")
        values = module.Params(**params)
        module.run(step, values)
        step.finish(module.SCHEMA, getattr(module, "GATE", None), getattr(values, "allow_failed", 0.0))
        return step

    def rows(self, name: str) -> pl.DataFrame:
        return pl.read_parquet(self.root / "data" / "cbu" / name / "rows.parquet")

    def rejected(self, name: str) -> pl.DataFrame:
        return pl.read_parquet(self.root / "data" / "cbu" / name / "rejected.parquet")

    def outcomes(self, name: str) -> dict[str, Any]:
        text = (self.root / "data" / "cbu" / name / "outcomes.json").read_text()
        return dict(json.loads(text))


def problem(
    n: int, question: str, answer: Any, right: str = "", wrong: str = "", **more: Any
) -> dict[str, Any]:
    """A row of our own format, with a right and a wrong candidate where they are given."""
    candidates = [{"solution": s, "label": k} for s, k in ((right, "right"), (wrong, "wrong")) if s]
    return {"id": f"p{n}", "question": question, "answer": answer, "candidates": candidates, **more}
