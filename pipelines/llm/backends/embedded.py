"""llama.cpp in a child process, with weights that ship in packages.

Law: a server is started at the first question that it is to answer, and never outlives this process;
one that died is started again, and one that keeps dying is an error with the end of its log. There
is one for each core, at most four, and each has one thread: threads of one server would wait for each
other, spinning, whenever another process has a core.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pipelines.errors import EnvironmentFault
from pipelines.llm.models import model as registered
from pipelines.llm.models import weights
from pipelines.llm.replicas import Replicas
from pipelines.llm.server import SERVERS

MAX_STARTS = 3  # of one server in one run
START_S = 300.0  # to load the weights
LOG_TAIL_CHARS = 400
Place = tuple[str, int]  # a model, and the number of its server
UNSAID: Mapping[str, Any] = {  # else top_k 40, min_p .05
    "top_k": 0,
    "min_p": 0.0,
    "repeat_penalty": 1.0,
    "cache_prompt": True,
}


@dataclass
class Child:
    """A running server: its process, address and log."""

    process: subprocess.Popen[bytes]
    url: str
    log: IO[bytes]

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.log.close()


class Embedded:
    """The embedded models, each behind SERVERS servers: samples of one question go to the same one."""

    llama = True
    ours = True
    unsaid = UNSAID

    def __init__(self) -> None:
        self._crews: dict[str, Replicas] = {}
        self._servers: dict[Place, asyncio.Task[Child]] = {}
        self._starts: Counter[Place] = Counter()
        self._places: dict[str, Place] = {}  # by address

    def identity(self, model: str) -> str:
        return registered(model).identity

    async def url(self, model: str, prompt: str = "") -> str:
        """Address of a live server of the model, started if need be. Raises EnvironmentFault."""
        place = model, self._crew(model).take(prompt) or 0
        try:
            url = (await asyncio.shield(self._server(place))).url  # a cancelled asker does not stop the start
        except BaseException:
            self._crew(model).left(place[1])
            raise
        self._places[url] = place
        return url

    def left(self, url: str, alive: bool) -> None:
        model, number = self._places[url]
        self._crew(model).left(number)

    async def close(self) -> None:
        for ended in await asyncio.gather(*self._servers.values(), return_exceptions=True):
            if isinstance(ended, Child):
                await asyncio.to_thread(ended.stop)
        self._servers.clear()

    def _crew(self, model: str) -> Replicas:
        if model not in self._crews:
            self._crews[model] = crew = Replicas(SERVERS)
            for number in range(SERVERS):
                crew.up(number)  # one that died is started again at its next question
        return self._crews[model]

    def _server(self, place: Place) -> asyncio.Task[Child]:
        server = self._servers.get(place)
        if server is None or (server.done() and not _lives(server)):
            server = self._servers[place] = asyncio.create_task(self._start(place, server))
        return server

    async def _start(self, place: Place, before: asyncio.Task[Child] | None) -> Child:
        self._starts[place] += 1
        if before is not None and before.exception() is None:
            dead = before.result()
            code, tail = dead.process.returncode, _tail(dead.log)
            dead.stop()
            if self._starts[place] > MAX_STARTS:
                what = f"the server of {place[0]} died {MAX_STARTS} times (exit {code}): {tail}"
                raise EnvironmentFault(what, cure="free memory or choose a smaller llm.model")
        return await asyncio.to_thread(start, place[0])


def _lives(server: asyncio.Task[Child]) -> bool:
    return server.exception() is None and server.result().alive


def start(model: str) -> Child:
    """Start the server of `model` and wait until it has loaded. Raises EnvironmentFault."""
    path = weights(registered(model))
    roots = [str(Path(__file__).resolve().parents[3]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, roots))}
    log = tempfile.TemporaryFile()  # noqa: SIM115 - the child writes it as long as it lives
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines.llm.server", model, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=environment,
    )
    assert process.stdout is not None
    late = threading.Timer(START_S, process.kill)
    late.start()
    said = process.stdout.readline()
    late.cancel()
    child = Child(process, "", log)
    try:
        child.url = json.loads(said)["url"]
    except (ValueError, KeyError):
        process.kill()
        process.wait()
        what = f"the server of {model} did not start (exit {process.returncode}): {_tail(log)}"
        child.stop()
        raise EnvironmentFault(
            what, where=str(path), cure="run `make setup`, free memory, or see the log"
        ) from None
    return child


def _tail(log: IO[bytes]) -> str:
    log.seek(0, os.SEEK_END)
    log.seek(max(0, log.tell() - LOG_TAIL_CHARS))
    return " ".join(log.read().decode("utf-8", "replace").split()) or "(its log is empty)"
