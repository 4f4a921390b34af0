"""A trace names every row on the way, and says so when an answer or a parent is gone."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from pipelines.data.rows import Schema
from pipelines.data.tables import write_parquet
from pipelines.errors import InputError, StageError
from pipelines.lineage import Node, Tracer, _ranges, lines
from pipelines.llm.answer import Usage
from pipelines.llm.prices import Price
from pipelines.llm.request import Request, Sampling, named_request
from pipelines.llm.store import Kept, Record, Store

RAW = Schema("toy.ingest", {"text": pl.String}, ("text",))
MADE = Schema("toy.make", {"text": pl.String}, ("text",))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    raw = RAW.row(text="raw")
    made = MADE.row(text="made", parents=[raw["row_id"]], responses=["ab" * 32])
    orphan = MADE.row(text="orphan", parents=["f" * 24])
    write_parquet(RAW.frame([raw]), tmp_path / "data/toy/ingest/rows.parquet")
    origin = pl.DataFrame({"row_id": [raw["row_id"]] * 4, "file": ["a.csv"] * 4, "line": [9, 2, 3, 4]})
    write_parquet(origin, tmp_path / "data/toy/ingest/origin.parquet")
    write_parquet(MADE.frame([made, orphan]), tmp_path / "data/toy/make/rows.parquet")
    return tmp_path


def test_the_tree_goes_from_the_row_to_the_raw_lines(root: Path) -> None:
    row = MADE.row(text="made")["row_id"]
    tree = list(lines(Tracer(root, root / "none.sqlite").trace(row[:10])))
    raw = RAW.row(text="raw")["row_id"]
    assert tree == [
        f"toy/make  {row}",
        "  text: made",
        f"  answer {'ab' * 8}: not in this store",
        f"  toy/ingest  {raw}",
        "    text: raw",
        "    raw: a.csv:2-4,9",
    ]
    (root / "data/raw/toy").mkdir(parents=True)
    (root / "data/raw/toy/a.csv").touch()
    tree = list(lines(Tracer(root, root / "none.sqlite").trace(row)))
    assert tree[-1] == "    raw: data/raw/toy/a.csv:2-4,9", "where it is there, by a path that can be opened"


@pytest.mark.parametrize(
    ("identity", "usd", "prices", "says"),
    [
        ("name:m", 0.0, {}, "5 + 2 tokens, price unknown"),
        ("name:m", 0.0, {"m": Price(0.0, 0.0)}, "5 + 2 tokens, 0.000000 USD"),
        ("name:m", 0.25, {}, "5 + 2 tokens, 0.250000 USD"),
        ("sha256:ab", 0.0, {}, "5 + 2 tokens, 0.000000 USD"),
    ],
)
def test_an_unknown_price_is_told_as_unknown(
    root: Path, identity: str, usd: float, prices: dict[str, Price], says: str
) -> None:
    named = named_request(Request("completion", "m", Sampling(9), prompt="x"), "m", identity)
    kept = Kept("made", "stop", Usage(5, 2, usd))
    with Store(root / "s.sqlite") as store:
        store.put([Record(named.key, "completion", "m", identity, named.canonical, kept, b"{}")])
    write_parquet(
        MADE.frame([MADE.row(text="new", responses=[named.key])]), root / "data/toy/new/rows.parquet"
    )
    tracer = Tracer(root, root / "s.sqlite", prices=prices)
    assert f"    cost: {says}" in list(lines(tracer.trace(MADE.row(text="new")["row_id"])))


def test_a_row_that_stands_above_is_only_named_and_a_value_of_the_one_parent_is_not_said_again() -> None:
    raw = Node("r", "toy/ingest", False, {"text": "raw", "language": "en"})
    left = Node("a", "toy/make", False, {"text": "left", "language": "en"}, parents=(raw,))
    right = Node("b", "toy/make", False, {"text": "right", "language": "en"}, parents=(raw,))
    tree = list(lines(Node("c", "toy/join", False, {}, parents=(left, right))))
    assert tree == [
        "toy/join  c",
        "  toy/make  a",
        "    text: left",
        "    toy/ingest  r",
        "      text: raw",
        "      language: en",
        "  toy/make  b",
        "    text: right",
        "    toy/ingest  r  (as above)",
    ]


def test_an_unknown_id_and_a_lost_parent_are_told(root: Path) -> None:
    tracer = Tracer(root, root / "none.sqlite")
    with pytest.raises(InputError, match="'ffffff' is no row id"):
        tracer.trace("ffffff")
    with pytest.raises(StageError, match="the parent is not in any artifact"):
        tracer.trace(MADE.row(text="orphan")["row_id"])


def test_line_numbers_become_ranges() -> None:
    assert _ranges([1, 2, 3, 7, 9, 10]) == "1-3,7,9-10"
