"""A DVC that was killed while it wrote does not stop the next run; a person's conflict does."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from pipelines.errors import ConfigError
from pipelines.graph import lock, run
from pipelines.graph.mending import keep_lock, mend, mend_path_lock

WHOLE = (
    "schema: '2.0'\nstages:\n  a:\n    cmd: x\n    outs:\n    - path: data/a\n      md5: 0123456789abcdef\n"
)
TWO_FILES = f"{WHOLE}    - path: data/b\n      hash: md5\n      md5: fedcba9876543210\n  b:\n    cmd: y\n"
GRAPH = "stages:\n  a:\n    cmd: cp word copy\n    deps: [word]\n    outs: [copy]\n"
CONFIG = "[core]\n    no_scm = true\n    analytics = false\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / ".dvc" / "tmp").mkdir(parents=True)
    (tmp_path / "dvc.lock").write_text(WHOLE)
    keep_lock(tmp_path)
    return tmp_path


@pytest.mark.parametrize("length", [0, 5, 20, 40, len(WHOLE) - 1])
def test_a_lock_file_cut_short_is_taken_back_to_its_last_whole_state(root: Path, length: int) -> None:
    said: list[str] = []
    (root / "dvc.lock").write_text(WHOLE[:length])
    mend(root, said.append)
    assert (root / "dvc.lock").read_text() == WHOLE
    assert said == ["dvc.lock was cut short by a killed process: taken back to its last whole state"]


@pytest.mark.parametrize("lines", range(3, TWO_FILES.count("\n") + 1))
def test_a_lock_file_cut_after_any_line_ends_with_the_hash_of_each_file_it_names(
    root: Path, lines: int
) -> None:
    (root / "dvc.lock").write_text("".join(TWO_FILES.splitlines(keepends=True)[:lines]))
    mend(root, lambda _: None)
    entries = lock(root).values()
    assert all(entry["cmd"] and all(out["md5"] for out in entry.get("outs", [])) for entry in entries)


def test_a_lock_file_that_a_bare_dvc_is_writing_is_read_when_it_is_whole(root: Path) -> None:
    (root / "dvc.lock").write_text(TWO_FILES[: TWO_FILES.index("      md5: fe")])
    written = threading.Timer(0.3, (root / "dvc.lock").write_text, [TWO_FILES])
    written.start()
    assert lock(root)["b"] == {"cmd": "y"}
    written.join()


def test_a_lock_file_that_stays_torn_is_an_error_with_its_cure(root: Path) -> None:
    (root / "dvc.lock").write_text(TWO_FILES[: TWO_FILES.index("      md5: fe")])
    with pytest.raises(ConfigError, match="dvc.lock: is cut short.*headrace run mends it"):
        lock(root)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A workspace whose one stage was run."""
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc" / "config").write_text(CONFIG)
    (tmp_path / "dvc.yaml").write_text(GRAPH)
    (tmp_path / "word").write_text("brook")
    assert run(tmp_path, who="a test").made == ["a"]
    return tmp_path


@pytest.mark.parametrize("beside", [True, False], ids=["beside a whole entry", "alone"])
@pytest.mark.parametrize("torn", [None, "", "cmd: cp word copy\nouts:\n- path: copy\n  hash: md5\n"])
def test_what_a_killed_dvc_left_in_its_run_cache_does_not_stop_the_next_run(
    copied: Path, torn: str | None, beside: bool
) -> None:
    [entry] = (copied / ".dvc" / "cache" / "runs").glob("*/*/*")
    if not beside:
        entry.unlink()
    if torn is not None:
        left = entry.with_name("Wd2UrBZqvWWrkjXzwQDn6F.tmp")
        left.write_text(torn)
        os.utime(left, (time.time() + 60,) * 2)  # DVC reads the newest
    for made in ("dvc.lock", "copy"):
        (copied / made).unlink()
    run(copied, who="a test")
    assert (copied / "copy").read_text() == "brook"
    assert [*entry.parent.iterdir()] == [entry]


def test_who_reads_the_lock_file_while_a_run_writes_it_reads_a_whole_one(copied: Path) -> None:
    before = (copied / "dvc.lock").read_text()
    with (copied / "dvc.lock").open() as reader:
        (copied / "word").write_text("river")
        assert run(copied, who="a test").made == ["a"]
        assert reader.read() == before != (copied / "dvc.lock").read_text()


def test_a_whole_lock_file_is_left_as_it_is_and_remembered(root: Path) -> None:
    newer = WHOLE.replace("md5: 01", "md5: 99")
    (root / "dvc.lock").write_text(newer)
    mend(root, pytest.fail)
    keep_lock(root)
    (root / "dvc.lock").write_text("sche")
    mend(root, lambda _: None)
    assert (root / "dvc.lock").read_text() == newer


def test_a_merge_conflict_is_for_a_person_to_decide(root: Path) -> None:
    conflict = WHOLE + "<<<<<<< ours\n  b: 1\n=======\n  b: 2\n>>>>>>> theirs\n"
    (root / "dvc.lock").write_text(conflict)
    mend(root, pytest.fail)
    keep_lock(root)
    assert (root / "dvc.lock").read_text() == conflict
    with pytest.raises(ConfigError, match="dvc.lock: is not valid YAML"):
        lock(root)


@pytest.mark.parametrize("torn", ["", '{"read": {', "\0\0"])
def test_a_torn_lock_of_paths_is_taken_away_and_a_whole_one_kept(root: Path, torn: str) -> None:
    path = root / ".dvc" / "tmp" / "rwlock"
    path.write_text(torn)
    mend_path_lock(path.parent)
    assert not path.exists()
    path.write_text('{"read": {}, "write": {}}')
    mend_path_lock(path.parent)
    assert path.exists()
