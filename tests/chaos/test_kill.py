"""Killed at twenty instants and run again: nothing stored is asked for again, and the bytes are the same.

The instants are seeded shares of the time that an undisturbed run takes here,
and the renames by which a stage publishes its outs. A run that ends in spite of
them is held against the undisturbed one and another is begun, so that a fast
machine sees as many kills as a slow one. The requests are counted by the
endpoint, in its own process.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.cli import main
from pipelines.llm.store import Store
from tests.llm.scripted_server import ScriptedServer

TARGETS = ["trit.feedback", "cbu.score"]
ANSWERS = Path(__file__).with_name("answers.py")
KILLS, TIMED, RENAMES = 20, 14, ("1", "3", "5", "8", "12", "14")
RENAME_KILLER = """
import os, signal
_real, _count = os.replace, 0
def _replace(a, b, **kw):
    global _count
    if "making" in str(a) and "making" not in str(b):
        _count += 1
        if _count == int(os.environ["KILL_AT_RENAME"]) % 4 + 1:
            os.killpg(os.getpgid(0), signal.SIGKILL)
    return _real(a, b, **kw)
if os.environ.get("KILL_AT_RENAME") and os.environ.get("DVC_STAGE"):
    os.replace = _replace
"""


class Workspace:
    """A workspace whose model is the scripted endpoint."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, server: ScriptedServer) -> None:
        monkeypatch.chdir(folder.parent)
        assert main(["init", folder.name]) == 0
        self.folder, self.server = folder, server
        self.patches = folder.parent / f"{folder.name}-patches"
        self.patches.mkdir()
        self.log = folder.parent / f"{folder.name}.log"
        (self.patches / "sitecustomize.py").write_text(RENAME_KILLER)

    def start(self, **more: str) -> subprocess.Popen[bytes]:
        env = {
            **os.environ,
            "HEADRACE_LLM_BACKEND": "openai",
            "HEADRACE_LLM_BASE_URL": self.server.url,
            "PYTHONPATH": str(self.patches),
            **more,
        }
        command = [sys.executable, "-m", "pipelines", "run", *TARGETS]
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                command, cwd=self.folder, env=env, start_new_session=True, stderr=log, stdout=log
            )

    def finish(self) -> None:
        """Runs to the end; what it said is shown when it fails."""
        status = self.start().wait()
        assert status == 0, self.log.read_text()[-3000:]

    def stored(self) -> set[str]:
        path = self.folder / ".headrace" / "responses.sqlite"
        if not path.exists():
            return set()
        with Store(path) as store:
            return {k for k in self.server.asked() if store.record(k) is not None}

    def outs(self) -> dict[str, bytes]:
        """Every out of the run stages, by name."""
        found = [p for e in ("trit", "cbu") for p in (self.folder / "data" / e).rglob("*") if p.is_file()]
        return {p.relative_to(self.folder).as_posix(): p.read_bytes() for p in found}


def killed(run: subprocess.Popen[bytes], after_s: float) -> bool:
    """Kills the run's group after so long; tells whether it was killed (or killed itself)."""
    try:
        run.wait(after_s)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    return run.returncode != 0


def storm(workspace: Workspace, instants: list[float | str]) -> int:
    """Takes instants off the list until the run ends in spite of them; the number of kills."""
    kills = 0
    while instants:
        instant = instants.pop()
        seen, before = len(workspace.server.requests()), workspace.stored()
        if isinstance(instant, float):
            died = killed(workspace.start(), instant)
        else:
            died = killed(workspace.start(KILL_AT_RENAME=instant), 300)
        again = before & {r["key"] for r in workspace.server.requests()[seen:]}
        assert not again, f"{len(again)} stored answers were asked for again after kill {kills}"
        if not died:
            break
        kills += 1
    return kills


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twenty_kills_ask_nothing_stored_again_and_change_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedServer(answers=ANSWERS, latency_ms=40) as server:
        calm = Workspace(tmp_path / "calm", monkeypatch, server)
        started = time.monotonic()
        calm.finish()
        whole_s = time.monotonic() - started
        outs, asked = calm.outs(), set(server.asked())
    drawn = random.Random(20)
    instants: list[float | str] = [*(drawn.uniform(0.05, 0.5) * whole_s for _ in range(TIMED)), *RENAMES]
    drawn.shuffle(instants)
    kills = rounds = 0
    while kills < KILLS and rounds < KILLS:
        if not instants:  # some came when the run had ended
            instants = [drawn.uniform(0.05, 0.3) * whole_s for _ in range(KILLS - kills)]
        with ScriptedServer(answers=ANSWERS, latency_ms=40) as server:
            stormy = Workspace(tmp_path / f"stormy-{rounds}", monkeypatch, server)
            these = storm(stormy, instants)
            stormy.finish()
            assert stormy.outs() == outs
            assert set(server.asked()) == asked
            repeated = sum(n - 1 for n in server.asked().values())
            assert repeated <= these * 8, "more was repeated than was in flight"
        kills, rounds = kills + these, rounds + 1
    assert kills >= KILLS
