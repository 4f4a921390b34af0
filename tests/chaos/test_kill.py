"""Two runs on one store, killed at fifty instants: nothing stored is asked for again, no byte differs.

The instants are seeded shares of the time that an undisturbed run takes here, and the renames by
which a stage publishes its outs. A run that ends in spite of them is held against the undisturbed
one and another is begun, so that a fast machine sees as many kills as a slow one. The requests are
counted by the endpoint, in its own process, which knows each life of a run by the key it shows.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from pipelines import tracking
from pipelines.cli import main
from pipelines.llm.store import Store
from tests.llm.scripted_server import ScriptedServer

TARGETS = ["trit.feedback"]
ANSWERS = Path(__file__).with_name("answers.py")
KILLS, TIMED, RENAMES = 50, 38, ("1", "3", "5", "8", "12", "14") * 2
IN_FLIGHT = 8  # llm.concurrency of the demo
LIVES = count(1)
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
    """A workspace whose model is the scripted endpoint, and whose store may be another's too."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        server: ScriptedServer,
        store: Path,
        tracked: Path,
    ) -> None:
        monkeypatch.chdir(folder.parent)
        assert main(["init", folder.name, "--set", "trit.languages=[fr]"]) == 0
        self.folder, self.server, self.store = folder, server, store
        self.patches = folder.parent / f"{folder.name}-patches"
        self.patches.mkdir()
        (self.patches / "sitecustomize.py").write_text(RENAME_KILLER)
        self.log = folder.parent / f"{folder.name}.log"
        self.env = {
            **os.environ,
            "HEADRACE_LLM_BACKEND": "openai",
            "HEADRACE_LLM_BASE_URL": server.url,
            "HEADRACE_STORE": str(store),
            "MLFLOW_TRACKING_URI": f"sqlite:///{tracked}?timeout=60",
            "PYTHONPATH": str(self.patches),
        }

    def start(self, life: str, **more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "pipelines", "run", *TARGETS]
        env = {**self.env, "HEADRACE_LLM_API_KEY": life, **more}
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                command, cwd=self.folder, env=env, start_new_session=True, stderr=log, stdout=log
            )

    def finish(self) -> None:
        """Runs to the end; what it said is shown when it fails."""
        life, before = new_life(), self.stored()
        status = self.start(life).wait()
        assert status == 0, self.log.read_text()[-3000:]
        check(self, life, before)

    def asked(self, life: str) -> Counter[str]:
        """Keys that a life of a run asked for."""
        known = f"Bearer {life}"
        return Counter(r["key"] for r in self.server.requests() if known in r["headers"].values())

    def stored(self) -> set[str]:
        if not self.store.exists():
            return set()
        with Store(self.store) as store:
            return set(store.answers(self.server.asked()))

    def outs(self) -> dict[str, bytes]:
        """Every out of the run stages, by name."""
        found = [p for p in (self.folder / "data" / "trit").rglob("*") if p.is_file()]
        return {p.relative_to(self.folder).as_posix(): p.read_bytes() for p in found}


def new_life() -> str:
    return f"life-{next(LIVES):08}"


def check(workspace: Workspace, life: str, before: set[str]) -> None:
    """A life asks for nothing that was stored when it began, and for nothing twice."""
    asked = workspace.asked(life)
    again = before & set(asked)
    assert not again, f"{len(again)} stored answers were asked for again"
    assert set(asked.values()) <= {1}, "the endpoint never fails, and was asked twice"


def killed(run: subprocess.Popen[bytes], after_s: float) -> bool:
    """Kills the run's group after so long; tells whether it was killed (or killed itself)."""
    try:
        run.wait(after_s)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    return run.returncode != 0


def storm(workspace: Workspace, instants: list[float | str], over: threading.Event) -> int:
    """Takes instants off the list until one of the runs ends in spite of them; the number of kills."""
    kills = 0
    while instants and not over.is_set():
        instant, life, before = instants.pop(), new_life(), workspace.stored()
        if isinstance(instant, float):
            died = killed(workspace.start(life), instant)
        else:
            died = killed(workspace.start(life, KILL_AT_RENAME=instant), 300)
        check(workspace, life, before)
        lost = set(workspace.asked(life)) - workspace.stored()
        assert len(lost) <= IN_FLIGHT, "more will be repeated than was in flight"
        if not died:
            over.set()
            break
        kills += 1
    return kills


def both(work: Callable[[Workspace], int | None], workspaces: Sequence[Workspace]) -> int:
    """Does the work in all of the workspaces at once; the sum of what it counts."""
    with ThreadPoolExecutor(len(workspaces)) as pool:
        return sum(n or 0 for n in pool.map(work, workspaces))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_fifty_kills_of_two_runs_ask_nothing_stored_again_and_change_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracking.opened(tmp_path)  # makes MLflow's database once: that takes seconds
    tracked = tmp_path / ".headrace" / "mlflow.db"
    with ScriptedServer(answers=ANSWERS, latency_ms=40) as server:
        calm = Workspace(tmp_path / "calm", monkeypatch, server, tmp_path / "calm.sqlite", tracked)
        started = time.monotonic()
        calm.finish()
        whole_s = time.monotonic() - started
        outs, asked = calm.outs(), set(server.asked())
    drawn = random.Random(50)
    instants: list[float | str] = [*(drawn.uniform(0.1, 0.5) * whole_s for _ in range(TIMED)), *RENAMES]
    drawn.shuffle(instants)
    kills = rounds = 0
    while kills < KILLS and rounds < KILLS:
        if not instants:  # some came when the run had ended
            instants = [drawn.uniform(0.1, 0.4) * whole_s for _ in range(KILLS - kills)]
        with ScriptedServer(answers=ANSWERS, latency_ms=40) as server:
            store = tmp_path / f"{rounds}.sqlite"
            two = [
                Workspace(tmp_path / f"{name}-{rounds}", monkeypatch, server, store, tracked)
                for name in ("first", "second")
            ]
            these = both(partial(storm, instants=instants, over=threading.Event()), two)
            kills += these
            both(Workspace.finish, two)
            for workspace in two:
                assert workspace.outs() == outs
            assert set(server.asked()) == asked
            repeated = sum(n - 1 for n in server.asked().values())
            assert repeated <= these * IN_FLIGHT, "the two runs paid for one question twice"
        rounds += 1
    assert kills >= KILLS
