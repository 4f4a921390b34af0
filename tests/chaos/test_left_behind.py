"""What a killed run leaves behind stops no later one: half a list of DVC's, a stage still at work."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.cli import main
from pipelines.errors import EnvironmentFault
from pipelines.graph.waiting import held
from pipelines.publish import Outs


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "mine"]) == 0
    monkeypatch.chdir(tmp_path / "mine")
    return tmp_path / "mine"


@pytest.mark.parametrize("left", ["", '{"read": {"a', "[]"])
def test_half_a_list_of_who_reads_and_writes_is_taken_away(
    workspace: Path, capfd: pytest.CaptureFixture[str], left: str
) -> None:
    tmp = workspace / ".dvc" / "tmp"
    tmp.mkdir()
    (tmp / "rwlock").write_text(left)
    assert main(["run", "evergreen.ingest"]) == 0
    assert "1 stage made" in capfd.readouterr().out
    (tmp / "rwlock").write_text(left)
    assert main(["status"]) == 0


def test_a_stage_waits_for_the_same_stage_and_says_for_which(workspace: Path) -> None:
    lock = workspace / ".headrace" / "making" / "evergreen.ingest.lock"
    lock.parent.mkdir(parents=True)
    with open(lock, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        handle.write("evergreen.ingest (PID 7)\n")
        handle.flush()
        stage = subprocess.Popen(
            [sys.executable, "-m", "pipelines", "evergreen.ingest"], stderr=subprocess.PIPE, text=True
        )
        assert stage.stderr is not None
        assert stage.stderr.readline() == "waiting for evergreen.ingest (PID 7)\n"
        assert not (workspace / "data" / "evergreen").exists()
    assert stage.wait(500) == 0
    stage.stderr.close()
    assert (workspace / "data" / "evergreen" / "ingest" / "rows.parquet").is_file()


def test_on_a_full_disk_the_lock_still_holds() -> None:
    said: list[str] = []
    with held(Path("/dev/full"), "headrace run", said.append):
        assert said == []


def test_a_rename_that_the_machine_refuses_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    outs = Outs(tmp_path, tmp_path / "data" / "toy" / "make")
    outs.path("rows.parquet").write_text("x")
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(EnvironmentFault, match=r"rows.parquet: cannot write here.*on one file system"):
        outs.publish()
