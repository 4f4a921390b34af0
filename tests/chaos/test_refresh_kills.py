"""`headrace refresh`, killed at seeded instants: nothing that was stored is asked again, no byte differs.

The instants are seeded: after so many requests, at an answer of a callable, and before and after the
rename of the file of observations: between asking and writing, and after both; and, where two are called
at once, at drawn shares of the time that a whole call takes, wherever that may be. Requests are counted by
the endpoint, and calls by the callable, outside the process that dies.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from pipelines.llm.store import Store
from tests.llm.scripted_server import ScriptedServer

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests" / "evergreen"
QUESTIONS, IN_FLIGHT, DAY = 60, 8, "2025-03-01"
ANSWERS = """
import hashlib
def answer(body):
    said = hashlib.sha256(body["messages"][1]["content"].encode()).hexdigest()[:6]
    return '{"answer": null}' if said[0] in "01" else '{"answer": "%s"}' % said
"""
WORLD = """
import hashlib, os, signal, time
def world(question, language, day):
    with open("calls.txt", "a") as f:
        f.write(question + "\\n")
    time.sleep(0.002)
    if os.environ.get("KILL_AT_QUESTION") == question:
        os.kill(os.getpid(), int(os.environ.get("KILL_WITH", signal.SIGKILL)))
    return hashlib.sha256(question.encode()).hexdigest()[:6]
"""
KILLER = """
import os, signal
_real = os.replace
def _replace(a, b, **kw):
    noted = "observations" in str(b)
    if noted and os.environ.get("KILL_AT_RENAME") == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    _real(a, b, **kw)
    if noted and os.environ.get("KILL_AT_RENAME") == "after":
        os.kill(os.getpid(), signal.SIGKILL)
if os.environ.get("KILL_AT_RENAME"):
    os.replace = _replace
"""
LAY = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from evergreen_rows import filtered
from refresh_workspace import lay
lay(Path.cwd(), [filtered(f"Who leads club {n}?") for n in range(int(sys.argv[2]))])
"""


class Calls:
    """A workspace in which `headrace refresh` is called, and killed, as a process of its own."""

    def __init__(self, folder: Path, told: dict[str, Any], url: str = "") -> None:
        folder.mkdir()
        self.folder = folder
        subprocess.run([sys.executable, "-c", LAY, str(TESTS), str(QUESTIONS)], cwd=folder, check=True)
        shutil.copy(ROOT / "dvc.yaml", folder)
        params = yaml.safe_load((ROOT / "params.yaml").read_text())
        params["llm"] = {**(params.get("llm") or {}), "base_url": url, "concurrency": IN_FLIGHT}
        params["evergreen"]["refresh"] |= {"audit_share": 0.0, **told}
        (folder / "params.yaml").write_text(yaml.safe_dump(params))
        (folder / "world.py").write_text(WORLD)
        (folder / "patches").mkdir()
        (folder / "patches" / "sitecustomize.py").write_text(KILLER)

    def call(self, when: Callable[[], bool] | None = None, **env: str) -> tuple[bool, str]:
        """Runs the verb; (whether it was killed, what it said). Killed as soon as `when` holds, if told."""
        with (self.folder / "said.txt").open("w+") as said:
            run = self.start(said, **env)
            while when is not None and run.poll() is None:
                if when():
                    run.kill()
                time.sleep(0.005)
            run.wait()
            said.seek(0)
            told = said.read()
        assert run.returncode in (0, -signal.SIGKILL, *([130] if "KILL_WITH" in env else [])), told
        return run.returncode != 0, told

    def start(self, said: Any = subprocess.DEVNULL, **env: str) -> subprocess.Popen[bytes]:
        path = os.pathsep.join([str(self.folder / "patches"), str(ROOT)])
        return subprocess.Popen(
            [sys.executable, "-m", "pipelines", "refresh", "--as-of", DAY], cwd=self.folder,
            env={**os.environ, "PYTHONPATH": path, **env}, stdout=said, stderr=said,
        )  # fmt: skip

    def called(self) -> Counter[str]:
        """How often the callable was called for each question."""
        return Counter((self.folder / "calls.txt").read_text().splitlines())

    def noted(self) -> dict[str, bytes]:
        folder = self.folder / "data" / "observations" / "evergreen"
        return {p.name: p.read_bytes() for p in folder.iterdir() if not p.name.startswith(".")}

    def in_order(self) -> list[str]:
        """The questions, in the order in which they are asked."""
        rows = pl.read_parquet(self.folder / "data" / "evergreen" / "filter" / "rows.parquet")
        return rows.sort("row_id")["question"].to_list()

    def left(self) -> list[str]:
        """What a killed call may leave behind, and a whole one takes away."""
        folder = self.folder / "data" / "observations" / "evergreen"
        journals = self.folder / ".headrace" / "refresh"
        return [p.name for p in (*folder.glob(".*"), *journals.glob("*")) if p.is_file()]


