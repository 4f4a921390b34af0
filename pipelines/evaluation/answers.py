"""The stage `evaluation.answers`: the model answers that the graph's rows reach, as an out of the graph.

Law: each answer that a row or a reject used, and each vector that a stage used, is in the file; so
where the graph was pulled, a trace and a replay need no response store. The bytes are a function
of the answers alone: not of when, how fast or in how many attempts they came.

What this machine's store lacks is taken from the file as it was before (it came with the rows).
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.data.outcomes import Outcome
from pipelines.errors import StageError
from pipelines.lineage import reached
from pipelines.llm.store import Store
from pipelines.llm.store_export import export_some
from pipelines.step import ANSWERS, Step, store_path

# Folders below data/ whose rows, rejects or vectors reach a model's answers: the `deps` of this stage.
READS = (
    "trit/translate/*",
    "trit/reason/*",
    "trit/feedback/*",
    "cbu/neighbors",
    "cbu/rollout",
    "training/evergreen",
    "evaluation/evergreen",
    "evaluation/uncertainty",
    "evaluation/verbal",
    "evergreen/synthesize",
    "evergreen/verify",
    "evergreen/translate",
    "evergreen/aliases",
    "evergreen/curate",
    "evergreen/classify",
    "evergreen/refresh",
)


@dataclass(frozen=True)
class Params:
    allow_failed: float = 0.0  # share of the answers that may be lost


def run(step: Step, params: Params) -> None:
    """Writes data/answers/answers.parquet. Raises StageError when more answers are lost than may be."""
    data, out = step.root / "data", step.root / ANSWERS
    wanted = reached(data, READS)
    step.plan([*wanted.answers, *sorted(wanted.embeddings)])
    path = store_path(step.root)
    opened = Store(path, readonly=True, lent=out) if path.is_file() or out.is_file() else Store.without_file()
    with opened as store:
        have = store.answers(wanted.answers).keys() | store.vectors(wanted.embeddings).keys()
        for key in step.ledger.planned:
            if key in have:
                step.accept(key)
            else:
                by = wanted.answers.get(key, "a stage that embeds")
                step.settle(key, Outcome.FAILED, "not_stored", detail=f"used by {by}")
        _refuse(step, params.allow_failed)
        export_some(store, wanted.answers, wanted.embeddings, out, plain=True)


def _refuse(step: Step, allowed: float) -> None:
    """An answer that rows used and nobody has is no passing failure: asking again may give another."""
    lost, items = step.ledger.rejected, len(step.ledger.planned)
    if len(lost) > allowed * items:
        cure = "headrace store import the store or export that has them, dvc pull, or make those rows again"
        raise StageError(
            f"{len(lost)} of {items} answers that rows use are in no store, "
            f"first {lost[0].item[:16]} ({lost[0].detail})",
            where=step.name,
            cure=cure,
        )
