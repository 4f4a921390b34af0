"""Reading: what a file says is read right, or refused with its place."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections import Counter
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from evergreen_rows import raw_folder, run_ingest

from pipelines.data.config import load
from pipelines.errors import ConfigError, InputError
from pipelines.evergreen import ingest
from pipelines.evergreen.ingest import usable
from pipelines.evergreen.readers.alias_cells import alias_list
from pipelines.evergreen.readers.books import read_book
from pipelines.evergreen.readers.seam import Reader, Said
from pipelines.evergreen.schema import parse_label
from pipelines.step import Step

WIDE = ",is_evergreen,en_Answer,English,German\n0,1,Four,How many?,Wie viele?\n1,0,,Who now?,Wer jetzt?\n"


def rows(step: Step) -> list[dict]:
    return pl.read_parquet(step.folder / "rows.parquet").sort("question").to_dicts()


def rejected(step: Step) -> list[tuple]:
    frame = pl.read_parquet(step.folder / "rejected.parquet")
    return sorted(frame.select("file", "line", "column", "reason").rows())


@pytest.mark.parametrize(
    ("spelled", "label", "rate"),
    [
        ("1", "evergreen", "never"),
        (1, "evergreen", "never"),
        (1.0, "evergreen", "never"),
        (True, "evergreen", "never"),
        ("TRUE", "evergreen", "never"),
        ("never-changing", "evergreen", "never"),
        ("static", "evergreen", "never"),
        ("0", "mutable", "unknown"),
        (False, "mutable", "unknown"),
        ("mutable", "mutable", "unknown"),
        ("slow_changing", "mutable", "slow"),
        ("Fast-changing", "mutable", "fast"),
        ("real-time", "mutable", "fast"),
    ],
)
def test_labels_are_read_in_every_spelling(spelled: object, label: str, rate: str) -> None:
    found = parse_label(spelled)
    assert found is not None
    assert (found.value, found.rate) == (label, rate)


@pytest.mark.parametrize("spelled", ["2", "sometimes", "", None, [1], 0.5])
def test_other_words_are_no_label(spelled: object) -> None:
    assert parse_label(spelled) is None


@pytest.mark.parametrize(
    ("cell", "aliases"),
    [
        ("['a', 'b', 'a']", ["a", "b"]),
        ("['查理三世；查理三世；查理3']", ["查理三世", "查理3"]),
        ("['أ؛ ب']", ["أ", "ب"]),
        ("a; b ;c", ["a", "b", "c"]),
        ("[\"['x', 'y']\"]", ["x", "y"]),
        ('["צ\'ארלס"]', ["צ'ארלס"]),
        (["p", 3], ["p", "3"]),
        ("", []),
        (None, []),
        ("[__import__('os').getcwd()]", None),
        ("['open", None),
        ("[" * 5000, None),
        ({"a": 1}, None),
        ("['\\ud800']", None),
        (f"[0x{'f' * 9000}]", None),
    ],
)
def test_aliases_are_unpacked_or_refused(cell: object, aliases: list[str] | None) -> None:
    assert alias_list(cell) == aliases


def test_a_wide_table_gives_a_row_for_each_language(read_raw: Callable[..., Step]) -> None:
    step = read_raw({"train.csv": WIDE})
    columns = ("question", "language", "label", "answer", "split", "source")
    got = [tuple(r[c] for c in columns) for r in rows(step)]
    assert got == [
        ("How many?", "en", "evergreen", "Four", "train", "real"),
        ("Wer jetzt?", "de", "mutable", None, "train", "real"),
        ("Who now?", "en", "mutable", None, "train", "real"),
        ("Wie viele?", "de", "evergreen", None, "train", "real"),
    ]
    assert len({r["question_id"] for r in rows(step)}) == 2


def test_column_order_line_ends_and_byte_order_mark_change_no_row(tmp_path: Path) -> None:
    lines = (
        "\ufeffGerman,English,en_Answer,is_evergreen,",
        "Wie viele?,How many?,Four,1,0",
        "Wer jetzt?,Who now?,,0,1",
    )
    turned = "".join(f"{line}\r\n" for line in lines)
    a = run_ingest(raw_folder(tmp_path / "a", {"train.csv": WIDE}))
    b = run_ingest(raw_folder(tmp_path / "b", {"train.csv": turned}))
    assert (a.folder / "rows.parquet").read_bytes() == (b.folder / "rows.parquet").read_bytes()


@pytest.mark.parametrize(
    ("name", "split", "source"),
    [
        ("train_synth.csv", "train", "synth"),
        ("dev.csv", "dev", "real"),
        ("my-validation.csv", "dev", "real"),
        ("test_2.csv", "test", "real"),
        ("contest.csv", "train", "real"),
    ],
)
def test_split_and_source_are_told_by_the_name(
    read_raw: Callable[..., Step], name: str, split: str, source: str
) -> None:
    assert {(r["split"], r["source"]) for r in rows(read_raw({name: WIDE}))} == {(split, source)}


def test_a_row_put_in_above_changes_no_other_id(tmp_path: Path) -> None:
    head, first, second = WIDE.splitlines()
    more = "\n".join([head, "7,1,,What is new?,Was ist neu?", first, second]) + "\n"
    a = rows(run_ingest(raw_folder(tmp_path / "a", {"train.csv": WIDE})))
    b = rows(run_ingest(raw_folder(tmp_path / "b", {"train.csv": more})))
    assert {r["row_id"] for r in a} < {r["row_id"] for r in b}
    assert len(b) - len(a) == 2


def test_equal_records_and_restarted_ids_stay_apart(read_raw: Callable[..., Step]) -> None:
    text = ",is_evergreen,English\n0,1,Same?\n1,1,Other?\n0,1,Same?\n"
    found = rows(read_raw({"train.csv": text}))
    assert [r["question"] for r in found] == ["Other?", "Same?", "Same?"]
    assert len({r["question_id"] for r in found}) == 3


def test_an_empty_wording_costs_that_language_only(read_raw: Callable[..., Step]) -> None:
    step = read_raw({"train.csv": "is_evergreen,English,French\n1,How?,\n0,When?, \n"})
    assert rejected(step) == [
        ("train.csv", 2, "French", "empty_question"),
        ("train.csv", 3, "French", "empty_question"),
    ]
    assert [r["question"] for r in rows(step)] == ["How?", "When?"]
    assert step.rows_in == 4


def test_bad_records_cost_themselves_and_say_where(read_raw: Callable[..., Step]) -> None:
    step = read_raw(
        {
            "dev.jsonl": '{"question": {"en": "A?", "fr": "B?"}, "label": "evergreen"}\n'
            '{"question": {"en": "C?"\n'
            '{"question": "D?", "language": "en", "label": "maybe"}\n'
            '{"question": "E?", "language": "xx", "label": "0"}\n'
            '{"question": "F?", "language": "en"}\n'
            '{"question": "G?", "label": "mutable", "change_rate": "never"}\n'
            '{"question": "H?", "label": "mutable", "as_of": "15.1.2025"}\n'
            '{"question": 9, "label": "mutable"}\n'
            '{"question": {"fr": "J?"}, "label": "slow", "as_of": "2025-01-15", "answer": {"fr": "oui"}}\n'
        }
    )
    assert rejected(step) == [
        ("dev.jsonl", 2, None, "unreadable"),
        ("dev.jsonl", 3, "label", "unknown_label"),
        ("dev.jsonl", 4, "language", "unknown_language"),
        ("dev.jsonl", 5, "label", "missing_label"),
        ("dev.jsonl", 6, "change_rate", "label_and_rate_disagree"),
        ("dev.jsonl", 7, "as_of", "bad_date"),
        ("dev.jsonl", 8, "question", "wrong_type"),
    ]
    found = rows(step)
    assert [r["question"] for r in found] == ["A?", "B?", "J?"]
    last = found[2]
    assert (last["change_rate"], last["answer"], last["as_of"]) == ("slow", "oui", date(2025, 1, 15))


@pytest.mark.parametrize(
    ("usual", "odd"),
    [
        ('{"question": "A?", "label": "1"}', '{"de": "X?", "label": "1"}'),
        ('{"en": "A?", "label": "1"}', '{"question": "X?", "label": "1"}'),
        ('{"question": "A?", "label": "1"}', '{"label": "1"}'),
        ('{"question": "A?", "label": "1"}', '{"question": "X?"}'),
    ],
)
def test_one_odd_record_costs_itself_wherever_it_stands(tmp_path: Path, usual: str, odd: str) -> None:
    for at in range(3):
        lines = [usual, usual]
        lines.insert(at, odd)
        (tmp_path / "q.jsonl").write_text("\n".join(lines))
        book = read_book(tmp_path / "q.jsonl", tmp_path)
        assert isinstance(book.reader, Reader)
        told = [book.reader.tell(r.values) for r in book.records]
        good = [isinstance(s, Said) and usable(next(iter(s.wordings.values()))) for s in told]
        assert good == [n != at for n in range(3)]


def test_parquet_is_read_as_the_same_table_would_be(tmp_path: Path) -> None:
    folder = tmp_path / "a/data/raw/evergreen"
    folder.mkdir(parents=True)
    pl.DataFrame(
        {"is_evergreen": [1, 0], "en_Answer": ["Four", None], "English": ["How many?", "Who now?"],
         "German": ["Wie viele?", "Wer jetzt?"]}
    ).write_parquet(folder / "train.parquet")  # fmt: skip
    a = run_ingest(tmp_path / "a")
    b = run_ingest(raw_folder(tmp_path / "b", {"train.csv": WIDE}))
    assert (a.folder / "rows.parquet").read_bytes() == (b.folder / "rows.parquet").read_bytes()


def test_alias_files_join_by_index_value_and_not_by_position(read_raw: Callable[..., Step]) -> None:
    step = read_raw(
        {
            "test.csv": ",is_evergreen,English\n0,1,First?\n5,1,Fifth?\n",
            "aliases/test_aliases.csv": ",English\n3,['three']\n5,\"['five', '5']\"\n0,['broken\n",
        }
    )
    assert {r["question"]: r["aliases"] for r in rows(step)} == {"First?": [], "Fifth?": ["five", "5"]}
    assert rejected(step) == [("aliases/test_aliases.csv", 4, "English", "unreadable_aliases")]
    assert step.ledger.notes == {"aliases of no question here": 1, "aliases": 1}


def test_aliases_of_a_repeated_index_go_to_nobody(read_raw: Callable[..., Step]) -> None:
    step = read_raw(
        {
            "test.csv": ",is_evergreen,English\n0,1,First?\n0,1,Again?\n",
            "test_aliases.csv": ",English\n0,['x']\n",
        }
    )
    assert rejected(step) == [("test_aliases.csv", 2, "", "ambiguous_index")]
    assert all(r["aliases"] == [] for r in rows(step))


def test_the_limit_takes_the_head_of_each_file(read_raw: Callable[..., Step]) -> None:
    step = read_raw({"train.csv": WIDE, "dev.csv": WIDE.replace("?", "!?")}, limit=1)
    assert Counter(r["split"] for r in rows(step)) == {"train": 2, "dev": 2}


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        (
            "train.csv",
            "id,text\n1,x\n",
            "train.csv: no column holds questions (the file has: 'id', 'text'; evergreen.ingest.columns says",
        ),
        ("train.csv", "English,is_evergren\nA?,1\n", "is column 'is_evergren' the label?"),
        (
            "q.jsonl",
            '{"question": "A?", "query": "B?"}\n',
            "'question' and 'query' both claim to be the question",
        ),
        ("train.csv", "English,en,label\nA?,B?,1\n", "'English' and 'en' both claim the language 'en'"),
        ("train.csv", "label,label,en\n1,1,A?\n", "two columns are named 'label'"),
        ("train.csv", "", "the file is empty"),
        ("train.csv", b"label,en\n1,\xff\xfe\n", "train.csv:2: is not UTF-8"),
        ("train.jsonl", '[{"question": "A?"}]', "holds a JSON array"),
        ("train.parquet", "label,en\n", "not a readable Parquet file"),
        ("test_aliases.csv", "English\n['x']\n", "an index column is missing"),
    ],
)
def test_a_file_that_is_neither_format_is_refused_with_what_was_found(
    read_raw: Callable[..., Step], name: str, content: str | bytes, says: str
) -> None:
    with pytest.raises(InputError) as e:
        read_raw({name: content})
    assert says in str(e.value)
    assert "\n" not in str(e.value)


def test_questions_whose_split_nothing_tells_are_drawn_by_their_wordings(
    read_raw: Callable[..., Step],
) -> None:
    head = "question,language,label\n"
    lines = [f"Who wrote book number {n}?,en,evergreen\n" for n in range(400)]
    one = {r["question"]: r["split"] for r in rows(read_raw({"mine.csv": head + "".join(lines)}))}
    other = {r["question"]: r["split"] for r in rows(read_raw({"yours.csv": head + "".join(lines[::-1])}))}
    assert one == other
    counts = Counter(one.values())
    assert 70 < counts["test"] < 130
    assert 20 < counts["dev"] < 60
    assert counts["train"] == 400 - counts["test"] - counts["dev"]


def test_packed_files_are_read_as_plain_ones_and_what_is_no_data_is_named(
    tmp_path: Path,
) -> None:
    parquet = io.BytesIO()
    pl.DataFrame({"is_evergreen": [1], "English": ["Old?"]}).write_parquet(parquet)
    more = "is_evergreen,English\n1,Why?\n"
    plain = {"train.csv": WIDE, "dev.csv": more, "test.parquet": parquet.getvalue()}
    packed = {
        "train.csv.bz2": bz2.compress(WIDE.encode()),
        "dev.csv.gz": gzip.compress(more.encode()),
        "test.parquet.xz": lzma.compress(parquet.getvalue()),
        "README.md": "what this is",
        "old.zip": b"PK",
    }
    a = run_ingest(raw_folder(tmp_path / "a", plain))
    b = run_ingest(raw_folder(tmp_path / "b", packed))
    assert (a.folder / "rows.parquet").read_bytes() == (b.folder / "rows.parquet").read_bytes()
    assert a.metrics["ignored_files"] == []
    assert b.metrics["ignored_files"] == ["README.md", "old.zip"]


def params(**told: object) -> ingest.Params:
    return load(ingest.Params, told, "evergreen.ingest")


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"columns": {"question": "q", "answer": "q"}}, "columns.answer: column 'q' is mapped to 'question'"),
        ({"columns": {"question": "q", "label": "frsh"}}, "columns.label: no column 'frsh' in a.csv"),
        ({"columns": {"question": "q"}, "labels": {"old": "1", "OLD ": "0"}}, "'OLD ' stands for two labels"),
        ({"columns": {"question": "q"}, "labels": {"old": "ever"}}, "labels.old: 'ever' is no label"),
    ],
)
def test_a_mapping_that_says_two_things_or_names_what_is_not_there_is_refused(
    tmp_path: Path, told: dict[str, object], says: str
) -> None:
    root = raw_folder(tmp_path, {"a.csv": "q,fresh\nA?,old\n"})
    with pytest.raises(ConfigError) as e:
        ingest.take(Step("evergreen.ingest", None, root, 7), params(**told))
    assert says in str(e.value)


def test_the_label_of_a_table_with_a_column_a_language_may_be_mapped(tmp_path: Path) -> None:
    root = raw_folder(tmp_path, {"train.csv": "fresh,English,German\nold,A?,B?\nnew,C?,D?\n"})
    step = Step("evergreen.ingest", None, root, 7)
    told = {"columns": {"label": "fresh"}, "labels": {"old": "1", "new": "fast"}}
    ingest.run(step, params(**told))
    step.finish(ingest.SCHEMA)
    found = [(r["question"], r["language"], r["label"], r["change_rate"]) for r in rows(step)]
    assert found == [
        *(("A?", "en", "evergreen", "never"), ("B?", "de", "evergreen", "never")),
        *(("C?", "en", "mutable", "fast"), ("D?", "de", "mutable", "fast")),
    ]


@pytest.mark.parametrize(
    ("label", "rate", "ends"),
    [
        ("slow", "fast", "slow but fast"),
        ("fast", "slow", "fast but slow"),
        ("mutable", "never", "mutable but never"),
        ("evergreen", "slow", "evergreen but slow"),
        ("slow", "slow-changing", ("mutable", "slow")),
        ("0", "fast", ("mutable", "fast")),
        ("fast", "0", ("mutable", "fast")),
        ("unknown", "slow", ("mutable", "slow")),
    ],
)
def test_a_label_and_a_rate_that_say_different_things_are_refused(
    read_raw: Callable[..., Step], label: str, rate: str, ends: object
) -> None:
    step = read_raw({"a.csv": f"question,label,change_rate\nA?,{label},{rate}\n"})
    found = [(r["label"], r["change_rate"]) for r in rows(step)]
    refused = pl.read_parquet(step.folder / "rejected.parquet").select("reason", "detail").rows()
    if isinstance(ends, tuple):
        assert (found, refused) == ([ends], [])
    else:
        assert (found, refused) == ([], [("label_and_rate_disagree", ends)])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "question,label\nA\0?,1\nB?,0\nC?,0\n"),
        ("a.jsonl", '{"question": "A\\u0000?", "label": 1}\n{"question": "B?", "label": 0}\n'),
        ("a.json", '[{"question": "A\\u0000?", "label": 1}, {"question": "B?", "label": 0}]'),
        ("a.parquet", {"question": ["A\0?", "B?"], "label": [1, 0]}),
    ],
)
def test_a_text_with_a_nul_costs_its_record_in_every_format(
    read_raw: Callable[..., Step], name: str, content: object
) -> None:
    step = read_raw({name: parquet(content) if isinstance(content, dict) else content})
    assert [reason for *_, reason in rejected(step)] == ["unreadable"]
    assert "B?" in [r["question"] for r in rows(step)]


def test_objects_line_by_line_in_a_json_file_are_told_their_suffix(read_raw: Callable[..., Step]) -> None:
    with pytest.raises(InputError, match=r"a\.json: holds one JSON object a line, .*\(name it \.jsonl\)"):
        read_raw({"a.json": '{"question": "A?", "label": 1}\n{"question": "B?", "label": 0}\n'})


def parquet(columns: dict[str, object]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def test_parquet_of_odd_types_is_read_right_or_costs_the_row(read_raw: Callable[..., Step]) -> None:
    columns = {
        "question": [f"Q{n}?" for n in range(6)],
        "label": pa.array([Decimal(1), Decimal(0), Decimal(1), Decimal(1), Decimal(1), Decimal("0.5")]),
        "answer": pa.array([Decimal("1.50"), Decimal("20.00"), None, None, None, None]),
        "as_of": pa.array([0, 1, 2**62, None, 0, 0], pa.timestamp("us")),
        "aliases": pa.array([["a"], [], None, ["b"], ["c"], None], pa.large_list(pa.string())),
        "source": pa.array(["s"] * 4 + ["t", None]).dictionary_encode(),
        "score": [1.0, float("nan"), 0.0, float("inf"), 0.0, 0.0],
    }
    step = read_raw({"train.parquet": parquet(columns)})
    told = ("question", "label", "answer", "as_of", "aliases", "source")
    day = date(1970, 1, 1)
    assert [tuple(r[c] for c in told) for r in rows(step)] == [
        ("Q0?", "evergreen", "1.50", day, ["a"], "s"),
        ("Q1?", "mutable", "20", day, [], "s"),
        ("Q3?", "evergreen", None, None, ["b"], "s"),
        ("Q4?", "evergreen", None, day, ["c"], "t"),
    ]
    assert rejected(step) == [
        ("train.parquet", 3, None, "unreadable"),
        ("train.parquet", 6, "label", "unknown_label"),
    ]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (pa.Table.from_arrays([pa.array(["A?"])] * 2, names=["q", "q"]), "two columns are named 'q'"),
        (pa.table({"question": pa.array([], pa.string())}), "has columns and no rows"),
        (b"", "train.parquet: is not a readable Parquet file: Parquet file size is 0 bytes"),
    ],
)
def test_a_parquet_file_that_cannot_be_read_says_why(
    read_raw: Callable[..., Step], columns: pa.Table | bytes, says: str
) -> None:
    file = io.BytesIO(columns if isinstance(columns, bytes) else b"")
    if isinstance(columns, pa.Table):
        pq.write_table(columns, file)
    with pytest.raises(InputError) as e:
        read_raw({"train.parquet": file.getvalue()})
    assert says in str(e.value)


def test_an_infinite_number_is_no_answer(read_raw: Callable[..., Step]) -> None:
    columns = {"question": ["A?", "B?"], "label": [1, 1], "answer": [float("inf"), 2.5]}
    step = read_raw({"train.parquet": parquet(columns)})
    assert [(r["question"], r["answer"]) for r in rows(step)] == [("B?", "2.5")]
    assert rejected(step) == [("train.parquet", 1, "answer", "wrong_type")]
