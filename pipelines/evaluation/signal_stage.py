"""What the stages have in common that set a yes or no against the signals of `evaluation.uncertainty`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pipelines import tracking
from pipelines.data.config import Share
from pipelines.data.tables import write_json
from pipelines.data.told import Data, Record
from pipelines.errors import ConfigError
from pipelines.evaluation.metrics import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipelines.step import Step

READS = "evaluation/uncertainty"


@dataclass(frozen=True)
class Draws:
    """bootstrap: draws of rows for the intervals. `STAGE` names the section in an error."""

    STAGE = ""

    bootstrap: int = 1000
    confidence: Share = 0.95

    def __post_init__(self) -> None:
        if self.bootstrap < 1 or not 0.0 < self.confidence < 1.0:
            what = "bootstrap is 1 or more, confidence lies in (0, 1)"
            raise ConfigError(what, where=f"params.yaml: {self.STAGE}")

    def how(self, seed: int) -> dict[str, Any]:
        """As `worth` and `apart` take them."""
        return {"draws": self.bootstrap, "confidence": self.confidence, "seed": seed}


def publish(step: Step, params: Draws, measured: Mapping[str, Any], started: int) -> None:
    """Writes metrics.json, and one MLflow run that began at `started`."""
    figures = plain(dict(measured))
    step.metrics = {"sample": figures["sample"], "strongest": figures["strongest"]}
    write_json(figures, step.out("metrics.json"))
    data = Data(READS, step.artifact(READS) / "rows.parquet", "test")
    tags = {"headrace.sample": figures["sample"]["what"]}
    told = {"seed": step.seed, **asdict(params)}
    tracking.record(step.root, Record(step.name, started, told, figures, [data], tags=tags))
