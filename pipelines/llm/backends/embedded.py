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
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pipelines.errors import EnvironmentFault
from pipelines.llm.models import model as registered
from pipelines.llm.models import weights

MAX_STARTS = 3  # of one model's server in one run
LOG_TAIL_CHARS = 400


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

    def __init__(self) -> None:
        self._children: dict[str, Child] = {}
        self._starts: dict[str, int] = {}
        self._starting: dict[str, asyncio.Lock] = {}

    def identity(self, model: str) -> str:
        return registered(model).identity

    async def url(self, model: str) -> str:
        """Address of the model's live server, started if need be. Raises EnvironmentFault."""
        async with self._starting.setdefault(model, asyncio.Lock()):
            child = self._children.get(model)
            if child is None or not child.alive:
                child = await self._start(model, child)
            return child.url

    async def _start(self, model: str, dead: Child | None) -> Child:
        self._starts[model] = self._starts.get(model, 0) + 1
        if dead is not None:
            tail = _tail(dead.log)
            dead.stop()
            if self._starts[model] > MAX_STARTS:
                what = f"the server of {model} died {MAX_STARTS} times (exit {dead.process.returncode}): {tail}"
                raise EnvironmentFault(what, cure="free memory or choose a smaller llm.model")
        self._children[model] = await asyncio.to_thread(start, model)
        return self._children[model]

    async def close(self) -> None:
        for child in self._children.values():
            child.stop()
        self._children.clear()


def start(model: str) -> Child:
    """Start the server of `model` and wait until it has loaded. Raises EnvironmentFault."""
    path = weights(registered(model))
    root = str(Path(__file__).resolve().parents[3])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]).strip(":")}
    log = tempfile.TemporaryFile()
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines.llm.server", model, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=environment,
    )
    assert process.stdout is not None
    said = process.stdout.readline()
    child = Child(process, "", log)
    try:
        child.url = json.loads(said)["url"]
    except (ValueError, KeyError):
        process.kill()
        process.wait()
        what = f"the server of {model} did not start (exit {process.returncode}): {_tail(log)}"
        child.stop()
        raise EnvironmentFault(what, where=str(path), cure="run `make setup`, free memory, or see the log") from None
    return child


def _tail(log: IO[bytes]) -> str:
    log.seek(0, os.SEEK_END)
    log.seek(max(0, log.tell() - LOG_TAIL_CHARS))
    return " ".join(log.read().decode("utf-8", "replace").split()) or "(its log is empty)"
