"""A server in a process of its own, which counts by itself: the half that its parent holds.

Law: the child prints {"url": ...} when it listens, writes each request as a line of JSON before it
answers, and ends when its standard input does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson


class ChildServer:
    """The server as a child process; `url` is its address. Use as a context manager."""

    def __init__(self, command: list[str], log: Path | None) -> None:
        self.log = log or Path(tempfile.mkdtemp()) / "requests.jsonl"
        roots = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
        self.process = subprocess.Popen(
            [sys.executable, *command, "--log", str(self.log)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, roots))},
        )
        assert self.process.stdout is not None
        self.url: str = orjson.loads(self.process.stdout.readline())["url"]

    def requests(self) -> list[dict[str, Any]]:
        """Every request so far, in order of arrival."""
        if not self.log.exists():
            return []
        return [orjson.loads(line) for line in self.log.read_bytes().split(b"\n") if line]

    def asked(self) -> Counter[str]:
        """How often each answer's key was asked for."""
        return Counter(r["key"] for r in self.requests())

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()
