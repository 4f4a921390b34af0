"""What every stage shares: parameters in, outcomes counted, gate judged, artifacts out.

Law: a stage publishes all of its outs or none. They are written beside and
renamed last, rejects and counts before rows; rows that a gate refuses are held
outside the graph.

A step is a module `pipelines/<engine>/<step>.py` with

    SCHEMA: Schema                     its artifact, unless it makes no rows
    Params                             a frozen dataclass: its section of params.yaml
    GATE: Suite                        optional
    def run(step: Step, params: Params) -> None

One that asks models takes an `AskingStep`; see `asking.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from pipelines.data.outcomes import Ledger, Outcome, Settled
from pipelines.data.rows import REJECTED, Schema, digest
from pipelines.data.tables import read_parquet, write_json, write_parquet
from pipelines.errors import Place, StageError
from pipelines.publish import Outs

if TYPE_CHECKING:
    from pipelines.gates.suite import Suite, Verdict


ANSWERS = Path("data/answers/answers.parquet")  # the answers that the rows reach; see evaluation.answers


class GateFailure(StageError):
    """The artifact was made and counted, but its gate refused it."""


class OverBudget(StageError):
    """The artifact was made and counted, but a cap left some of its questions unasked."""


class Step:
    """One run of one stage in the workspace `root`.

    stage: "trit.translate"; item: the matrix entry ("fr") or None; seed: the run's seed.
    """

    def __init__(self, stage: str, item: str | None, root: Path, seed: int) -> None:
        self.stage, self.item, self.root, self.seed = stage, item, root, seed
        self.engine, self.step = stage.split(".", 1)
        self.ledger = Ledger()
        self.rows_in = 0
        self.metrics: dict[str, Any] = {}
        self._rows: list[Mapping[str, Any]] = []
        self._tables: dict[str, pl.DataFrame] = {}
        self._outs = Outs(root, self.folder)
        self._usage: dict[str, tuple[int, int, float]] = {}  # response id -> prompt, completion, usd
        self._unpriced: set[str] = set()  # of them, those of which nobody knows what they cost

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
        """The stage's outcomes.json: a pure function of its inputs and of the stored answers.

        `answers` are those stored that it used, refused and cut ones too; with `answers_unpriced`, whose
        price is unknown, `cost_usd` is that of the others.
        """
        used = list(self._usage.values())
        return {
            "stage": self.name,
            "rows_in": self.rows_in,
            **self.ledger.summary(),
            "rows_out": None if frame is None else len(frame),
            "tokens": {"prompt": sum(u[0] for u in used), "completion": sum(u[1] for u in used)},
            "answers": len(used),
            "cost_usd": round(sum(u[2] for u in used), 6),
            **({"answers_unpriced": len(self._unpriced)} if self._unpriced else {}),
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
