"""Requests, settings and a scripted server for the tests of model calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scripted_server import ScriptedServer

Serve = Callable[..., ScriptedServer]


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the developer's machine reaches a test."""
    for name in ("BACKEND", "BASE_URL", "MODEL", "API_KEY"):
        monkeypatch.delenv(f"HEADRACE_LLM_{name}", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts scripted servers that end with the test."""
    started: list[ScriptedServer] = []

    def start(script: dict | None = None, **options: object) -> ScriptedServer:
        log = tmp_path / f"requests{len(started)}.jsonl"
        started.append(ScriptedServer(script, log=log, **options))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for server in started:
        server.stop()
