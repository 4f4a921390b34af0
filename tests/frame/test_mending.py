"""A DVC that was killed while it wrote does not stop the next run; a person's conflict does."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.errors import ConfigError
from pipelines.graph import lock
from pipelines.graph.mending import keep_lock, mend, mend_path_lock

WHOLE = (
    "schema: '2.0'\nstages:\n  a:\n    cmd: x\n    outs:\n    - path: data/a\n      md5: 0123456789abcdef\n"
)


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
