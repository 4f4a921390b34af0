"""Problems out of three formats, bad rows told by file, line and column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.data.tables import read_parquet
from pipelines.errors import ConfigError, HeadraceError, InputError


def rows(loop: Any, name: str = "rows") -> pl.DataFrame:
    return read_parquet(loop.root / "data" / "trit" / "ingest" / f"{name}.parquet")


def gsm8k(*pairs: tuple[object, object]) -> str:
    return "".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in pairs)


def test_a_worked_solution_gives_its_final_answer_without_separators(loop: Any) -> None:
    loop.raw("test.jsonl", gsm8k(("How much?", "500 + 700 = <<500+700=1200>>1,200\n#### 1,200")))
    loop.run("ingest")
    only = rows(loop).to_dicts()[0]
    assert (only["language"], only["role"], only["answer"]) == ("en", "source", "1200")


def test_translations_of_one_row_number_share_the_key_of_their_english(loop: Any) -> None:
    loop.raw("mgsm_en.tsv", "Two and two?\t4\nTen times 2?\t20\n")
    loop.raw("mgsm_fr.tsv", "Deux et deux ?\t4\nDix fois 2 ?\t20\n")
    loop.raw("test.jsonl", gsm8k(("Ten times 2?", "#### 20")))
    step = loop.run("ingest")
    by_key = rows(loop).group_by("problem_key").agg(pl.col("question").sort()).sort("question")
    assert by_key["question"].to_list() == [
        ["Deux et deux ?", "Two and two?"],
        ["Dix fois 2 ?", "Ten times 2?"],
    ]
    assert step.ledger.summary()["reasons"] == {"rejected(duplicate)": 1}  # the same problem in two sets


def test_a_row_put_in_above_changes_no_other(loop: Any) -> None:
    loop.raw("mgsm_en.tsv", "Two and two?\t4\n")
    loop.raw("mgsm_fr.tsv", "Deux et deux ?\t4\n")
    loop.run("ingest")
    before = set(rows(loop)["row_id"])
    loop.raw("mgsm_en.tsv", "One and one?\t2\nTwo and two?\t4\n")
    loop.raw("mgsm_fr.tsv", "Un et un ?\t2\nDeux et deux ?\t4\n")
    loop.run("ingest")
    assert before < set(rows(loop)["row_id"])


def test_a_bad_row_is_rejected_with_file_line_and_column_and_the_others_are_read(loop: Any) -> None:
    good = json.dumps({"id": "a", "language": "en", "question": "1 + 1?", "answer": 2})
    bad = [
        ({"id": "b", "language": "en", "question": "  ", "answer": "2"}, "empty_question", "question"),
        ({"id": "c", "language": "en", "question": 7, "answer": "2"}, "wrong_type", "question"),
        ({"id": "d", "language": "en", "question": "x?", "answer": "many"}, "answer_not_a_number", "answer"),
        ({"id": "e", "language": "en", "question": "x?", "answer": ""}, "no_answer", "answer"),
        ({"id": "f", "language": "en", "question": "x?", "answer": None}, "wrong_type", "answer"),
        ({"id": "", "language": "en", "question": "x?", "answer": "2"}, "no_id", "id"),
        ({"id": "g", "language": "English", "question": "x?", "answer": "2"}, "unknown_language", "language"),
        ({"id": "a", "language": "en", "question": "x?", "answer": "2"}, "duplicate", None),
        ({"id": "a", "language": "en", "question": "x?", "answer": "3"}, "answer_conflict", None),
        ({"id": "a", "language": "fr", "question": "x ?", "answer": "3"}, "answer_conflict", "answer"),
        ("{broken", "unreadable", None),
        ('{"id": "h", "language": "en", "question": "\\ud800?", "answer": "2"}', "unreadable", None),
    ]
    lines = [good, *(b if isinstance(b, str) else json.dumps(b) for b, _, _ in bad)]
    loop.raw("own.jsonl", "\n".join(lines) + "\n")
    step = loop.run("ingest")
    rejected = rows(loop, "rejected").sort("line")
    assert rows(loop)["problem_key"].to_list() == ["a"]
    assert list(rejected.select("reason", "column").iter_rows()) == [(r, c) for _, r, c in bad]
    assert rejected["line"].to_list() == list(range(2, 14))
    assert set(rejected["file"]) == {"own.jsonl"}
    assert step.rows_in == 13 == len(rows(loop)) + len(rejected)


@pytest.mark.parametrize(
    "odd",
    [
        {"id": "a", "language": "en", "answer": "2"},
        {"id": "a", "language": "en", "question": "x?"},
        {"id": "a", "question": "x?", "answer": "2"},
        {"language": "en", "question": "x?", "answer": "2"},
        {},
    ],
)
def test_a_first_record_that_lacks_a_key_costs_itself(loop: Any, odd: dict[str, str]) -> None:
    good = {"id": "b", "language": "en", "question": "1 + 1?", "answer": 2}
    loop.raw("own.jsonl", f"{json.dumps(odd)}\n{json.dumps(good)}\n")
    loop.run("ingest")
    assert rows(loop)["problem_key"].to_list() == ["b"]
    assert rows(loop, "rejected")["line"].to_list() == [1]


def test_a_solution_without_a_final_answer_is_rejected(loop: Any) -> None:
    loop.raw("test.jsonl", gsm8k(("One?", "#### 1"), ("Two?", "it is two")))
    loop.run("ingest")
    assert rows(loop, "rejected").select("reason", "line").row(0) == ("no_answer", 2)


def test_the_limit_takes_the_head_of_each_file(loop: Any) -> None:
    loop.raw("mgsm_en.tsv", "a1?\t1\nb2?\t2\nc3?\t3\n")
    loop.raw("mgsm_fr.tsv", "a1 ?\t1\nb2 ?\t2\nc3 ?\t3\n")
    step = loop.run("ingest", limit=2)
    assert step.rows_in == 4 and len(rows(loop)) == 4
    with pytest.raises(ConfigError, match="must not be negative"):
        loop.run("ingest", limit=-1)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl", b"", "a.jsonl: the file is empty"),
        ("a.jsonl", b'{"question": "x", "answer": "\xff"}\n', "a.jsonl:1: is not UTF-8"),
        ("a.jsonl", b'{"question": "x"}\n', "column 'answer' is missing"),
        ("a.jsonl", b'{"id": 1, "language": "en", "question": "x"}\n', "column 'answer' is missing"),
        ("a.jsonl", b"[1]\n", "holds a JSON array"),
        ("problems.tsv", b"a\tb\n", "must be named mgsm_XX.tsv"),
        ("mgsm_fr.tsv", b"Un et un ?\t2\n", "no usable English problem"),
    ],
)
def test_a_bad_file_is_one_line_that_says_what_and_where_and_nothing_is_written(
    loop: Any, name: str, content: bytes, says: str
) -> None:
    loop.raw(name, content)
    with pytest.raises(InputError) as error:
        loop.run("ingest")
    assert says in str(error.value) and "\n" not in str(error.value)
    assert not (loop.root / "data" / "trit" / "ingest" / "rows.parquet").exists()


def test_no_raw_files_is_an_error_with_its_cure(loop: Any) -> None:
    with pytest.raises(HeadraceError, match="headrace init"):
        loop.run("ingest")


def test_the_demo_accepts_and_rejects(loop: Any) -> None:
    raw = Path(__file__).parents[2] / "data" / "raw" / "trit" / "problems.jsonl"
    loop.raw("problems.jsonl", raw.read_bytes())
    loop.run("ingest")
    found = rows(loop)
    wordings = found.group_by("problem_key").agg(pl.col("language").sort())["language"].to_list()
    assert wordings == [["en", "fr", "ja", "ko", "pt", "th"]] * 15
    assert sorted(rows(loop, "rejected")["reason"]) == ["answer_not_a_number", "empty_question", "unreadable"]
    assert rows(loop, "origin")["line"].n_unique() == 90


@pytest.mark.real
def test_the_public_sets_are_read_whole(loop: Any, real_data: Path) -> None:
    for language in ("en", "fr", "th"):
        loop.raw(f"mgsm_{language}.tsv", (real_data / "mgsm" / f"mgsm_{language}.tsv").read_bytes())
    loop.raw("gsm8k/test.jsonl", (real_data / "gsm8k" / "test.jsonl").read_bytes())
    step = loop.run("ingest")
    found = rows(loop)
    assert dict(found.group_by("language").len().iter_rows()) == {"en": 1319, "fr": 250, "th": 250}
    assert step.ledger.summary()["reasons"] == {"rejected(duplicate)": 250}  # MGSM is GSM8K's head
    references = found.filter(pl.col("role") == "reference")
    sources = found.filter(pl.col("role") == "source")
    assert len(references.join(sources, on=["problem_key", "answer"])) == 500
    assert not found.filter(pl.col("answer").str.contains(r"[^\d.-]")).height
