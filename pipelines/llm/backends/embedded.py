"""llama.cpp in a child process, with weights that ship in packages.

Law: a server is started at the first question that the store cannot answer, once per model, and
never outlives this process; a server that died is started again, and one that keeps dying is an
error with the end of its log.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pipelines.errors import EnvironmentFault
from pipelines.llm.models import model as registered
from pipelines.llm.models import weights

MAX_STARTS = 3  # of one model's server in one run
START_S = 300.0  # to load the weights
LOG_TAIL_CHARS = 400
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
    """The embedded models, each behind a server of its own."""

    llama = True
    ours = True
    unsaid = UNSAID

    def __init__(self) -> None:
        self._servers: dict[str, asyncio.Task[Child]] = {}
        self._starts: dict[str, int] = {}

    def identity(self, model: str) -> str:
        return registered(model).identity

    async def url(self, model: str, prompt: str = "") -> str:
        """Address of the model's live server, started if need be. Raises EnvironmentFault."""
        server = self._servers.get(model)
        if server is None or (server.done() and not _lives(server)):
            server = self._servers[model] = asyncio.create_task(self._start(model, server))
        return (await asyncio.shield(server)).url  # a cancelled asker does not stop the start

    async def _start(self, model: str, before: asyncio.Task[Child] | None) -> Child:
        self._starts[model] = self._starts.get(model, 0) + 1
        if before is not None and before.exception() is None:
            dead = before.result()
            code, tail = dead.process.returncode, _tail(dead.log)
            dead.stop()
            if self._starts[model] > MAX_STARTS:
                what = f"the server of {model} died {MAX_STARTS} times (exit {code}): {tail}"
                raise EnvironmentFault(what, cure="free memory or choose a smaller llm.model")
        return await asyncio.to_thread(start, model)

    def left(self, url: str, alive: bool) -> None:
        return None

    async def close(self) -> None:
        for ended in await asyncio.gather(*self._servers.values(), return_exceptions=True):
            if isinstance(ended, Child):
                await asyncio.to_thread(ended.stop)
        self._servers.clear()


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
