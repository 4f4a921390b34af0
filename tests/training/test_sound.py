"""Damaged curated rows and embeddings: refused with the row and the column, before anything is trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.errors import InputError
from pipelines.training.sound import COLUMNS, need_numbers, need_sound

ROWS = [
    {"row_id": "a", "question_id": "q", "language": "en", "question": "Who?", "label": "evergreen"},
    {"row_id": "b", "question_id": "q", "language": "fr", "question": "Qui ?", "label": "evergreen"},
    {"row_id": "c", "question_id": "t", "language": "en", "question": "When?", "label": "unknown"},
]


def frame(place: int = 0, **values: Any) -> pl.DataFrame:
    rows = [{**r, "source": "real", "split": "train" if n < 2 else "test"} for n, r in enumerate(ROWS)]
    rows[place] |= values
    return pl.DataFrame(rows, schema=dict.fromkeys(COLUMNS, pl.String))


def test_sound_rows_pass_and_a_test_question_needs_no_label() -> None:
    need_sound(frame())
    need_sound(frame(2, label=None))
    need_sound(frame(1, split="pool", label="unknown", question="", language=""))  # nothing is trained on it


@pytest.mark.parametrize(
    ("place", "values", "what"),
    [
        (1, {"label": None}, "row b .column 'label'.: 'None' is neither evergreen nor mutable"),
        (1, {"label": "unknown"}, "row b .column 'label'.: 'unknown' is neither"),
        (1, {"label": "mutable"}, "row a .column 'label'.: 'evergreen' is another in another language"),
        (1, {"row_id": "a"}, "row a .column 'row_id'.: 'a' stands twice"),
        (2, {"row_id": "a"}, "row a .column 'row_id'.: 'a' stands twice"),
        (0, {"question": "  "}, "row a .column 'question'.: ' *' is empty"),
        (2, {"language": None}, "row c .column 'language'.: 'None' is empty"),
        (0, {"row_id": None}, "row . .column 'row_id'.: 'None' is empty"),
    ],
)
def test_a_row_that_cannot_be_trained_on_is_named(place: int, values: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError, match=f"curate/rows.parquet: {what}"):
        need_sound(frame(place, **values))


def test_a_column_that_is_absent_or_no_text_is_named() -> None:
    with pytest.raises(InputError, match="lacks the text column 'label'"):
        need_sound(frame().drop("label"))
    with pytest.raises(InputError, match="lacks the text column 'question_id'"):
        need_sound(frame().with_columns(question_id=pl.lit(1)))


def test_an_embedding_that_holds_no_number_names_its_text() -> None:
    vectors = np.ones((3, 4), np.float32)
    need_numbers(vectors, ["a", "b", "c"])
    vectors[1, 2] = np.nan
    with pytest.raises(InputError, match="the embedding of 'b' holds what is no number"):
        need_numbers(vectors, ["a", "b", "c"])
