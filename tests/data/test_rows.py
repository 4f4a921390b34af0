"""A row's id comes from its identity columns alone; equal rows give equal bytes."""

from __future__ import annotations

import random
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.data.rows import Schema, occurrences
from pipelines.data.tables import file_md5, replace, write_json, write_parquet
from pipelines.errors import EnvironmentFault, StageError

QUESTION = Schema(
    "toy.question", {"text": pl.String, "language": pl.String, "p": pl.Float64}, ("text", "language")
)


def test_the_id_does_not_change_with_other_columns_or_later_ones() -> None:
    wider = Schema("toy.question", {**QUESTION.columns, "topic": pl.String}, QUESTION.identity)
    one = QUESTION.row(text="Who?", language="en", p=0.1, parents=["b", "a"])
    other = wider.row(text="Who?", language="en", p=0.9, topic="people")
    assert one["row_id"] == other["row_id"]
    assert one["parents"] == ["a", "b"]
    assert QUESTION.row(text="Who?", language="fr", p=0.1)["row_id"] != one["row_id"]


def test_the_artifact_is_part_of_the_id() -> None:
    elsewhere = Schema("toy.curate", QUESTION.columns, QUESTION.identity)
    values = {"text": "Who?", "language": "en", "p": 0.5}
    assert QUESTION.row(**values)["row_id"] != elsewhere.row(**values)["row_id"]


def test_equal_raw_rows_are_told_apart_by_their_occurrence_and_the_first_keeps_its_id() -> None:
    assert list(occurrences("abaab")) == [0, 0, 1, 2, 1]
    values = {"text": "Who?", "language": "en", "p": 0.5}
    ids = [QUESTION.row(occurrence=n, **values)["row_id"] for n in range(3)]
    assert len(set(ids)) == 3
    assert ids[0] == QUESTION.row(**values)["row_id"]


def test_two_rows_of_one_identity_are_refused_with_the_identity() -> None:
    twice = [QUESTION.row(text="Who?", language="en", p=p) for p in (0.1, 0.2)]
    with pytest.raises(
        StageError, match="2 rows share an identity, e.g. {'text': 'Who\\?', 'language': 'en'}"
    ):
        QUESTION.frame(twice)


def test_a_missing_column_and_a_wrong_type_are_refused_by_name() -> None:
    with pytest.raises(StageError, match="missing or unknown: p"):
        QUESTION.row(text="Who?", language="en")
    with pytest.raises(StageError, match="toy.question: a row does not fit"):
        QUESTION.frame([QUESTION.row(text="Who?", language="en", p="high")])


@given(st.lists(st.text(max_size=8), unique=True, max_size=30), st.randoms(use_true_random=False))
def test_the_order_of_rows_never_changes_the_bytes(texts: list[str], shuffler: random.Random) -> None:
    import tempfile

    rows = [QUESTION.row(text=t, language="en", p=0.25) for t in texts]
    mixed = list(rows)
    shuffler.shuffle(mixed)
    with tempfile.TemporaryDirectory() as folder:
        one, two = Path(folder, "one"), Path(folder, "two")
        write_parquet(QUESTION.frame(rows), one)
        write_parquet(QUESTION.frame(mixed), two)
        assert file_md5(one) == file_md5(two)


def test_a_write_that_fails_leaves_the_old_file_whole_and_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "counts.json"
    write_json({"rows": 1}, path)
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json({"rows": float("nan")}, path)
    assert path.read_text() == '{\n  "rows": 1\n}\n'
    assert [p.name for p in tmp_path.iterdir()] == ["counts.json"]


def test_a_full_disk_is_one_clear_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(
        EnvironmentFault, match="cannot write: No space left on device .*free some disk space"
    ):
        replace(tmp_path / "rows.parquet", lambda _: Path("/dev/full").write_text("x"))
    assert list(tmp_path.iterdir()) == []
