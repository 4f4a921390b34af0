"""Terminating a run in Dagster's page ends the stage, its model server, and frees both locks.

The run is launched and terminated as the page does it, by the GraphQL API of the
servers that `headrace ui` starts: queued by the daemon, run by a worker of the
code server. One stage asks an embedded model, another an endpoint that fails in every way.
"""

from __future__ import annotations

import fcntl
import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from brook_workspace import shell

from dagster_project import serve
from dagster_project.reload import LOCATION
from pipelines.graph import lock
from pipelines.llm.store import Store
from tests.llm.scripted_server import ScriptedServer

pytestmark = [pytest.mark.slow, pytest.mark.live, pytest.mark.timeout(2400)]
STAGE, KEY = "trit.translate@fr", ["trit", "translate", "fr"]
PLENTY = 40  # translations of each problem: minutes of work
ASKED = 20  # requests that the model server has seen when the run is terminated
IN_FLIGHT = 8  # llm.concurrency of the demo
AT_ONCE = 64  # in flight at the endpoint that fails
FAULTS = {"429": 0.15, "500": 0.1, "hang": 0.05, "html": 0.05, "garbage": 0.05, "length": 0.05, "empty": 0.05}
LAUNCH = """mutation Launch($params: ExecutionParams!) {
  launchRun(executionParams: $params) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
  }
}"""
TERMINATE = """mutation Terminate($ids: [String!]!) {
  terminateRuns(runIds: $ids) {
    __typename ... on TerminateRunsResult { terminateRunResults { __typename } }
  }
}"""
STATUS = "query Status($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"


class Page:
    """Dagster's servers over a workspace, asked as its page asks them."""

    def __init__(self, root: Path, url: str, requests: Path) -> None:
        self.root, self.url, self.requests = root, url, requests

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self.url}/graphql",
            data=json.dumps({"query": query, "variables": variables}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=600) as answer:
            told = json.loads(answer.read())
        assert "errors" not in told, told
        return dict(told["data"])

    def launch(self, *path: str) -> str:
        selector = {
            "repositoryLocationName": LOCATION, "repositoryName": "__repository__", "jobName": "all",
            "assetSelection": [{"path": list(path)}],
        }  # fmt: skip
        told = self.ask(LAUNCH, params={"selector": selector, "runConfigData": {}})["launchRun"]
        assert told["__typename"] == "LaunchRunSuccess", told
        return str(told["run"]["runId"])

    def status(self, run: str) -> str:
        return str(self.ask(STATUS, id=run)["runOrError"]["status"])

    def terminate(self, run: str) -> None:
        """Ends a run at work, and waits until the page says so."""
        assert self.status(run) == "STARTED"
        [told] = self.ask(TERMINATE, ids=[run])["terminateRuns"]["terminateRunResults"]
        assert told["__typename"] == "TerminateRunSuccess"
        until(lambda: self.status(run) == "CANCELED")

    def set(self, **changes: Any) -> None:
        """Changes params.yaml: keys as in `trit__translate__backend`."""
        path = self.root / "params.yaml"
        params = yaml.safe_load(path.read_text())
        for name, value in changes.items():
            *above, last = name.split("__")
            at = params
            for part in above:
                at = at[part]
            at[last] = value
        path.write_text(yaml.safe_dump(params, sort_keys=False, allow_unicode=True))

    def asked(self) -> list[str]:
        """Keys of the requests that the model server has seen."""
        if not self.requests.exists():
            return []
        return [json.loads(line)["key"] for line in self.requests.read_text().split("\n") if line]

    def stored(self) -> set[str]:
        """Those of them whose answer is in the store."""
        with Store(self.root / ".headrace" / "responses.sqlite") as store:
            return {key for key in self.asked() if store.record(key) is not None}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in ("HEADRACE_LLM_BACKEND", "HEADRACE_LLM_BASE_URL", "HEADRACE_STORE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HEADRACE_SERVER_LOG", str(folder / "requests.jsonl"))
        yield from served(folder / "workspace", folder / "requests.jsonl")


def served(root: Path, requests: Path) -> Iterator[Page]:
    """A workspace whose problems are read, under the servers."""
    headrace("init", str(root), "--set", f"trit.translate.samples={PLENTY}")
    headrace("run", "trit.ingest", cwd=root)
    with socket.socket() as probe:
        probe.bind((serve.HOST, 0))
        port = int(probe.getsockname()[1])
    dagster = [s for s in serve.servers(root, port, port) if s.name == "Dagster"]
    running = serve.start(dagster, root, serve.environment(root, port))
    try:
        serve.until_up(dagster, running)
        yield Page(root, dagster[0].url, requests)
    finally:
        serve.stop(running)


def headrace(*arguments: str, cwd: Path | None = None) -> None:
    command = [sys.executable, "-m", "pipelines", *arguments]
    ended = subprocess.run(
        command, cwd=cwd or Path(__file__).parents[2], check=False, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout


def until(what: Callable[[], bool], seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "never happened"
        time.sleep(0.2)


def at_work(root: Path) -> list[str]:
    """Command lines of the stages, their shells and their model servers in this workspace."""
    found = []
    for process in psutil.process_iter():
        try:
            command = " ".join(process.cmdline())
            if "-m pipelines" in command and process.cwd() == str(root):
                found.append(command)
        except psutil.Error:
            continue
    return found


def test_terminating_a_run_leaves_no_process_and_no_lock_and_keeps_what_was_answered(page: Page) -> None:
    run = page.launch(*KEY)
    until(lambda: len(page.asked()) >= ASKED)
    before = at_work(page.root)
    assert any("-m pipelines trit.translate fr" in c for c in before), before
    assert any("-m pipelines.llm.server" in c for c in before), before
    page.terminate(run)
    assert at_work(page.root) == []  # already: they end before the run does
    asked = page.asked()

    with open(page.root / ".headrace" / "writer.lock") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises BlockingIOError when it is held
    forced = [sys.executable, "-m", "dvc", "repro", "-f", "-s", "trit.ingest"]  # writes what the stage read
    ended = subprocess.run(forced, cwd=page.root, env=shell(), text=True, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert STAGE not in lock(page.root)
    assert not (page.root / "data" / "trit" / "translate" / "fr" / "rows.parquet").exists()
    assert page.asked() == asked, "something still asks"
    assert len(page.stored()) >= ASKED - IN_FLIGHT


def test_terminating_a_run_amid_failing_calls_leaves_no_process_and_sends_nothing_more(page: Page) -> None:
    with ScriptedServer({"shares": FAULTS}, latency_ms=200) as server:
        page.set(llm__base_url=server.url, llm__concurrency=AT_ONCE, trit__translate__backend="openai")
        run = page.launch("trit", "translate", "pt")
        until(lambda: len(server.requests()) >= 3 * AT_ONCE)
        page.terminate(run)
        assert at_work(page.root) == []
        seen = server.requests()
        headrace("status", cwd=page.root)  # takes its time, and both locks
        assert len(server.requests()) == len(seen), "something still asks"
    kinds = {json.dumps(r["fault"], sort_keys=True) for r in seen}
    assert len(kinds) > 4, "the endpoint failed in few ways"
    good = {r["key"] for r in seen if r["fault"] is None}
    with Store(page.root / ".headrace" / "responses.sqlite") as store:
        kept = {k for k in good if store.record(k) is not None}
    assert len(good) - len(kept) <= AT_ONCE, "answers were lost that were not in flight"
    assert not (page.root / "data" / "trit" / "translate" / "pt" / "rows.parquet").exists()
