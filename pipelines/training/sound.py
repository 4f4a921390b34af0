"""Whether curated rows are what training takes them for, whoever wrote the file.

Law: a train question has one label, evergreen or mutable, and each row a text and an id of its own; a row
without is refused with its id, never taken for mutable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pipelines.errors import InputError
from pipelines.evergreen.schema import EVERGREEN, MUTABLE, TEST, TRAIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

COLUMNS = ("row_id", "question_id", "language", "question", "label", "source", "split")
WHERE, CURE = "data/evergreen/curate/rows.parquet", "headrace run --force evergreen.curate"


def need_sound(rows: pl.DataFrame) -> None:
    """Raises InputError with the first row of train or test that cannot be used, and its column."""
    absent = [c for c in COLUMNS if rows.schema.get(c) != pl.String]
    if absent:
        raise InputError(f"lacks the text column {absent[0]!r}", where=WHERE, cure=CURE)
    used = rows.filter(pl.col("split").is_in([TRAIN, TEST]))
    trained = used.filter(pl.col("split") == TRAIN)
    for column in (c for c in COLUMNS if c != "label"):
        _refuse(used.filter(pl.col(column).fill_null("").str.strip_chars() == ""), column, "is empty")
    _refuse(
        trained.filter(~pl.col("label").fill_null("").is_in([EVERGREEN, MUTABLE])),
        "label",
        "is neither evergreen nor mutable",
    )
    _refuse(used.filter(pl.col("row_id").is_duplicated()), "row_id", "stands twice")
    labels = pl.col("label").n_unique().over("question_id")
    _refuse(trained.filter(labels > 1), "label", "is another in another language of the question")


def need_numbers(vectors: np.ndarray, texts: Sequence[str]) -> None:
    """Raises InputError with the first text whose vector holds something that is no number."""
    import numpy as np

    wrong = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(wrong):
        what = f"the embedding of {texts[int(wrong[0])][:60]!r} holds what is no number"
        raise InputError(what, where="training.evergreen", cure="headrace store verify, then run again")


def _refuse(wrong: pl.DataFrame, column: str, what: str) -> None:
    if len(wrong):
        row, value = wrong.select(pl.col("row_id").fill_null("?"), value=column).sort("row_id").row(0)
        where = f"{WHERE}: row {row} (column {column!r})"
        raise InputError(f"{str(value)[:60]!r} {what}", where=where, cure=CURE)
