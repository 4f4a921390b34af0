"""A stage's calls show on standard error while they run, and leave their figures outside the outs."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines import progress
from pipelines.llm.answer import Answer, Failure
from pipelines.llm.request import Request
from pipelines.pace import Figures, Sight
from pipelines.progress import Progress, Told, Work, keep, last, outcomes_version, untold, watched

HERE = Path(__file__)
SHOWN = """
import sys, time
sys.path.insert(0, {root!r})
from pipelines.pace import Sight
from pipelines.progress import Progress
moment = iter(range(1, 1000))
with Progress("toy.make@ไทย", "answers", lambda: Sight(next(moment), 40, in_flight=3, stored=1, asked=1)):
    time.sleep({seconds})
"""


class Written(io.StringIO):
    """A stream that says when it has been written to so often."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left, self.enough = times, threading.Event()

    def write(self, text: str) -> int:
        self.left -= 1
        if self.left == 0:
            self.enough.set()
        return super().write(text)


def shown(seconds: float, *, columns: int | None = None) -> str:
    """What a process that works so long writes to standard error: a terminal with `columns`, or a pipe."""
    command = [sys.executable, "-c", SHOWN.format(root=str(HERE.parents[2]), seconds=seconds)]
    if columns is None:
        return subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True).stderr
    import termios

    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    env = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(command, stderr=theirs, env=env) as process:
        os.close(theirs)
        text = b""
        while True:
            try:
                text += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
        assert process.wait() == 0
    os.close(ours)
    return text.decode()


def test_a_terminal_sees_one_live_line_within_its_width_and_the_sum_at_the_end() -> None:
    text = shown(1.7, columns=40)
    *live, tail = text.split("\r\x1b[K")
    assert live[0] == "" and 2 <= len(live) - 1 <= 4  # twice a second
    assert live[1] == "  toy.make@ไทย: 1/40 (2 %) answers, 2.0/s"[:40] or live[1].startswith(
        "  toy.make@ไทย: 1/40"
    )
    assert all("\n" not in line and len(line) < 40 for line in live)
    assert re.fullmatch(r"  toy.make@ไทย: \d/40 \(\d+ %\) answers in 1.\d s, .*1 asked, 1 stored\r\n", tail)


def test_elsewhere_there_are_plain_lines_without_escapes() -> None:
    text = shown(0.2)
    assert "\x1b" not in text and "\r" not in text
    assert re.fullmatch(
        r"  toy.make@ไทย: 1/40 \(2 %\) answers in 0.\d s, [\d.]+/s, 1 asked, 1 stored\n", text
    )


def test_work_that_stands_still_is_told_of_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_S", 0.01)
    stream = Written(times=3)
    with Progress("toy.make", "answers", lambda: Sight(5, 10, limit=1, in_flight=1), stream):
        assert stream.enough.wait(30)
    lines = stream.getvalue().splitlines()
    assert all(line.startswith("  toy.make: 5/10 (50 %) answers") for line in lines)
    assert "1 in flight" in lines[1] and "5 asked" not in lines[-1] and "0 asked" in lines[-1]


def test_work_that_fails_says_where_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    with pytest.raises(ZeroDivisionError), Progress("toy.make", "answers", lambda: Sight(5, 10, 5), stream):
        raise ZeroDivisionError
    assert stream.getvalue().startswith("  toy.make: stopped at 5/10 (50 %) answers in 0.0 s")


def test_a_stream_that_is_closed_ends_the_drawing_and_not_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_S", 0.01)
    stream = io.StringIO()
    with Progress("toy.make", "answers", lambda: Sight(5, 10), stream) as shown_now:
        stream.close()
        shown_now._drawer.join(30)
        assert not shown_now._drawer.is_alive()
    assert shown_now.figures.answers == 5


