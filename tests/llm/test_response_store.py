"""The store's law: committed before handed out, first answer wins, damage and misuse are named."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipelines.llm import store_file
from pipelines.llm.answer import TRANSIENT, Failure, Usage
from pipelines.llm.store import Kept, Record, Store
from pipelines.llm.store_errors import FullDisk, LockedStore, NewerStore, NotAStore, ReadOnlyStore
from pipelines.llm.store_file import APPLICATION_ID, VERSION


def record(number: int, text: str = "four", failure: Failure | None = None) -> Record:
    kept = Kept(text, "stop", Usage(5, 2, 0.25), failure)
    return Record(
        f"{number:064x}", "completion", "m", "name:m", "{}", kept, b'{"raw": true}', 12, 1, "r1", "p"
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "responses.sqlite") as opened:
        yield opened


def test_an_answer_comes_back_as_it_was_put_also_to_another_connection(store: Store) -> None:
    put = record(1, "viér\u2028 \U0001f600")
    store.put([put])
    with Store(store.path) as other:
        assert other.answers([put.key]) == {put.key: put.kept}
        assert other.record(put.key) == put


@pytest.mark.parametrize("size", [0, 1, 1024, 1025, 100_000])
@pytest.mark.parametrize("start", [b"{", b"x", b"\x78\x01"])
def test_a_raw_body_comes_back_to_the_byte_however_long_and_whatever_it_begins_with(
    store: Store, start: bytes, size: int
) -> None:
    body = (start + b"lorem ipsum " * size)[:size]
    store.put([replace(record(1), body=body)])
    kept = store.record(record(1).key)
    assert kept is not None and kept.body == body


def test_the_first_committed_answer_is_the_answer_for_all(store: Store) -> None:
    store.put([record(1, "first")])
    with Store(store.path) as other:
        assert other.put([record(1, "second")])[record(1).key].text == "first"


def test_failures_of_the_question_are_kept_and_passing_ones_are_not(store: Store) -> None:
    store.put([record(1, "cut", Failure.LENGTH), record(2, "", Failure.EMPTY)])
    assert store.answers([record(1).key])[record(1).key].failure is Failure.LENGTH
    for failure in [*TRANSIENT, Failure.BAD_REQUEST, Failure.OVER_BUDGET]:
        with pytest.raises(ValueError, match="not kept"):
            store.put([record(3, "", failure)])
    assert store.count() == 2


def test_more_keys_than_one_batch_are_read(store: Store) -> None:
    records = [record(n, str(n)) for n in range(1, 1203)]
    store.put(records)
    found = store.answers([r.key for r in records] + ["f" * 64])
    assert {k: v.text for k, v in found.items()} == {r.key: r.kept.text for r in records}


def test_a_group_that_cannot_be_committed_whole_leaves_nothing(store: Store) -> None:
    store.put([record(1)])
    broken = Record("zz", "completion", "m", "i", "{}", Kept("x"), b"")
    with pytest.raises(ValueError, match="hexadecimal"):
        store.put([record(2), broken])
    assert store.answers([record(2).key]) == {}


def test_a_damaged_row_counts_as_absent_and_can_be_asked_again(store: Store) -> None:
    store.put([record(1, "right"), record(2, "sound")])
    with sqlite3.connect(store.path) as raw:
        raw.execute("UPDATE answers SET text = 'wrong' WHERE key = ?", (bytes.fromhex(record(1).key),))
    assert list(store.answers([record(1).key, record(2).key])) == [record(2).key]
    assert store.put([record(1, "right again")])[record(1).key].text == "right again"


def test_vectors_come_back_bit_for_bit(store: Store) -> None:
    vectors = np.random.default_rng(0).normal(size=(3, 384)).astype(np.float32)
    keys = [f"{n:064x}" for n in range(3)]
    store.put_embeddings("sha256:x", [(k, "query: t", v) for k, v in zip(keys, vectors, strict=True)])
    found = store.embeddings([*keys, "e" * 64])
    assert sorted(found) == keys
    assert all(np.array_equal(found[k], v) for k, v in zip(keys, vectors, strict=True))


def test_a_commit_reaches_the_disk_and_readers_do_not_wait(store: Store) -> None:
    with sqlite3.connect(store.path) as raw:
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_a_newer_store_is_refused_untouched(store: Store) -> None:
    store.put([record(1)])
    with sqlite3.connect(store.path) as raw:
        raw.execute(f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(NewerStore, match=f"version {VERSION + 1}, this headrace reads up to {VERSION}"):
        Store(store.path)


@pytest.mark.parametrize("content", [b"question,answer\n" * 100, os.urandom(5000)])
def test_a_file_that_is_no_database_is_named_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.csv"
    path.write_bytes(content)
    with pytest.raises(NotAStore, match=r"notes\.csv: is not a response store"):
        Store(path)
    assert path.read_bytes() == content


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as raw:
        raw.execute("CREATE TABLE runs (id)")
    with pytest.raises(NotAStore, match="not a response store"):
        Store(tmp_path / "other.db")


def test_a_locked_store_is_named_after_the_busy_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_file, "BUSY_S", 0.05)
    with Store(store.path) as second, sqlite3.connect(store.path, isolation_level=None) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(LockedStore, match="locked"):
            second.put([record(1)])
        holder.execute("COMMIT")
        assert second.put([record(1)])[record(1).key].text == "four"


def test_a_full_disk_is_named_and_loses_nothing_that_was_stored(store: Store) -> None:
    store.put([record(1)])
    store._db.execute("PRAGMA max_page_count = 10")  # SQLite's own SQLITE_FULL, without filling a disk
    with pytest.raises(FullDisk, match=r"no disk space .*free some space"):
        store.put([record(n, "x" * 20_000) for n in range(2, 12)])
    assert list(store.answers([record(n).key for n in range(1, 12)])) == [record(1).key]
    store._db.execute("PRAGMA max_page_count = 100000")
    store.put([record(2)])
    assert store.count() == 2


def test_a_trace_reads_a_store_that_it_cannot_write(store: Store) -> None:
    store.put([record(1)])
    store.close()
    with Store(store.path, readonly=True) as reader:
        assert reader.full([record(1).key, "a" * 64]) == {record(1).key: record(1)}
        with pytest.raises(ReadOnlyStore, match="cannot be written"):
            reader.put([record(2)])


def test_a_trace_of_an_absent_store_makes_none(tmp_path: Path) -> None:
    with pytest.raises(NotAStore, match="there is no response store"):
        Store(tmp_path / "absent.sqlite", readonly=True)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ReadOnlyStore, match=r"file/inner: the response store's folder cannot be made"):
        Store(tmp_path / "file" / "inner" / "s.sqlite")


def test_a_store_says_whose_it_is(store: Store) -> None:
    with sqlite3.connect(store.path) as raw:
        assert raw.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
