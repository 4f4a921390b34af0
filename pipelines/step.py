"""What every stage shares: parameters in, outcomes counted, gate judged, artifacts out.

Law: a stage publishes all of its outs or none. They are written beside and
renamed last, rejects and counts before rows; rows that a gate refuses are held
outside the graph.

A step is a module `pipelines/<engine>/<step>.py` with

    SCHEMA: Schema                     its artifact, unless it makes no rows
    Params                             a frozen dataclass: its section of params.yaml
    GATE: Suite                        optional
    def run(step: Step, params: Params) -> None
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from pipelines.data.outcomes import Ledger, Outcome, Settled
from pipelines.data.rows import REJECTED, Schema, digest
from pipelines.data.tables import read_parquet, write_json, write_parquet
from pipelines.errors import Place, StageError
from pipelines.pace import Figures
from pipelines.progress import Told, Work, keep, outcomes_version, watched
from pipelines.publish import Outs

if TYPE_CHECKING:
    import numpy as np

    from pipelines.gates.suite import Suite, Verdict
    from pipelines.llm.answer import Answer
    from pipelines.llm.client import Client
    from pipelines.llm.request import Request
    from pipelines.llm.settings import Settings
    from pipelines.llm.structured import Structured


ANSWERS = Path("data/answers/answers.parquet")  # the answers that the rows reach; see evaluation.answers


class GateFailure(StageError):
    """The artifact was made and counted, but its gate refused it."""


class OverBudget(StageError):
    """The artifact was made and counted, but a cap left some of its questions unasked."""


class Step:
    """One run of one stage in the workspace `root`.

    stage: "trit.translate"; item: the matrix entry ("fr") or None; seed: the run's seed.
    """

    def __init__(
        self, stage: str, item: str | None, root: Path, seed: int, llm: Mapping[str, Any] | None = None
    ) -> None:
        self.stage, self.item, self.root, self.seed = stage, item, root, seed
        self.llm = dict(llm or {})  # the section `llm` of params.yaml: how to reach models
        self.engine, self.step = stage.split(".", 1)
        self.ledger = Ledger()
        self.rows_in = 0
        self.metrics: dict[str, Any] = {}
        self._rows: list[Mapping[str, Any]] = []
        self._tables: dict[str, pl.DataFrame] = {}
        self._outs = Outs(root, self.folder)
        self._usage: dict[str, tuple[int, int, float]] = {}  # response id -> prompt, completion, usd
        self._began = int(time.time() * 1000)  # for trackers; never part of an out
        self._calls: list[Figures] = []
        self.embedded: set[str] | None = None  # keys of the vectors used, where they are an out of the stage
        self._replaced = ""  # the stage's model, where `llm.model` stands in for it

    @property
    def name(self) -> str:
        """The stage as DVC knows it: "trit.translate@fr"."""
        return self.stage if self.item is None else f"{self.stage}@{self.item}"

    @property
    def folder(self) -> Path:
        """Where the outs of this stage lie."""
        return self.artifact(f"{self.engine}/{self.step}")

    def artifact(self, name: str) -> Path:
        """Folder of an artifact; one of the same engine and matrix entry is "trit/translate/fr"."""
        own = f"{self.engine}/{self.step}" == name and self.item is not None
        return self.root / "data" / (f"{name}/{self.item}" if own else name)

    # -- in ---------------------------------------------------------------------------------

    def source(self) -> Path:
        """Folder with the raw files of this engine. Raises StageError when it is not there or empty."""
        folder = self.root / "data" / "raw" / self.engine
        if not folder.is_dir() or not any(folder.iterdir()):
            raise StageError(
                "no raw files here",
                where=str(folder.relative_to(self.root)),
                cure=f"headrace init DIR --source {self.engine}=PATH",
            )
        return folder

    def read(self, artifact: str, *, count: bool = True) -> pl.DataFrame:
        """Rows of another stage's artifact ("evergreen/curate"); counted as rows in unless told not to."""
        frame = read_parquet(self.root / "data" / artifact / "rows.parquet", artifact.replace("/", ".", 1))
        if count:
            self.rows_in += len(frame)
        return frame

    # -- outcomes ---------------------------------------------------------------------------

    def plan(self, items: Iterable[str]) -> None:
        """Lists the work items before work starts; each must be settled once."""
        self.ledger.plan(items)

    def accept(self, item: str, *rows: Mapping[str, Any], note: str = "") -> None:
        """Ends an item well, with the rows (from `Schema.row`) that it gave: none, one or many."""
        self.ledger.accept(item, note)
        self._rows.extend(rows)

    def settle(
        self,
        item: str,
        outcome: Outcome,
        reason: str,
        *,
        detail: str = "",
        place: Place | None = None,
        raw: str = "",
        parents: Iterable[str] = (),
        responses: Iterable[str] = (),
    ) -> None:
        """Ends an item in any other way. `reason` is a short stable word, `detail` says more."""
        self.ledger.settle(
            Settled(item, outcome, reason, detail, place, raw, tuple(parents), tuple(responses))
        )

    def reject(self, item: str, reason: str, **why: Any) -> None:
        """`settle` with REJECTED: a rule said no."""
        self.settle(item, Outcome.REJECTED, reason, **why)

    def settle_failure(self, item: str, answer: Answer, **why: Any) -> None:
        """Ends an item whose model answer is a failure, by the failure's kind."""
        from pipelines.llm.answer import TRANSIENT, Failure

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

    # -- models -----------------------------------------------------------------------------

    def client(self, backend: str, model: str = "") -> Client:
        """A client over this workspace's response store. Use as a context manager.

        `model` is the stage's own; `llm.model` of params.yaml, when set, stands in for it.
        """
        from pipelines.llm.client import open_client

        settings = self.settings(backend, model)
        return open_client(settings, store_path(self.root), self.root / ANSWERS, self.name)

    def settings(self, backend: str, model: str = "") -> Settings:
        """The section `llm` of params.yaml for this stage; raises ConfigError."""
        from pipelines.data.config import load
        from pipelines.llm.settings import Settings

        told = {k: v for k, v in self.llm.items() if k != "model"}
        chosen = self.llm.get("model") or model
        self._replaced = model if chosen != model else ""
        own = {**told, "backend": backend, **({"model": chosen} if chosen else {})}
        return load(Settings, own, "llm")

    def ask(self, client: Client, requests: Iterable[Request], total: int | None = None) -> Iterator[Answer]:
        """`client.answers`, with progress, and with the tokens counted once for each answer used."""
        own = (replace(r, model="") if r.model == self._replaced else r for r in requests)
        with self._watched(client, "answers", total) as work:
            for answer in client.answers(own):
                use = answer.usage
                self._usage[answer.id] = (use.prompt_tokens, use.completion_tokens, use.cost_usd)
                work.done += 1
                yield answer

    def values(
        self, client: Client, requests: Iterable[Request], total: int | None = None
    ) -> Iterator[Structured]:
        """A value under each request's schema, by the ladder of `llm.structured`; repairs are answers too."""
        from pipelines.llm.structured import structured

        return structured(lambda asked: self.ask(client, asked, total), requests)

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

    # -- out --------------------------------------------------------------------------------

    def table(self, name: str, frame: pl.DataFrame) -> None:
        """A further out of this stage, `name`.parquet, in the order given."""
        self._tables[name] = frame

    def out(self, name: str) -> Path:
        """Where to write a further out of this stage, a file or a folder: `finish` gives it its name."""
        return self._outs.path(name)

    def finish(self, schema: Schema | None, gate: Suite | None = None, allow_failed: float = 0.0) -> None:
        """Checks the counts, judges the gate, publishes. Raises StageError, OverBudget, GateFailure.

        `allow_failed` is the share of items that may fail for a passing cause, or be over budget.
        """
        self.ledger.check()
        self._refuse_passing_failures(allow_failed)
        frame = None if schema is None else schema.frame(self._rows)
        verdict = self._judge(gate, frame)
        if frame is None and not self.ledger.planned:
            return  # a view, such as the report: nothing to count
        write_parquet(self._rejected(), self.out("rejected.parquet"))
        if self.embedded is not None:
            self.table("embedded", pl.DataFrame({"key": sorted(self.embedded)}, schema={"key": pl.String}))
        for name, table in sorted(self._tables.items()):
            write_parquet(table, self.out(f"{name}.parquet"))
        write_json(self.outcomes(frame, verdict), self.out("outcomes.json"))
        if frame is not None:
            write_parquet(frame, self.out("rows.parquet"))
        self._hold_over_budget(frame, allow_failed)
        if verdict is not None and not verdict.passed:
            where = self._outs.hold().relative_to(self.root)
            raise GateFailure(
                f"the gate refused the rows: {verdict.failures()}", where=self.name, cure=f"see {where}"
            )
        self._outs.publish()

    def outcomes(self, frame: pl.DataFrame | None, verdict: Verdict | None) -> dict[str, Any]:
        """The stage's outcomes.json: a pure function of its inputs and of the stored answers."""
        used = list(self._usage.values())
        return {
            "stage": self.name,
            "rows_in": self.rows_in,
            **self.ledger.summary(),
            "rows_out": None if frame is None else len(frame),
            "tokens": {"prompt": sum(u[0] for u in used), "completion": sum(u[1] for u in used)},
            "answers": len(used),
            "cost_usd": round(sum(u[2] for u in used), 6),
            "gate": None if verdict is None else verdict.plain(),
            "metrics": self.metrics,
        }

    def _judge(self, gate: Suite | None, frame: pl.DataFrame | None) -> Verdict | None:
        if gate is None or frame is None:
            return None
        from pipelines.gates.suite import judge

        return judge(gate, frame)

    def _refuse_passing_failures(self, allowed: float) -> None:
        failed, items = self.ledger.counts[Outcome.FAILED], len(self.ledger.planned)
        if failed > allowed * items:
            first = next(s for s in self.ledger.rejected if s.outcome is Outcome.FAILED)
            raise StageError(
                f"{failed} of {items} items failed, first {first.item!r}: {first.reason} {first.detail}",
                where=self.name,
                cure="run again: what was answered is stored and not asked again",
            )

    def _hold_over_budget(self, frame: pl.DataFrame | None, allowed: float) -> None:
        """Else DVC would call the stage unchanged, and nobody would ask when the cap is raised."""
        counts, items = self.ledger.counts, len(self.ledger.planned)
        over = counts[Outcome.OVER_BUDGET]
        if not over or over + counts[Outcome.FAILED] <= allowed * items:
            return
        if frame is not None:
            self._outs.hold()
        first = next(s for s in self.ledger.rejected if s.outcome is Outcome.OVER_BUDGET)
        raise OverBudget(
            f"{over} of {items} items are over budget: {first.detail}",
            where=self.name,
            cure="raise the cap in params.yaml and run again: only what is missing is asked",
        )

    def _rejected(self) -> pl.DataFrame:
        rows = [
            {
                "row_id": digest("rejected", self.name, s.item),
                "item": s.item,
                "outcome": str(s.outcome),
                "reason": s.reason,
                "detail": s.detail,
                "file": None if s.place is None else s.place.file,
                "line": None if s.place is None else s.place.line,
                "column": None if s.place is None else s.place.column,
                "raw": s.raw,
                "parents": sorted(set(s.parents)),
                "responses": sorted(set(s.responses)),
            }
            for s in self.ledger.rejected
        ]
        return pl.DataFrame(rows, schema=REJECTED, orient="row").sort("row_id")


def store_path(root: Path) -> Path:
    """The response store of a workspace: $HEADRACE_STORE, else .headrace/responses.sqlite."""
    told = os.environ.get("HEADRACE_STORE")
    return Path(told) if told else root / ".headrace" / "responses.sqlite"


def read_outcomes(root: Path, folder: str) -> dict[str, Any] | None:
    """outcomes.json of an artifact folder ("trit/translate/fr"), None when it is not there or torn."""
    try:
        value = json.loads((root / "data" / folder / "outcomes.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
