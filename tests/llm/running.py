"""Threads and scripts that the tests of a client's end run."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

TESTS = Path(__file__).parent
VECTORS = {"model": "vectors", "prefix": ""}
HEAD = f"""
import gc, os, signal, sys, threading, time
from pathlib import Path
sys.path[:0] = [{str(TESTS)!r}, {str(TESTS.parents[1])!r}]
from questions import question, settings
from pipelines.llm.client import open_client
from pipelines.llm.store import Store
url, store = sys.argv[1], Path(sys.argv[2])
"""


def begun(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def ended(thread: threading.Thread) -> bool:
    thread.join(30)
    return not thread.is_alive()


def ran(script: str, url: str, store: Path) -> tuple[str, str, int]:
    """What a script says on both streams, and how it ends."""
    command = [sys.executable, "-c", HEAD + script, url, str(store)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return run.stdout, run.stderr, run.returncode
