"""A step that asks models: a client over the workspace's response store, failures typed, figures told.

Law: what an answer cost counts once for each answer that the stage used, whoever asked it first; how
long it took and what was asked now is told outside the outs. Only the stages that take an
`AskingStep` declare the code of model calls as theirs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from pipelines.data.config import load
from pipelines.data.outcomes import Outcome
from pipelines.data.rows import Schema
from pipelines.errors import StageError
from pipelines.llm.answer import TRANSIENT, UNANSWERED, Answer, Failure
from pipelines.llm.settings import Settings
from pipelines.pace import Figures
from pipelines.progress import Told, Work, keep, outcomes_version, watched
from pipelines.step import ANSWERS, Step, store_path

if TYPE_CHECKING:
    import numpy as np

    from pipelines.gates.suite import Suite
    from pipelines.llm.client import Client
    from pipelines.llm.request import Request
    from pipelines.llm.structured import Structured


class AskingStep(Step):
    """A `Step` with models. `llm`: the section of that name in params.yaml, how to reach them."""

    def __init__(
        self, stage: str, item: str | None, root: Path, seed: int, llm: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(stage, item, root, seed)
        self.llm = dict(llm or {})
        self.embedded: set[str] | None = None  # keys of the vectors used, where they are an out of the stage
        self._began = int(time.time() * 1000)  # for trackers; never part of an out
        self._calls: list[Figures] = []
        self._replaced = ""  # the stage's model, where `llm.model` stands in for it

    def client(self, backend: str, model: str = "") -> Client:
        """A client over this workspace's response store. Use as a context manager.

        `model` is the stage's own; `llm.model` of params.yaml, when set, stands in for it.
        """
        from pipelines.llm.client import open_client

        settings = self.settings(backend, model)
        return open_client(settings, store_path(self.root), self.root / ANSWERS, self.name)

    def settings(self, backend: str, model: str = "") -> Settings:
        """The section `llm` of params.yaml for this stage; raises ConfigError."""
        told = {k: v for k, v in self.llm.items() if k != "model"}
        chosen = self.llm.get("model") or model
        self._replaced = model if chosen != model else ""
        own = {**told, "backend": backend, **({"model": chosen} if chosen else {})}
        return load(Settings, own, "llm")

    @property
    def constrained(self) -> bool:
        """Whether the models are asked with their schemas: `llm.constrained`."""
        return load(Settings, self.llm, "llm").constrained

    def ask(self, client: Client, requests: Iterable[Request], total: int | None = None) -> Iterator[Answer]:
        """`client.answers`, with progress, and with the tokens counted once for each answer used."""
        own = (replace(r, model="") if r.model == self._replaced else r for r in requests)
        with self._watched(client, "answers", total) as work:
            for answer in client.answers(own):
                if answer.failure not in UNANSWERED:
                    use = answer.usage
                    self._usage[answer.id] = (use.prompt_tokens, use.completion_tokens, use.cost_usd)
                    if answer.unpriced:
                        self._unpriced.add(answer.id)
                work.count(answer)
                yield answer

    def values(
        self, client: Client, requests: Iterable[Request], total: int | None = None
    ) -> Iterator[Structured]:
        """A value under each request's schema, by the ladder of `llm.structured`; repairs are answers too."""
        from pipelines.llm.structured import structured

        return structured(
            lambda asked: self.ask(client, asked, total), requests, constrained=self.constrained
        )

    def embed(self, client: Client, texts: Sequence[str], **how: Any) -> np.ndarray:
        """`client.embed`, with progress. `how`: its `model` and `prefix`."""
        with self._watched(client, "embeddings", len(set(texts))) as work:

            def count(done: int, total: int) -> None:
                work.done, work.total = done, total

            vectors = client.embed(texts, progress=count, **how)
            count(len(set(texts)), len(set(texts)))
        if self.embedded is not None:
            self.embedded |= client.embedded or set()
        return vectors

    def _watched(self, client: Client, what: str, total: int | None = None) -> AbstractContextManager[Work]:
        return watched(client, self.name, Work(what, total), self._calls)

    def tell(self, *, ended: bool) -> None:
        """Keeps the figures of the model calls of this run, if there were any, outside the outs."""
        if self._calls:
            below = self.folder.relative_to(self.root / "data").as_posix()
            version = outcomes_version(self.root, below) if ended else ""
            figures = Figures.total(self._calls).plain()
            keep(self.root, Told(self.name, self._began, figures, ended, version))

    def settle_failure(self, item: str, answer: Answer, **why: Any) -> None:
        """Ends an item whose model answer is a failure, by the failure's kind."""
        kind = answer.failure
        if kind is None:
            raise StageError(f"work item {item!r}: its answer did not fail")
        if kind is Failure.OVER_BUDGET:
            outcome = Outcome.OVER_BUDGET
        elif kind in TRANSIENT or kind is Failure.BAD_REQUEST:
            outcome = Outcome.FAILED
        elif kind in (Failure.LENGTH, Failure.EMPTY):
            outcome = Outcome.UNPARSABLE
        else:
            outcome = Outcome.REFUSED
        self.settle(
            item, outcome, str(kind), detail=answer.detail, raw=answer.text, responses=(answer.id,), **why
        )

    def settle_unread(self, item: str, end: Structured, **why: Any) -> None:
        """Ends an item whose structured answer gave no value; what the model wrote is kept."""
        if end.ending == "failed":
            self.settle_failure(item, end.answers[-1], **why)
        else:
            told = {"detail": end.fault, "raw": end.raw, "responses": end.ids}
            self.settle(item, Outcome.UNPARSABLE, "no_value", **{**told, **why})

    def finish(self, schema: Schema | None, gate: Suite | None = None, allow_failed: float = 0.0) -> None:
        """`Step.finish`, with the keys of the vectors where they are an out."""
        if self.embedded is not None:
            self.table("embedded", pl.DataFrame({"key": sorted(self.embedded)}, schema={"key": pl.String}))
        super().finish(schema, gate, allow_failed)
