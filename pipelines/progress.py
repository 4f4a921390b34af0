"""Progress of a stage's model calls: drawn on standard error while they run, kept as figures after.

Law: it only looks. In a terminal it is one live line, elsewhere a plain line now and then, and at
the end the sum; no escape code leaves a terminal, and nothing that fails here fails the work. The
figures of a run lie outside the outs (`.headrace/pace/`), since they are no function of the inputs:
the last ones of each stage, and those that no tracker was told yet.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from pipelines.data.tables import file_md5, write_json
from pipelines.errors import EnvironmentFault
from pipelines.llm.answer import Answer, Failure
from pipelines.pace import Figures, Pace, Sight

if TYPE_CHECKING:
    from pipelines.llm.client import Client

LIVE_S, PLAIN_S = 0.5, 10.0  # between two words of progress, in a terminal and elsewhere
WIDTH = 80  # of a terminal that does not know its own


class Progress:
    """Draws one piece of work while it is open. `look` tells how it stands, from any thread."""

    def __init__(self, name: str, what: str, look: Callable[[], Sight], stream: TextIO | None = None) -> None:
        self._look, self._stream = look, stream or sys.stderr
        self._live = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._pace = Pace(name, what, time.monotonic())
        self._ended = threading.Event()
        self._drawer = threading.Thread(target=self._draw, name="headrace-progress", daemon=True)

    def __enter__(self) -> Progress:
        self._drawer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._drawer.join()
        self._see()
        if self._pace.sight.done or kind is None:
            self._say(self._pace.sum(ended=kind is None), "\n")
        elif self._live:
            self._say("", "")

    def note(self, text: str) -> None:
        """A line of its own, above the live one."""
        self._say(f"  {self._pace.name}: {text}", "\n")

    @property
    def figures(self) -> Figures:
        """Those of what was seen so far."""
        return self._pace.figures

    def _draw(self) -> None:
        while not self._ended.wait(LIVE_S if self._live else PLAIN_S):
            self._see()
            self._say(self._pace.line(self._width()), "" if self._live else "\n")

    def _see(self) -> None:
        self._pace.see(self._look(), time.monotonic())

    def _say(self, text: str, end: str) -> None:
        try:
            self._stream.write(f"\r\x1b[K{text}{end}" if self._live else f"{text}{end}")
            self._stream.flush()
        except (OSError, ValueError):  # nobody listens any more
            self._ended.set()

    def _width(self) -> int | None:
        """Columns free for a line: one less than the terminal has, else it may wrap."""
        if not self._live:
            return None
        try:
            return (os.get_terminal_size(self._stream.fileno()).columns or WIDTH) - 1
        except (OSError, ValueError):
            return WIDTH - 1


@dataclass
class Work:
    """What a client is asked for: `what` ("answers"), how many (None: unknown), and how many ended.

    Of those that ended `failed` gave no usable answer, and `over_budget` were left unasked. A text cut at
    max_tokens is an answer: whether it serves, its stage tells.
    """

    what: str
    total: int | None = None
    done: int = 0
    failed: int = 0
    over_budget: int = 0

    def count(self, answer: Answer) -> None:
        """One question more has ended."""
        self.done += 1
        self.over_budget += answer.failure is Failure.OVER_BUDGET
        self.failed += answer.failure not in (None, Failure.LENGTH, Failure.OVER_BUDGET)


@contextmanager
def watched(client: Client, name: str, work: Work, figures: list[Figures]) -> Iterator[Work]:
    """Draws work of `client` for the stage `name`; its caller counts `done`. Adds its figures at the end."""
    before = client.pulse()

    def look() -> Sight:
        now = client.pulse()
        asked = now.asked - before.asked + now.embedded - before.embedded
        return Sight(
            done=work.done,
            total=work.total,
            asked=asked,
            stored=now.stored - before.stored if work.what == "answers" else max(0, work.done - asked),
            failed=work.failed,
            in_flight=now.in_flight,
            limit=now.limit,
            cost_usd=now.cost_usd - before.cost_usd,
            over_budget=work.over_budget,
            unpriced=now.unpriced - before.unpriced,
        )

    shown = Progress(name, work.what, look)
    said, client.say = client.say, shown.note
    try:
        with shown:
            yield work
    finally:
        client.say = said
        figures.append(shown.figures)


@dataclass(frozen=True)
class Told:
    """What one run of a stage tells of its model calls.

    started, until: milliseconds since 1970; process: "host:pid"; ended: whether the stage published
    its outs; outcomes: MD5 of the outcomes.json that it published, "" when it published none.
    """

    stage: str
    started: int
    figures: Mapping[str, float]
    ended: bool
    outcomes: str = ""
    until: int = field(default_factory=lambda: int(time.time() * 1000))
    run: str = field(default_factory=lambda: os.environ.get("HEADRACE_RUN_ID", ""))
    process: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}")


def keep(root: Path, told: Told) -> None:
    """Keeps what a stage tells. A disk that is full costs the figures, not the stage."""
    try:
        write_json(asdict(told), _folder(root) / f"{told.stage}.json")
        write_json(asdict(told), _untold(root) / f"{told.stage}.{told.started}.{os.getpid()}.json")
    except EnvironmentFault as fault:
        print(f"  {told.stage}: its figures are not kept: {fault}", file=sys.stderr, flush=True)


def last(root: Path, stage: str, folder: str) -> Told | None:
    """What the run that published the outs in data/`folder` told; None when that is not known."""
    told = _read(_folder(root) / f"{stage}.json")
    if told is None or not told.ended:
        return None
    return told if told.outcomes == outcomes_version(root, folder) else None


def untold(root: Path) -> Iterator[tuple[Path, Told]]:
    """What no tracker was told yet, oldest first; who tells it takes the file away."""
    files = sorted(_untold(root).glob("*.json"), key=lambda p: p.name.rsplit(".", 3)[1:])
    for path in files:
        if (told := _read(path)) is not None:
            yield path, told


def outcomes_version(root: Path, folder: str) -> str:
    """MD5 of a stage's outcomes.json, "" when there is none."""
    path = root / "data" / folder / "outcomes.json"
    return file_md5(path) if path.is_file() else ""


def _folder(root: Path) -> Path:
    return root / ".headrace" / "pace"


def _untold(root: Path) -> Path:
    return _folder(root) / "untold"


def _read(path: Path) -> Told | None:
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Told(**value)
    except (OSError, ValueError, TypeError):
        return None
