"""A contender in a process of its own, measured from outside.

Law: what is measured is the work between two lines: the child says `ready` when all is imported,
gets `go`, and says `done` with its figures; imports, start and end are nobody's rows/s. CPU is the
child's own, all threads, as the system counts it; the peak is that of the child's whole life.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.errors import EnvironmentFault

ROOT = Path(__file__).resolve().parents[2]
MB = 2**20


@dataclass(frozen=True)
class Measured:
    """What one contender took: seconds and CPU-seconds of its work, most memory in MB, its own words."""

    seconds: float
    cpu_s: float
    peak_mb: float
    said: Mapping[str, Any]


class Contender:
    """A running child: `python -m MODULE ARGUMENTS...`, which calls `obey`."""

    def __init__(self, module: str, *arguments: str) -> None:
        roots = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, roots))}
        for name in ("BACKEND", "BASE_URL", "MODEL"):  # a bench asks its own server, whatever is set here
            environment.pop(f"HEADRACE_LLM_{name}", None)
        self._name = f"{module} {arguments[0] if arguments else ''}".strip()
        command = [sys.executable, "-m", module, *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, bufsize=0
        )
        self._hear("ready")

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)  # Popen's would reap one that has ended, before _end does
        self._end()

    def measure(self) -> Measured:
        """Let it work to its end. Raises EnvironmentFault when it ended otherwise."""
        before, began = self._cpu_s(), time.perf_counter()
        self.go()
        said = self._hear("done")
        seconds, cpu_s = time.perf_counter() - began, self._cpu_s() - before
        return Measured(seconds, cpu_s, self._end(), said)

    def _cpu_s(self) -> float:
        import psutil

        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def _hear(self, word: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        try:
            said = json.loads(self.process.stdout.readline())
            if said["state"] == word:
                return dict(said)
        except (ValueError, KeyError):
            pass
        self.kill()
        code = self.process.returncode
        raise EnvironmentFault(f"{self._name} ended before it was {word} (exit {code})", cure="see above why")

    def _end(self) -> float:
        """Wait for the end; its most memory in MB."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        _, status, used = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return used.ru_maxrss * 1024 / MB


def obey(work: Callable[[], Mapping[str, Any]]) -> None:
    """In the child: say ready, wait for the word, work, say what came of it, wait for the end."""
    _say({"state": "ready"})
    if sys.stdin.readline().strip() != "go":
        return
    _say({"state": "done", **work()})
    sys.stdin.readline()


def _say(line: Mapping[str, Any]) -> None:
    print(json.dumps(line), flush=True)