class Client:
    """A client of which only the pulse is felt."""

    def __init__(self) -> None:
        from pipelines.llm.tally import Pulse

        self.say = print
        self.now = Pulse(10, 5, 0, 0, 12, 0, 1.0)

    def pulse(self) -> object:
        return self.now


def test_the_figures_are_those_of_the_work_watched_alone(capsys: pytest.CaptureFixture[str]) -> None:
    client, found = Client(), list[Figures]()
    ends = (None, Failure.LENGTH, Failure.TIMEOUT, *[None] * 3, Failure.OVER_BUDGET, Failure.REFUSED, None)
    with watched(client, "toy.make", Work("answers", 8), found) as work:  # type: ignore[arg-type]
        for failure in ends:
            work.count(Answer(Request("chat", "m"), "", failure=failure))
        client.now = replace(client.now, asked=16, stored=7, attempts=20, cost_usd=1.5, unpriced=4)
    with watched(client, "toy.make", Work("embeddings"), found) as work:  # type: ignore[arg-type]
        work.done = 4
        client.now = replace(client.now, embedded=3)
    assert [replace(f, seconds=0.0) for f in found] == [
        Figures(6, 6, 2, 2, 0.5, over_budget=1, unpriced=4), Figures(4, 3, 1)
    ]  # fmt: skip
    said = capsys.readouterr().err.splitlines()
    assert "6 asked, 2 stored, 2 failed, 1 over budget, at least 0.50 USD" in said[0]
    assert "3 asked, 1 stored" in said[1]


def told(root: Path, stage: str, started: int, **more: object) -> Told:
    return Told(stage, started, {"rows_per_s": 2.0}, **{"ended": True, **more})  # type: ignore[arg-type]


def test_the_figures_of_the_run_that_made_the_outs_are_found_again(tmp_path: Path) -> None:
    outcomes = tmp_path / "data" / "toy" / "make" / "fr" / "outcomes.json"
    outcomes.parent.mkdir(parents=True)
    outcomes.write_text("{}")
    version = outcomes_version(tmp_path, "toy/make/fr")
    made = told(tmp_path, "toy.make@fr", 1, outcomes=version)
    assert last(tmp_path, "toy.make@fr", "toy/make/fr") is None
    keep(tmp_path, made)
    assert last(tmp_path, "toy.make@fr", "toy/make/fr") == made
    outcomes.write_text('{"other": 1}')  # taken from elsewhere since
    assert last(tmp_path, "toy.make@fr", "toy/make/fr") is None
    keep(tmp_path, replace(made, ended=False, outcomes=""))  # a later run failed
    outcomes.write_text("{}")
    assert last(tmp_path, "toy.make@fr", "toy/make/fr") is None


def test_what_no_tracker_was_told_waits_in_order_and_half_a_file_is_passed_over(tmp_path: Path) -> None:
    for stage, started in (("b.later", 1700000000002), ("a.first", 1700000000001)):
        keep(tmp_path, told(tmp_path, stage, started))
    (tmp_path / ".headrace/pace/untold/c.torn.1.1.json").write_text('{"stage": "c')
    assert [t.stage for _, t in untold(tmp_path)] == ["a.first", "b.later"]
    for path, _ in list(untold(tmp_path)):
        path.unlink()
    assert list(untold(tmp_path)) == []


def test_figures_that_cannot_be_kept_cost_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".headrace").write_text("no folder")
    keep(tmp_path, told(tmp_path, "toy.make", 1))
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.startswith("  toy.make: its figures are not kept: ")
    assert not list(tmp_path.glob("*.json"))


def test_the_figures_are_json_that_names_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_RUN_ID", "run-7")
    keep(tmp_path, told(tmp_path, "toy.make", 1, ended=False))
    kept = json.loads((tmp_path / ".headrace" / "pace" / "toy.make.json").read_text())
    assert (kept["run"], kept["ended"], kept["figures"]) == ("run-7", False, {"rows_per_s": 2.0})
    assert kept["process"].endswith(f":{os.getpid()}")
