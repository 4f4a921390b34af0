"""How a run ends: a failed stage with one line, a signal without a process left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from pipelines.cli import main
from pipelines.llm.store import Store
from tests.llm.scripted_server import ScriptedServer

pytestmark = pytest.mark.slow
IN_FLIGHT = 8  # llm.concurrency of the demo


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HEADRACE_LLM_MODEL", "HEADRACE_STORE", "HEADRACE_LLM_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(["init", "mine", "--set", "llm.retries=0"]) == 0
    monkeypatch.chdir(tmp_path / "mine")
    assert main(["run", "trit.ingest"]) == 0
    return tmp_path / "mine"


def run(url: str, *before: str) -> subprocess.Popen[str]:
    env = {**os.environ, "HEADRACE_LLM_BACKEND": "openai", "HEADRACE_LLM_BASE_URL": url}
    return subprocess.Popen(
        [*before, sys.executable, "-m", "pipelines", "run", "--single", "trit.translate@fr"],
        env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def at_work(root: Path) -> list[int]:
    """Processes of runs and stages in this workspace."""
    found = []
    for process in psutil.process_iter():
        try:
            if "pipelines" in process.cmdline() and process.cwd() == str(root):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def until(what: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "never happened"
        time.sleep(0.05)


def test_a_failed_stage_is_told_in_one_line_with_its_reason(mine: Path) -> None:
    with ScriptedServer({"faults": [{"status": 400, "body": "too long for me"}] * 30}) as server:
        process = run(server.url)
        _, said = process.communicate()
    assert process.returncode == 1
    [line] = [s for s in said.splitlines() if s.startswith("headrace: ")]
    assert line.startswith("headrace: stage trit.translate@fr failed: 30 of 30 items failed, first ")
    assert "bad_request HTTP 400: too long for me" in line and "run again" in line and "Traceback" not in said


@pytest.mark.parametrize("told", [signal.SIGHUP, signal.SIGTERM])
def test_a_run_that_is_told_to_end_leaves_no_process_and_keeps_what_was_answered(
    mine: Path, told: signal.Signals
) -> None:
    with ScriptedServer(latency_ms=300) as server:
        process = run(server.url)
        until(lambda: len(server.requests()) > IN_FLIGHT + 2, process)
        assert len(at_work(mine)) > 1  # the run and its stage
        process.send_signal(told)
        _, said = process.communicate(timeout=60)
        assert at_work(mine) == []
        asked = server.asked()
    assert process.returncode == 130
    assert said.splitlines()[-1] == "headrace: interrupted; what was answered is stored"
    with Store(mine / ".headrace" / "responses.sqlite") as store:
        assert len(store.answers(asked)) >= len(asked) - IN_FLIGHT


def test_a_run_that_is_to_outlive_its_terminal_does(mine: Path) -> None:
    with ScriptedServer(latency_ms=100) as server:
        process = run(server.url, "nohup")
        until(lambda: len(server.requests()) > 2, process)
        process.send_signal(signal.SIGHUP)
        said = process.communicate(timeout=300)
    assert len(server.requests()) == 30, said


LOADING = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == "pipelines.cli":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from pipelines.__main__ import main
main()
"""


def test_an_interrupt_while_a_process_is_being_loaded_ends_it_without_a_word() -> None:
    command = [sys.executable, "-c", LOADING]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("", "", -signal.SIGINT)
