"""Killed at twenty instants and run again: nothing stored is asked for again, and the bytes are the same.

The instants are seeded times over the whole run, and the renames by which a
stage publishes its outs. The requests are counted by the endpoint, in its own
process.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.cli import main
from pipelines.llm.store import Store
from tests.llm.scripted_server import ScriptedServer

TARGETS = ["trit.feedback", "cbu.score"]
ANSWERS = Path(__file__).with_name("answers.py")
TIMED, RENAMES = 14, (1, 3, 5, 8, 12, 14)
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


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_twenty_kills_ask_nothing_stored_again_and_change_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = random.Random(20)
    with (
        ScriptedServer(answers=ANSWERS, latency_ms=40) as calm_server,
        ScriptedServer(answers=ANSWERS, latency_ms=40) as server,
    ):
        calm = Workspace(tmp_path / "calm", monkeypatch, calm_server)
        calm.finish()
        stormy = Workspace(tmp_path / "stormy", monkeypatch, server)
        kills = 0
        for instant in [*(drawn.uniform(1.0, 12.0) for _ in range(TIMED)), *RENAMES]:
            seen, before = len(server.requests()), stormy.stored()
            timed = isinstance(instant, float)
            run = stormy.start() if timed else stormy.start(KILL_AT_RENAME=str(instant))
            try:
                run.wait(instant if timed else 300)
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()
            kills += run.returncode != 0
            again = before & {r["key"] for r in server.requests()[seen:]}
            assert not again, f"{len(again)} stored answers were asked for again after kill {kills}"
        assert kills >= 15, "the run ended before most of the kills"
        stormy.finish()
        assert stormy.outs() == calm.outs()
        repeated = sum(n - 1 for n in server.asked().values())
        assert repeated <= kills * 8, "more was repeated than was in flight"
        assert set(server.asked()) == set(calm_server.asked())
