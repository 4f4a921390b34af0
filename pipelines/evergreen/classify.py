"""P(evergreen) of every question, by the model that training.evergreen wrote.

Law: a question gets one probability in [0, 1], which depends on the question
and the model alone, not on its neighbors in a batch. With `over_translations`
the question is all its wordings: they share the mean of what each is given.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.asking import AskingStep
from pipelines.errors import StageError
from pipelines.evergreen.eg_e5 import classifier
from pipelines.evergreen.schema import CLASSIFIED, CURATED, EVERGREEN, UNKNOWN, questions

SCHEMA = questions("evergreen.classify", CLASSIFIED)
MODEL = "training/evergreen/model"
HIDDEN = ".headrace/encoder/hidden"  # where a fine-tuned encoder's frozen layers keep what they made


@dataclass(frozen=True)
class Params:
    """What of the model's probabilities is kept."""

    over_translations: bool = False  # the mean over the wordings of a question, for each of them


def run(step: AskingStep, params: Params) -> None:
    """Reads evergreen/curate and the model, and predicts all rows at once."""
    frame = step.read("evergreen/curate")
    step.plan(frame["row_id"])
    model = classifier.load(step.root / "data" / MODEL, step.root / HIDDEN)
    with step.client("embedded") as client:
        probabilities = model.predict(
            frame["question"].to_list(),
            frame["language"].to_list(),
            lambda texts: step.embed(client, texts),
        )
    if len(probabilities) != len(frame):
        raise StageError(f"{len(probabilities)} probabilities for {len(frame)} questions", where=step.name)
    if params.over_translations:
        probabilities = classifier.averaged(probabilities, frame["question_id"].to_list())
    for row, p in zip(frame.iter_rows(named=True), probabilities, strict=True):
        if not 0.0 <= p <= 1.0:
            raise StageError(f"P(evergreen) of row {row['row_id']} is {p}", where=step.name)
        values = {c: row[c] for c in CURATED}
        step.accept(row["row_id"], SCHEMA.row(**values, p_evergreen=float(p), parents=[row["row_id"]]))
    told = [(p, x) for p, x in zip(probabilities, frame["label"], strict=True) if x != UNKNOWN]
    agree = sum((p >= 0.5) == (label == EVERGREEN) for p, label in told)
    step.metrics["agrees_with_label"] = round(agree / len(told), 4) if told else None
