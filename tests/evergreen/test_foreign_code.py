"""Somebody's own code as a source: it may hang, print, raise or return anything; it is one question."""

from __future__ import annotations

import json
import signal
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from evergreen_rows import filtered
from refresh_workspace import files, lay, noted

from pipelines.cli import main
from pipelines.errors import ConfigError
from pipelines.evergreen.refreshing.ask import PartlyAsked, refresh
from pipelines.evergreen.refreshing.foreign import Fault, called
from pipelines.evergreen.refreshing.observations import LONGEST
from pipelines.evergreen.refreshing.source import Asked
from pipelines.evergreen.refreshing.source_function import FunctionSource, load_function

DAY = date(2025, 3, 1)
WORLD = """
import asyncio, sys, time

print("loaded")

class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no words")

class Stop(BaseException):
    pass

def world(question, language, day):
    print("asked", question)
    if question == "hangs":
        time.sleep(3600)
    if question == "hangs on":
        while True:
            try:
                time.sleep(3600)
            except Exception:
                continue
    if question == "cancelled":
        raise asyncio.CancelledError("by the loop")
    if question == "ends":
        raise Stop
    if question == "closes":
        raise GeneratorExit
    if question == "mute":
        raise Mute
    if question == "long":
        return "x " * 50_000
    return "Ann"
"""


@pytest.fixture
def world(tmp_path: Path) -> Any:
    """Lays a workspace with these questions and asks; the report, and what was noted."""

    def act(*questions: str, **told: Any) -> tuple[Any, dict[str, str]]:
        (tmp_path / "world.py").write_text(WORLD)
        lay(tmp_path, [filtered(q) for q in questions], source="callable", callable="world:world", **told)
        try:
            report = refresh(tmp_path, DAY)
        except PartlyAsked as partly:
            report = partly.report
        return report, {line["question"]: line["answer"] for line in noted(tmp_path)}

    return act


@pytest.mark.parametrize(
    ("question", "says"),
    [
        ("hangs", "source_failed took longer than 0.2 s (en: hangs)"),
        ("hangs on", "source_failed took longer than 0.2 s (en: hangs on)"),
        ("cancelled", "source_failed CancelledError: by the loop (en: cancelled)"),
        ("ends", "source_failed Stop: (en: ends)"),
        ("closes", "source_failed GeneratorExit: (en: closes)"),
        ("mute", "source_failed Mute: cannot be told: RuntimeError (en: mute)"),
        ("long", f"too_long 100000 characters, at most {LONGEST} (en: long)"),
    ],
)
def test_it_fails_its_question_alone(world: Any, question: str, says: str) -> None:
    report, answers = world("Who leads?", question, "Who rests?", limit_s=0.2)
    assert report.failed == (says,)
    assert answers == {"Who leads?": "Ann", "Who rests?": "Ann"}


def test_a_limit_of_0_is_none(world: Any) -> None:
    assert world("Who leads?", limit_s=0)[1] == {"Who leads?": "Ann"}


def test_what_it_prints_is_no_part_of_what_is_told(
    world: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world("Who leads?")
    (tmp_path / "dvc.yaml").write_text("stages: {evergreen.refresh: {cmd: x}}\n")
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert main(["refresh", "--as-of", "2025-06-01", "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["answered"] == 1
    assert "asked Who leads?" in told.err and "loaded" in told.err


def test_a_module_that_hangs_or_ends_while_it_is_loaded_is_told(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text("import time\ntime.sleep(3600)\n")
    (tmp_path / "ends.py").write_text("raise GeneratorExit\n")
    with pytest.raises(ConfigError, match="'hangs:x' cannot be loaded: took longer than 0.2 s"):
        load_function("hangs:x", tmp_path, "it", 3, 0.2)
    with pytest.raises(ConfigError, match="'ends:x' cannot be loaded: GeneratorExit"):
        load_function("ends:x", tmp_path, "it", 3)


def test_who_timed_the_process_before_still_does_after_a_call() -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    left = signal.setitimer(signal.ITIMER_REAL, 0.3)  # the test's own limit, if there is one, is put back
    try:
        with pytest.raises(Fault, match="longer than 0.1 s"):
            called(signal.pause, limit_s=0.1)
        assert rung == []
        signal.pause()
        assert rung == [1]
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *left)


def test_ctrl_c_in_a_call_ends_the_act(tmp_path: Path) -> None:
    def stopped(*_: object) -> str:
        raise KeyboardInterrupt

    lay(tmp_path, [filtered("Who leads?")])
    with pytest.raises(KeyboardInterrupt):
        refresh(tmp_path, DAY, stopped)
    assert files(tmp_path) == []


def test_an_answer_may_be_as_long_as_the_longest() -> None:
    source = FunctionSource(lambda *_: "x" * LONGEST, "given")
    [end] = source.ask([Asked("r", "q", "en", "Who?", DAY)])
    assert end.answer is not None and not end.failed, "as long as may be"
