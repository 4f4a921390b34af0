"""A bad record costs one record, a bad file one clear error, and nothing is dropped."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.data.readers import Record, data_files, header, load_json, records, require
from pipelines.errors import InputError

KEY = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=3)
CELL = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=12)


def read(tmp: Path, name: str, data: str | bytes, **how: Any) -> list[Record]:
    path = tmp / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return list(records(path, tmp, **how))


def test_a_bad_line_in_the_middle_of_a_csv_costs_that_line_only(tmp_path: Path) -> None:
    got = read(tmp_path, "q.csv", "id,text\n1,one\n2,two,three\n4,four\n")
    assert [(r.line, r.values.get("text"), r.fault) for r in got] == [
        (2, "one", ""),
        (3, None, "3 fields, expected 2"),
        (4, "four", ""),
    ]


def test_a_quote_that_is_never_closed_costs_its_line_and_not_the_rest(tmp_path: Path) -> None:
    got = read(tmp_path, "q.csv", 'id,text\n1,one\n2,"two\n3,three\n4,four\n')
    assert [r.values.get("text") for r in got] == ["one", None, "three", "four"]
    assert got[1].fault == "a quote is not closed"


def test_a_cell_may_hold_line_ends_and_crlf_may_end_records(tmp_path: Path) -> None:
    got = read(tmp_path, "q.csv", 'id,text\r\n1,"a\nb"\r\n2,c\r\n')
    assert [(r.line, r.values) for r in got] == [
        (2, {"id": "1", "text": "a\nb"}),
        (4, {"id": "2", "text": "c"}),
    ]


def test_a_byte_order_mark_is_not_part_of_the_first_column(tmp_path: Path) -> None:
    assert read(tmp_path, "q.csv", b"\xef\xbb\xbfid,text\n1,a\n")[0].values == {"id": "1", "text": "a"}


def test_u2028_is_no_line_end_in_jsonl(tmp_path: Path) -> None:
    got = read(tmp_path, "q.jsonl", '{"a": "x\u2028y"}\n{"a": 1}\n')
    assert [r.values for r in got] == [{"a": "x\u2028y"}, {"a": 1}]


@pytest.mark.parametrize(
    ("line", "fault"),
    [("{", "not JSON"), ("[1]", "not an object but list"), ('{"a": NaN}', "not JSON"), ("nul", "not JSON")],
)
def test_a_bad_jsonl_line_is_a_record_with_a_fault(tmp_path: Path, line: str, fault: str) -> None:
    got = read(tmp_path, "q.jsonl", f'{{"a": 1}}\n{line}\n{{"a": 2}}\n')
    assert [r.values for r in got] == [{"a": 1}, {}, {"a": 2}]
    assert got[1].line == 2
    assert fault in got[1].fault


def test_a_tsv_is_read_without_quoting_and_columns_may_be_given(tmp_path: Path) -> None:
    got = read(tmp_path, "m.tsv", 'say "hi\t2\n', columns=["question", "answer"])
    assert got[0].values == {"question": 'say "hi', "answer": "2"}


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("q.csv", b"", "q.csv: the file is empty"),
        ("q.csv", b"id,text\n1,\xff\n", "q.csv:2: is not UTF-8"),
        ("q.csv", b"PK\x03\x04\0\0", "q.csv:1: is not text"),
        ("q.csv", b'{"a": 1}\n', "q.csv: holds JSON, not a table"),
        ("q.csv", b"a,a\n1,2\n", "q.csv:1: two columns are named 'a'"),
        ("q.jsonl", b"[1, 2]", "q.jsonl: holds a JSON array"),
        ("q.json", b'{"a": }', "q.json:1: is not JSON"),
        ("q.json", b'{"a": 1}', "q.json: must be a list of objects"),
        ("q.json", b"[" * 100_000, "q.json"),
        ("q.xls", b"x", "q.xls: unknown suffix '.xls'"),
        ("q.csv", b"version https://git-lfs.github.com/spec/v1\n", "q.csv: is a Git LFS pointer"),
    ],
)
def test_a_file_that_is_not_what_it_claims_is_one_error_with_its_name(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, name, data)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_a_missing_column_is_named_with_those_that_are_there() -> None:
    with pytest.raises(InputError, match=r"q.csv: column 'label' is missing \(the file has: 'id', 'text'\)"):
        require(["id", "text"], ["id", "label"], "q.csv")


def test_a_folder_without_data_files_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("hello")
    with pytest.raises(InputError, match="holds no data files"):
        data_files(tmp_path)


def test_header_tells_columns_of_tables_and_keys_of_objects(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "b.jsonl").write_text('broken\n{"k": 1}\n')
    assert header(tmp_path / "a.csv", tmp_path) == ["x", "y"]
    assert header(tmp_path / "b.jsonl", tmp_path) == ["k"]
    assert load_json_error(tmp_path).startswith("a.csv:1: is not JSON")


def load_json_error(folder: Path) -> str:
    with pytest.raises(InputError) as error:
        load_json(folder / "a.csv", folder)
    return str(error.value)


@settings(deadline=None)
@given(st.lists(st.tuples(CELL, CELL), min_size=1, max_size=15))
def test_what_the_csv_writer_wrote_is_read_back(rows: list[tuple[str, str]]) -> None:
    import tempfile

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows([("a", "b"), *rows])
    with tempfile.TemporaryDirectory() as folder:
        got = read(Path(folder), "q.csv", text.getvalue())
    assert [tuple(r.values.values()) for r in got] == rows


@settings(deadline=None)
@given(st.lists(st.one_of(st.dictionaries(KEY, st.integers(), max_size=3), st.none()), max_size=15))
def test_every_nonempty_jsonl_line_is_one_record(values: list[dict[str, int] | None]) -> None:
    import tempfile

    text = "".join("broken\n" if v is None else json.dumps(v) + "\n" for v in [*values, {}])
    with tempfile.TemporaryDirectory() as folder:
        got = read(Path(folder), "q.jsonl", text)
    assert [None if r.fault else r.values for r in got] == [*values, {}]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("q.csv", b"\x1f\x8b\x08\0\0", "q.csv:1: is not text but gzip"),
        ("q.csv", b"PAR1\x15\x04", "q.csv:1: is not text but Parquet"),
        ("q.csv", "a,b\n1,2\n".encode("utf-16"), "q.csv:1: is not text but UTF-16"),
        ("q.csv", "a,b\n1,2\n".encode("utf-32"), "q.csv:1: is not text but UTF-32"),
        ("q.csv", b"\xef\xbb\xbf \n", "q.csv: the file is empty"),
        ("q.csv", b"a,b\r1,2\r", "q.csv: its lines end with CR alone (end them with LF"),
        ("q.csv", b"a\rb,c\n1,2\n", "q.csv:1: the header cannot be read"),
        ("q.csv", b'{"a": 1}\n{"a": 2}\n', "q.csv: holds JSON, not a table"),
        ("q.jsonl", b'{"a": 1}\r{"a": 2}\r', "q.jsonl: its lines end with CR alone"),
        ("q.jsonl", b"a,b\n1,2\n", "q.jsonl: no record is a JSON object; the first, on line 1, is not JSON"),
        ("q.jsonl", b'[{"a": 1},\n{"a": 2}]\n', "q.jsonl: holds a JSON array"),
    ],
)
def test_the_columns_of_a_file_that_is_something_else_are_an_error_with_its_name(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError) as error:
        header(tmp_path / name, tmp_path)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    "bad",
    [
        '{"a": "\\ud800"}',
        '{"\\udfff": 1}',
        '{"a": {"b": ["\\ud800 x"]}}',
        '{"a": [1e999]}',
        '{"a": {"b": -1e999}}',
        "[1]",
    ],
)
def test_a_record_that_cannot_be_kept_costs_itself_wherever_it_stands(tmp_path: Path, bad: str) -> None:
    good = '{"a": "é\\ud83d\\ude00"}'
    for at in range(3):
        lines = [good, good]
        lines.insert(at, bad)
        for name, text in (("q.jsonl", "\n".join(lines)), ("q.json", f"[{','.join(lines)}]")):
            got = read(tmp_path, name, text)
            assert [r.values for r in got if not r.fault] == [{"a": "é😀"}] * 2
            assert [bool(r.fault) for r in got] == [n == at for n in range(3)]
            assert got[at].raw.encode()  # a reject keeps it, so UTF-8 must hold it
            assert header(tmp_path / name, tmp_path) == ["a"]


def test_the_keys_of_all_records_count_not_those_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"a": 1}\nbroken\n{"b": 1, "a": 2}\n')
    assert header(tmp_path / "q.jsonl", tmp_path) == ["a", "b"]


def test_a_file_whose_name_is_no_text_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "bad\udcff.csv").write_text("a\n1\n")
    with pytest.raises(InputError, match=r"bad\\udcff.csv: the file's name is not UTF-8 \(rename it\)"):
        data_files(tmp_path)


@pytest.mark.parametrize("name", ["q.csv", "q.tsv"])
def test_a_header_without_rows_is_refused_as_a_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="has a header and no rows"):
        read(tmp_path, name, "question\tlabel\n\n" if name.endswith("tsv") else "question,label\n\n")


def test_an_empty_json_list_is_refused_as_a_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds an empty list"):
        read(tmp_path, "q.json", "[]")


@pytest.mark.parametrize(
    ("name", "header", "message"),
    [
        ("q.csv", "question;label", "separated by ';', not by ',' .save it with ',' between"),
        ("q.csv", "question\tlabel", "name it .tsv"),
        ("q.tsv", "question,label", "name it .csv"),
    ],
)
def test_a_header_with_another_separator_says_which(
    tmp_path: Path, name: str, header: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, name, f"{header}\n1;1\n")
