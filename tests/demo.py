"""One live run of the demo, in a clone, by the README's own command; killed once on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[1]
KILL_AFTER = 60  # requests seen by the model servers


@dataclass
class Demo:
    """A clone in which `make run` was killed once and run to the end."""

    folder: Path
    log: Path
    output: str = ""
    stored_at_kill: set[str] = field(default_factory=set)
    asked_before_kill: int = 0

    def environment(self) -> dict[str, str]:
        told = {
            k: v for k, v in os.environ.items() if not k.startswith(("HEADRACE_LLM", "MLFLOW", "DAGSTER"))
        }
        return {**told, "HEADRACE_SERVER_LOG": str(self.log), "PYTHONUNBUFFERED": "1"}

    def start(self, command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-c", command], cwd=self.folder, env=self.environment(), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def run(self, command: str) -> str:
        """Runs a command line to its end; its output. Fails the test when the status is not zero."""
        process = self.start(command)
        output, _ = process.communicate()
        assert process.returncode == 0, f"{command}: status {process.returncode}\n{output[-4000:]}"
        return output

    def requests(self) -> list[str]:
        """Keys of the requests that the model servers saw, in order."""
        if not self.log.exists():
            return []
        return [json.loads(line)["key"] for line in self.log.read_text().split("\n") if line]

    def servers(self) -> list[int]:
        """Processes of model servers that belong to this clone."""
        found = []
        for process in psutil.process_iter(["cmdline", "cwd"]):
            if "pipelines.llm.server" in (process.info["cmdline"] or []) and process.info["cwd"] == str(
                self.folder
            ):
                found.append(process.pid)
        return found


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp("live") / "headrace"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    demo = Demo(folder, folder.parent / "requests.jsonl")
    _kill_once(demo)
    demo.output = demo.run("make run")
    yield demo
    for pid in demo.servers():
        os.kill(pid, signal.SIGKILL)


def _kill_once(demo: Demo) -> None:
    """SIGKILL to the whole process group while the models answer."""
    from pipelines.llm.store import Store

    process = demo.start("make run")
    while len(demo.requests()) < KILL_AFTER:
        assert process.poll() is None, (
            f"the run ended before it was killed\n{process.communicate()[0][-4000:]}"
        )
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    deadline = time.monotonic() + 120
    while demo.servers():
        assert time.monotonic() < deadline, "a model server outlived its killed stage"
        time.sleep(0.2)
    seen = demo.requests()
    with Store(demo.folder / ".headrace" / "responses.sqlite") as store:
        demo.stored_at_kill = {k for k in seen if store.record(k) is not None}
    demo.asked_before_kill = len(seen)
