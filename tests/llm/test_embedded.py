"""The embedded server: starts when first needed, answers, logs, and never outlives its parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.errors import EnvironmentFault
from pipelines.llm import models
from pipelines.llm.backends import embedded
from pipelines.llm.client import open_client
from pipelines.llm.request import Request, Sampling
from pipelines.llm.settings import Settings

ROOT = Path(__file__).parents[2]
SUM = Request(
    "completion", "smollm2-135m", Sampling(8, stop=("\n",)), "2 + 2 = 4\n3 + 3 = 6\n1 + 1 =", seed=1
)
pytestmark = pytest.mark.live


def gone(pid: int, within_s: float = 10.0) -> bool:
    """Whether a process ends in time (a zombie is gone too)."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


def test_smollm2_and_gemma_answer_and_are_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SERVER_LOG", str(tmp_path / "log.jsonl"))
    requests = [SUM, Request("completion", "gemma3-270m", SUM.sampling, SUM.prompt, seed=1)]
    for stored in (False, True):
        with open_client(Settings(), tmp_path / "s.sqlite") as client:
            answers = {a.request.model: a for a in client.answers(requests)}
            assert {m: a.text.strip() for m, a in answers.items()} == {
                "smollm2-135m": "2",
                "gemma3-270m": "2",
            }
            assert all(a.stored is stored and a.usage.completion_tokens > 0 for a in answers.values())
            assert (client.started is None) is stored
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().split("\n") if line]
    assert sorted(line["key"] for line in logged) == sorted(a.id for a in answers.values())
    assert all(line["body"]["prompt"] == SUM.prompt for line in logged)


def test_a_schema_constrains_completion_and_chat(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    requests = [
        Request("completion", "smollm2-135m", Sampling(24), "2 + 2 as JSON: ", schema=schema),
        Request("chat", "smollm2-135m", Sampling(24), messages=(("user", "2 + 2 as JSON"),), schema=schema),
    ]
    with open_client(Settings(), tmp_path / "s") as client:
        answers = list(client.answers(requests))
    assert [type(json.loads(a.text)["sum"]) for a in answers] == [int, int]


def test_a_prompt_beyond_the_context_fails_alone(tmp_path: Path) -> None:
    long = Request("completion", "smollm2-135m", Sampling(4), "word " * 4000, row="long")
    with open_client(Settings(), tmp_path / "s") as client:
        answers = {a.request.row: a for a in client.answers([long, SUM])}
    assert answers["long"].failure == "bad_request" and "context size" in answers["long"].detail
    assert answers[""].ok


def test_a_server_that_was_killed_is_started_again(tmp_path: Path) -> None:
    with open_client(Settings(), tmp_path / "s") as client:
        list(client.answers([SUM]))
        (task,) = client.backend._servers.values()  # type: ignore[attr-defined]  # one question, one server
        task.result().process.kill()
        task.result().process.wait()
        other = Request("completion", "smollm2-135m", SUM.sampling, "5 + 5 = 10\n4 + 4 =")
        assert [a.ok for a in client.answers([other])] == [True]


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_server_does_not_outlive_its_parent(ending: signal.Signals) -> None:
    code = (
        "import sys, time; from pipelines.llm.backends.embedded import start; "
        "child = start('smollm2-135m'); print(child.process.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT, env=dict(os.environ)
    )
    assert parent.stdout is not None
    server = int(parent.stdout.readline())
    assert not gone(server, within_s=0.2)
    parent.send_signal(ending)
    parent.wait(10)
    parent.stdout.close()
    assert gone(server)


def test_weights_that_are_no_model_show_the_end_of_the_log(tmp_path: Path, monkeypatch) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 100)
    monkeypatch.setattr(embedded, "weights", lambda chosen: broken)
    with (
        open_client(Settings(), tmp_path / "s") as client,
        pytest.raises(EnvironmentFault, match=r"the server of smollm2-135m did not start \(exit .*\): \S+"),
    ):
        list(client.answers([SUM]))


def test_the_registered_weights_verify(tmp_path: Path) -> None:
    assert models.weights(models.model("smollm2-135m"), tmp_path).stat().st_size == 98_362_432
