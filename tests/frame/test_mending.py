"""A DVC that was killed while it wrote does not stop the next run; a person's conflict does."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import zc.lockfile

from pipelines.errors import ConfigError
from pipelines.graph import lock, run, state
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


@pytest.mark.parametrize("lines", range(TWO_FILES.count("\n")))
def test_of_a_lock_file_cut_short_the_whole_stages_stay_where_none_was_remembered(
    tmp_path: Path, lines: int
) -> None:
    """So a bare `dvc` leaves it that was killed where `headrace run` was never called."""
    head = "".join(TWO_FILES.splitlines(keepends=True)[:lines])
    (tmp_path / "dvc.lock").write_text(head + TWO_FILES[len(head) :][:4])  # and in the middle of a line
    mend(tmp_path, lambda _: None)
    assert (tmp_path / "dvc.lock").exists() == ("  b" in head + TWO_FILES[len(head) :][:4])
    assert set(lock(tmp_path)) == ({"a"} if (tmp_path / "dvc.lock").exists() else set())


def test_what_a_killed_run_was_writing_beside_the_lock_file_is_taken_away(root: Path) -> None:
    left = [folder / ".dvc.lock.71.tmp" for folder in (root, root / ".headrace")]
    for path in left:
        path.write_text("sche")
    mend(root, pytest.fail)
    assert not [path for path in left if path.exists()]


@contextmanager
def bare_dvc_writes(root: Path, torn: str, then: str) -> Iterator[None]:
    """A bare `dvc` that holds its lock and is in the middle of writing dvc.lock."""
    begun = threading.Event()

    def write() -> None:
        held = zc.lockfile.LockFile(str(root / ".dvc" / "tmp" / "lock"))
        (root / "dvc.lock").write_text(torn)
        begun.set()
        time.sleep(0.4)
        (root / "dvc.lock").write_text(then)
        held.close()

    writer = threading.Thread(target=write)
    writer.start()
    assert begun.wait(60)
    try:
        yield
    finally:
        writer.join()


@pytest.mark.parametrize("torn", ["  b:\n", "      md5: fe"], ids=["between two stages", "within a file"])
def test_a_lock_file_that_a_bare_dvc_is_writing_is_read_when_it_is_whole(root: Path, torn: str) -> None:
    with bare_dvc_writes(root, TWO_FILES[: TWO_FILES.index(torn)], TWO_FILES):
        assert lock(root)["b"] == {"cmd": "y"}


def test_a_lock_file_is_read_beside_a_dvc_that_holds_its_lock_for_long(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dvc.lock.DEFAULT_TIMEOUT", 0.06)
    held = zc.lockfile.LockFile(str(root / ".dvc" / "tmp" / "lock"))
    assert set(lock(root)) == {"a"}
    held.close()


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


def test_a_run_takes_back_no_lock_file_that_a_bare_dvc_is_writing(copied: Path) -> None:
    whole = (copied / "dvc.lock").read_text()
    said: list[str] = []
    with bare_dvc_writes(copied, whole[:60], whole):
        assert run(copied, who="a test", say=said.append).made == []
    assert not [s for s in said if "cut short" in s]
    assert (copied / "dvc.lock").read_text() == whole


def test_a_stage_that_has_run_is_not_run_again_because_a_bare_dvc_holds_its_lock_for_long(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dvc.lock.DEFAULT_TIMEOUT", 0.3)
    hold = "flock .dvc/tmp/lock sh -c 'touch held; sleep 1' & while [ ! -e held ]; do sleep 0.02; done"
    command = f"cp word copy; echo once >> ran; {hold}"
    (copied / "dvc.yaml").write_text(GRAPH.replace("cp word copy", json.dumps(command)))
    assert run(copied, who="a test").made == ["a"]
    assert (copied / "ran").read_text() == "once\n"


def at_work(root: Path, pid: int, written: float) -> Path:
    """DVC's list of paths, in which a process writes what the stage makes; as old as said."""
    path = root / ".dvc" / "tmp" / "rwlock"
    path.write_text(json.dumps({"read": {}, "write": {str(root / "copy"): {"pid": pid, "cmd": "dvc repro"}}}))
    os.utime(path, (written, written))
    return path


def test_a_killed_dvc_whose_number_another_process_has_now_is_not_waited_for(copied: Path) -> None:
    other = psutil.Process(os.getppid())
    at_work(copied, other.pid, other.create_time() - 3600)
    (copied / "word").write_text("river")
    assert run(copied, who="a test").made == ["a"]


def test_the_paths_of_a_living_process_stay_listed(copied: Path) -> None:
    path = at_work(copied, os.getppid(), time.time())
    listed = path.read_text()
    mend_path_lock(path.parent)
    assert path.read_text() == listed


def test_while_a_stage_is_made_the_state_of_the_graph_can_be_seen(copied: Path) -> None:
    at_work(copied, os.getppid(), time.time())
    stages, changed = state(copied)
    assert [s.name for s in stages] == ["a"]
    assert changed == {"a": ["it, or what it reads, is being made"]}


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
