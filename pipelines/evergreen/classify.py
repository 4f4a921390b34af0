"""P(evergreen) of every question, by the model that training.evergreen wrote.

Law: a question gets one probability in [0, 1], which depends on the question
and the model alone, not on its neighbors in a batch.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.asking import AskingStep
from pipelines.errors import StageError
from pipelines.evergreen import classifier
from pipelines.evergreen.schema import CLASSIFIED, CURATED, EVERGREEN, UNKNOWN, questions

SCHEMA = questions("evergreen.classify", CLASSIFIED)
MODEL = "training/evergreen/model"


@dataclass(frozen=True)
class Params:
    """No knobs: the model carries its own."""


def run(step: AskingStep, params: Params) -> None:
    """Reads evergreen/curate and the model, and predicts all rows at once."""
    frame = step.read("evergreen/curate")
    step.plan(frame["row_id"])
    model = classifier.load(step.root / "data" / MODEL)
    with step.client("embedded") as client:
        probabilities = model.predict(
            frame["question"].to_list(),
            frame["language"].to_list(),
            lambda texts: step.embed(client, texts),
        )
    if len(probabilities) != len(frame):
        raise StageError(f"{len(probabilities)} probabilities for {len(frame)} questions", where=step.name)
    for row, p in zip(frame.iter_rows(named=True), probabilities, strict=True):
        if not 0.0 <= p <= 1.0:
            raise StageError(f"P(evergreen) of row {row['row_id']} is {p}", where=step.name)
        values = {c: row[c] for c in CURATED}
        step.accept(row["row_id"], SCHEMA.row(**values, p_evergreen=float(p), parents=[row["row_id"]]))
    told = [(p, x) for p, x in zip(probabilities, frame["label"], strict=True) if x != UNKNOWN]
    agree = sum((p >= 0.5) == (label == EVERGREEN) for p, label in told)
    step.metrics["agrees_with_label"] = round(agree / len(told), 4) if told else None