def stored(calls: Calls, server: ScriptedServer) -> set[str]:
    path = calls.folder / ".headrace" / "responses.sqlite"
    if not path.exists():
        return set()
    with Store(path) as store:
        return set(store.answers(server.asked()))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_model_is_asked_for_nothing_twice_that_was_stored(tmp_path: Path) -> None:
    (tmp_path / "answers.py").write_text(ANSWERS)
    told = {"source": "model", "model": {"backend": "openai", "model": "scripted"}}
    with ScriptedServer(answers=tmp_path / "answers.py", latency_ms=25) as server:
        calm = Calls(tmp_path / "calm", told, server.url)
        assert not calm.call()[0]
    [(name, noted)] = calm.noted().items()
    assert noted.count(b"\n") == QUESTIONS
    drawn = random.Random(8)
    with ScriptedServer(answers=tmp_path / "answers.py", latency_ms=25) as server:
        stormy = Calls(tmp_path / "stormy", told, server.url)
        for _ in range(4):  # at most 4 x (6 + 8 in flight) of the 60 questions: none of the lives is the last
            assert killed(stormy, server, after=drawn.randint(1, 6))
        assert killed(stormy, server, KILL_AT_RENAME="before")
        assert stormy.noted() == {}
        assert stored(stormy, server) == set(server.asked())
        assert killed(stormy, server, KILL_AT_RENAME="after")
        assert stormy.noted() == {name: noted}
        died, said = stormy.call()
        assert (died, stormy.noted(), stormy.left()) == (False, {name: noted}, [])
        assert "no observations to add" in said
        assert len(server.asked()) == QUESTIONS
        assert sum(server.asked().values()) - QUESTIONS <= 4 * IN_FLIGHT


def killed(calls: Calls, server: ScriptedServer, after: int = 0, **env: str) -> bool:
    """One call, killed after so many requests or by itself: it asked for nothing stored before it began."""
    before, asked = stored(calls, server), Counter(server.asked())
    seen = sum(asked.values())
    died, _ = calls.call((lambda: sum(server.asked().values()) >= seen + after) if after else None, **env)
    now = Counter(server.asked()) - asked
    assert not before & set(now), "a stored answer was asked for again"
    assert set(now.values()) <= {1}
    return died


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_callable_is_called_for_the_rest_alone(tmp_path: Path) -> None:
    told = {"source": "callable", "callable": "world:world"}
    calm = Calls(tmp_path / "calm", told)
    assert not calm.call()[0]
    stormy = Calls(tmp_path / "stormy", told)
    asked = stormy.in_order()
    victims = [asked[n] for n in sorted(random.Random(9).sample(range(QUESTIONS), 3))]
    assert all(stormy.call(KILL_AT_QUESTION=q)[0] for q in victims)
    assert stormy.call(KILL_AT_RENAME="before")[0]
    assert stormy.noted() == {}
    assert stormy.call(KILL_AT_RENAME="after")[0]
    assert stormy.noted() == calm.noted()
    assert not stormy.call()[0]
    assert (stormy.noted(), stormy.left()) == (calm.noted(), [])
    calls = stormy.called()
    assert len(calls) == QUESTIONS
    assert {q: n for q, n in calls.items() if n > 1} == dict.fromkeys(victims, 2)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_at_once_and_kills_at_any_instant_call_for_each_question_once(tmp_path: Path) -> None:
    told = {"source": "callable", "callable": "world:world"}
    calm, both = Calls(tmp_path / "calm", told), Calls(tmp_path / "both", told)
    began = time.monotonic()
    assert not calm.call()[0]
    lasted, drawn, killed = time.monotonic() - began, random.Random(10), 0
    for _ in range(2):
        for run in [both.start(), both.start()]:
            time.sleep(lasted * drawn.uniform(0.1, 0.8))
            run.kill()
            killed += run.wait() != 0
    assert [run.wait() for run in [both.start(), both.start()]] == [0, 0]
    assert (both.noted(), both.left()) == (calm.noted(), [])
    assert len(both.called()) == QUESTIONS
    assert sum(both.called().values()) - QUESTIONS <= killed, "a kill costs the one call that it cuts off"


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_act_with_a_word_and_keeps_what_was_answered(
    tmp_path: Path, sign: signal.Signals
) -> None:
    calls = Calls(tmp_path / "calls", {"source": "callable", "callable": "world:world"})
    victim = calls.in_order()[QUESTIONS // 2]
    died, said = calls.call(KILL_AT_QUESTION=victim, KILL_WITH=str(int(sign)))
    assert died
    assert said.splitlines()[-1] == "headrace: interrupted; what was answered is stored"
    assert "Traceback" not in said
    assert calls.noted() == {}
    assert not calls.call()[0]
    assert len(calls.called()) == QUESTIONS
    assert {q: n for q, n in calls.called().items() if n > 1} == {victim: 2}
