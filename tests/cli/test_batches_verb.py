"""`headrace batches` as a person runs it, in a process of its own, against a batch endpoint in another."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from pipelines.llm.backends.batch_ledger import Ledger, ledger_path
from pipelines.llm.backends.batch_settings import BatchSettings
from pipelines.llm.client import open_client
from pipelines.llm.job import Job
from pipelines.llm.request import named_request
from pipelines.llm.store import Store
from tests.llm.batch_server import BatchServer
from tests.llm.questions import question, settings

ROOT = Path(__file__).parents[2]
HEADRACE = "import sys; from pipelines.cli import main; sys.exit(main())"
PARAMS = "seed: 0\nllm: {batch: {poll_s: 0.05, poll_max_s: 0.2, settle_s: 0.1}}\n"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "params.yaml").write_text(PARAMS)
    return tmp_path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BatchServer]:
    with BatchServer({"looks": 3}, log=tmp_path / "log.jsonl") as server:
        yield server


def headrace(workspace: Path, *words: str) -> tuple[int, str]:
    """(exit status, all that was printed) of `headrace batches`."""
    told = os.environ | {"PYTHONPATH": str(ROOT)}
    for name in ("HEADRACE_STORE", "HEADRACE_LLM_BASE_URL", "HEADRACE_LLM_BACKEND"):
        told.pop(name, None)
    command = [sys.executable, "-c", HEADRACE, "batches", *words]
    done = subprocess.run(command, cwd=workspace, env=told, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def store_of(workspace: Path) -> Path:
    return workspace / ".headrace" / "responses.sqlite"


def put_out(server: BatchServer, workspace: Path, count: int) -> list[str]:
    """Leave a batch of `count` questions at work; their keys."""
    quick = BatchSettings(poll_s=30.0, settle_s=0.1)
    named = [named_request(question(n), "scripted", "name:scripted") for n in range(count)]
    with open_client(settings(server.url, backend="batch", batch=quick), store_of(workspace)) as client:
        done: SimpleQueue = SimpleQueue()
        client.courier().send([Job(n.key, n.canonical, n.identity, n.model, n.request, done) for n in named])
        client.courier().flush()
        until = time.monotonic() + 20
        while not [b for b in open_batches(workspace) if b]:
            assert time.monotonic() < until
            time.sleep(0.02)
    return [n.key for n in named]


def open_batches(workspace: Path) -> list[str]:
    ledger = Ledger(ledger_path(store_of(workspace)))
    try:
        return [b.id for b in ledger.batches()]
    finally:
        ledger.close()


def answered(workspace: Path, keys: list[str]) -> int:
    with Store(store_of(workspace)) as store:
        return len(store.answers(keys))


def test_without_batches_it_says_so_and_makes_no_file(workspace: Path) -> None:
    assert headrace(workspace) == (0, "no batches\n")
    assert not (workspace / ".headrace").exists()


def test_it_lists_what_is_out_and_waits_until_all_of_it_is_stored(
    workspace: Path, server: BatchServer
) -> None:
    keys = put_out(server, workspace, 6)
    code, said = headrace(workspace)
    assert code == 0 and said.startswith("batch_1  validating  0 of 6  scripted completion")
    assert server.url in said and answered(workspace, keys) == 0
    assert headrace(workspace, "--wait") == (0, "batch_1: completed, 6 of 6 stored\n")
    assert answered(workspace, keys) == 6 and open_batches(workspace) == []
    assert headrace(workspace) == (0, "no batches\n")
    assert headrace(workspace, "--all")[1].startswith("batch_1  completed  6 of 6")


@pytest.mark.parametrize("name", ["batch_1", "all"])
def test_what_a_cancelled_batch_answered_is_kept(workspace: Path, server: BatchServer, name: str) -> None:
    keys = put_out(server, workspace, 6)
    code, said = headrace(workspace, "--cancel", name)
    assert code == 0 and said.startswith("batch_1: cancelled") and len(server.events("cancel")) == 1
    assert headrace(workspace, "--wait") == (0, "batch_1: cancelled, 3 of 6 stored\n")
    assert answered(workspace, keys) == 3


def test_a_batch_that_cannot_be_reached_can_be_forgotten(workspace: Path, server: BatchServer) -> None:
    put_out(server, workspace, 6)
    server.stop()
    code, said = headrace(workspace, "--forget", "batch_1")
    assert (code, said) == (0, "batch_1: forgotten; its 6 questions may be asked again\n")
    assert open_batches(workspace) == []


def test_a_name_that_is_none_gets_the_nearest_in_one_line(workspace: Path, server: BatchServer) -> None:
    put_out(server, workspace, 2)
    for act in ("--cancel", "--forget"):
        code, said = headrace(workspace, act, "batch_11")
        assert code != 0 and "did you mean 'batch_1'?" in said and said.count("\n") == 1
