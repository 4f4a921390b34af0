"""No file of a folder is passed over in silence: it is read, named, or refused."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from pathlib import Path

import pyarrow as pa
import pytest

from pipelines.data import source_files
from pipelines.data.readers import header, records
from pipelines.data.source_files import bytes_of, data_files, left_out, stem_of, suffix_of
from pipelines.errors import InputError

TEXT = b'{"a": 1}\n{"a": 2}\n'
PACKERS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}


@pytest.mark.parametrize("packed", PACKERS)
def test_a_packed_file_is_read_as_what_it_holds(tmp_path: Path, packed: str) -> None:
    path = tmp_path / f"q.jsonl{packed}"
    path.write_bytes(PACKERS[packed](TEXT))
    assert data_files(tmp_path) == [path]
    assert [r.values for r in records(path, tmp_path)] == [{"a": 1}, {"a": 2}]
    assert header(path, tmp_path) == ["a"]
    assert [r.file for r in records(path, tmp_path)] == [path.name] * 2
    assert (suffix_of(path), stem_of(path)) == (".jsonl", "q")


@pytest.mark.parametrize("packed", PACKERS)
@pytest.mark.parametrize("harm", ["cut", "other", "none"])
def test_a_packed_file_that_is_damaged_is_refused_and_never_read_in_part(
    tmp_path: Path, packed: str, harm: str
) -> None:
    whole = PACKERS[packed](os.urandom(3000))
    (tmp_path / f"q.csv{packed}").write_bytes({"cut": whole[:-7], "other": TEXT, "none": b""}[harm])
    with pytest.raises(InputError, match=rf"q.csv{packed}: (is no whole|the file is empty)"):
        list(records(tmp_path / f"q.csv{packed}", tmp_path))


def test_a_file_that_unpacks_to_more_than_memory_holds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_files, "LARGEST", 1000)
    (tmp_path / "q.csv.gz").write_bytes(gzip.compress(b"a" * 1001))
    with pytest.raises(InputError, match=r"q\.csv\.gz: unpacks to more than"):
        bytes_of(tmp_path / "q.csv.gz", "q.csv.gz")


def test_a_file_that_stands_packed_and_unpacked_is_not_read_twice(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("a\n1\n")
    (tmp_path / "q.csv.gz").write_bytes(gzip.compress(b"a\n1\n"))
    with pytest.raises(InputError, match=r"q\.csv\.gz: stands here as 'q\.csv', too"):
        data_files(tmp_path)


def test_what_no_reader_takes_is_named(tmp_path: Path) -> None:
    for name in ("q.csv", "README.md", "set/more.tar.bz2", ".DS_Store", "._q.csv", ".git/x.csv", "a.xlsx"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a\n1\n")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "bad\udcff.txt").touch()
    assert data_files(tmp_path) == [tmp_path / "q.csv"]
    assert left_out(tmp_path) == [
        *(".DS_Store", "._q.csv", ".git/", "README.md", "a.xlsx", "bad\\udcff.txt"),
        *("loop/", "set/more.tar.bz2"),
    ]


def test_what_is_data_by_its_name_alone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("a\n1\n")
    (tmp_path / "set").mkdir()
    for make, what in (
        (lambda path: path.symlink_to("gone"), r"set/x\.csv: is a link that leads to no file"),
        (lambda path: path.symlink_to("x.csv"), r"set/x\.csv: is a link that leads to no file"),
        (os.mkfifo, r"set/x\.csv: is no file"),
    ):
        make(tmp_path / "set/x.csv")
        with pytest.raises(InputError, match=what):
            data_files(tmp_path)
        (tmp_path / "set/x.csv").unlink()


def test_a_folder_named_as_data_is_looked_into_and_no_data(tmp_path: Path) -> None:
    (tmp_path / "x.csv").mkdir()
    with pytest.raises(InputError, match="holds no data files"):
        data_files(tmp_path)
    (tmp_path / "x.csv" / "q.csv").write_text("a\n1\n")
    assert data_files(tmp_path) == [tmp_path / "x.csv" / "q.csv"]
    assert left_out(tmp_path) == []
