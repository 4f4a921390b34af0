"""What is kept of cross-validation: P(evergreen) of train questions by models that did not see them.

Law: a row a scored wording, in the order of question and language, calibrated as the model is, so that a
threshold chosen on these scores is one on the scores of the model. No test and no dev row is in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from pipelines.training.crossval import OutOfFold
from pipelines.training.examples import Examples

if TYPE_CHECKING:
    import numpy as np

COLUMNS: dict[str, Any] = {
    "question_id": pl.String,
    "language": pl.String,
    "label": pl.String,  # evergreen | mutable
    "p": pl.Float64,
    "source": pl.String,
}


def no_scores() -> pl.DataFrame:
    """The table where nothing was cross-validated: the columns and no row."""
    return pl.DataFrame(schema=COLUMNS)


def scores(found: OutOfFold, p: np.ndarray, examples: Examples) -> pl.DataFrame:
    """The table of what was scored out of fold with P; `examples` tell the sources of the questions."""
    source = {w.question_id: w.source for w in examples.rows}
    label = ["evergreen" if y else "mutable" for y in found.evergreen.tolist()]
    sources = [source[q] for q in found.questions]
    columns = [found.questions, found.languages, label, p.tolist(), sources]
    named = dict(zip(COLUMNS, map(list, columns), strict=True))
    return pl.DataFrame(named, schema=COLUMNS).sort("question_id", "language")
