"""`vllm run-batch` as a maker of batches, by a program with its command line, and by vLLM itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_run_batch import interpreter
from fake_vllm import lines
from questions import question

from pipelines.errors import ConfigError, EnvironmentFault
from pipelines.llm import keeper
from pipelines.llm.answer import Answer, Failure
from pipelines.llm.backends.batch_settings import BatchSettings
from pipelines.llm.backends.vllm_model import ENVIRONMENT, NOT_BUILT, PROJECT
from pipelines.llm.backends.vllm_settings import VLLM
from pipelines.llm.client import open_client
from pipelines.llm.request import Request, Sampling
from pipelines.llm.settings import Settings
from pipelines.llm.store import Store

HERE = Path(__file__).parent
LOG = "asked.jsonl"


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own with a model in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "config.json").write_text('{"architectures": ["ToyForCausalLM"]}')
    (tmp_path / "toy" / "model.safetensors").write_bytes(b"weights")
    does()
    return tmp_path


def does(**what: int) -> None:
    """What the stand-in does from its next start on."""
    Path("control.json").write_text(json.dumps(what))


def settings(**batch: Any) -> Settings:
    told = VLLM(
        python=str(interpreter(Path.cwd())),
        weights={"toy": "toy"},
        args=(
            "--fake-log",
            str(Path(LOG).absolute()),
            "--fake-control",
            str(Path("control.json").absolute()),
        ),
        start_s=20.0,
    )
    quick = BatchSettings(**({"poll_s": 0.05, "poll_max_s": 0.2, "settle_s": 0.1} | batch))
    return Settings(backend="vllm-batch", model="toy", vllm=told, batch=quick)


def asked(count: int, kind: str = "chat") -> list[Request]:
    return [replace(question(n, kind=kind), model="toy") for n in range(count)]


def ask(count: int = 20, **batch: Any) -> list[Answer]:
    with open_client(settings(**batch), Path("s.sqlite")) as client:
        return sorted(client.answers(asked(count)), key=lambda a: a.id)


def runs() -> list[list[str]]:
    """The custom_ids of each start of the stand-in."""
    return [line["keys"] for line in lines(Path(LOG), "began")]


def test_runs_follow_one_another_and_leave_nothing_behind() -> None:
    answers = ask(local_requests=8)
    assert len(answers) == 20 and all(a.ok and a.usage.prompt_tokens == 10 for a in answers)
    assert sorted(map(len, runs())) == [4, 8, 8]
    assert [line["event"] for line in lines(Path(LOG))] == ["began", "ended"] * 3
    assert {key for keys in runs() for key in keys} == {a.id for a in answers}
    assert list(Path("s.batches").iterdir()) == []
    assert all(a.stored for a in ask()) and len(runs()) == 3


def test_files_that_a_kill_left_of_a_batch_already_taken_go_with_the_next() -> None:
    Path("s.batches/0123456789abcdef").mkdir(parents=True)
    Path("s.batches/0123456789abcdef/out.jsonl").write_text("{}\n")
    assert all(a.ok for a in ask(2)) and list(Path("s.batches").iterdir()) == []


def test_answers_and_keys_are_those_of_the_vllm_backend() -> None:
    (answer,) = ask(1)
    with open_client(replace(settings(), backend="vllm"), Path("s.sqlite")) as client:
        (same,) = client.answers(asked(1))
    assert same.stored and (same.id, same.text) == (answer.id, answer.text)


def client_process(count: int) -> subprocess.Popen[bytes]:
    """Another process that asks `count` questions of the same settings and store."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])])}
    code = f"import test_local_batches as t; t.ask({count})"
    return subprocess.Popen([sys.executable, "-c", code], env=environment)


def wait_for(so: Any, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while not so():
        assert time.monotonic() < until and process.poll() is None, "it did not come to that"
        time.sleep(0.02)


def written() -> int:
    return sum(path.read_bytes().count(b"\n") for path in Path("s.batches").glob("*/out.jsonl"))


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_ended_takes_its_process_along_and_the_next_asks_the_rest(sent: signal.Signals) -> None:
    does(line_ms=50)
    process = client_process(40)
    wait_for(lambda: written() >= 5, process)
    process.send_signal(sent)
    process.wait(60)
    (began,) = lines(Path(LOG), "began")
    until = time.monotonic() + 20
    while keeper.started(began["pid"]):
        assert time.monotonic() < until, "the process outlived its owner"
        time.sleep(0.02)
    before = written()
    assert 5 <= before < 40
    does()
    answers = ask(40)
    assert all(a.ok for a in answers) and len(answers) == 40
    assert len(runs()[1]) == 40 - before  # what was written whole is not asked again
    assert list(Path("s.batches").iterdir()) == []


def test_a_batch_at_work_in_another_process_is_waited_for() -> None:
    does(line_ms=30)
    process = client_process(20)
    wait_for(runs, process)
    answers = ask(20)
    assert process.wait(60) == 0
    assert all(a.ok for a in answers) and len(runs()) == 1


def test_a_run_that_dies_by_itself_fails_its_rest_and_says_why() -> None:
    does(die_after=6)
    first = ask(20, rest="fail")
    failed = [a for a in first if not a.ok]
    assert len(failed) == 14 and {a.failure for a in failed} == {Failure.SERVER}
    assert "exit 3: RuntimeError: the engine core is gone" in failed[0].detail
    does()
    assert all(a.ok for a in ask(20, rest="fail"))
    assert set(runs()[1]) == {a.id for a in failed}


def test_what_run_batch_does_not_take_is_asked_of_a_server_after_it() -> None:
    with open_client(settings(), Path("s.sqlite")) as client:
        answers = list(client.answers([*asked(5), *asked(3, kind="completion")]))
    assert len(answers) == 8 and all(a.ok for a in answers)
    events = [line["event"] for line in lines(Path(LOG))]
    assert events.index("started") > events.index("ended") and events.count("answered") == 3


def test_a_deadline_ends_the_process_and_keeps_what_it_wrote() -> None:
    does(line_ms=250)
    answers = ask(30, rest="fail", deadline_s=4.0)
    good = [a for a in answers if a.ok]
    assert 0 < len(good) < 30 and {a.failure for a in answers if not a.ok} == {Failure.TIMEOUT}
    with Store(Path("s.sqlite")) as store:
        assert store.count() == len(good)


def test_servers_that_run_already_take_no_batches() -> None:
    joined = replace(settings(), vllm=VLLM(urls=("http://127.0.0.1:1",)))
    with (
        open_client(joined, Path("s.sqlite")) as client,
        pytest.raises(ConfigError, match="takes no batches"),
    ):
        list(client.answers(asked(1)))


def test_without_an_environment_the_cure_is_said() -> None:
    missing = replace(settings(), vllm=VLLM(python="nowhere/python", weights={"toy": "toy"}))
    with (
        open_client(missing, Path("s.sqlite")) as client,
        pytest.raises(EnvironmentFault, match="interpreter"),
    ):
        list(client.answers(asked(1)))
    assert all(a.ok for a in ask(1))  # the questions are free again


@pytest.mark.live
@pytest.mark.slow
def test_vllm_itself_runs_a_batch_of_smollm2() -> None:
    if not (PROJECT / ENVIRONMENT / ".ready").is_file():
        pytest.skip(NOT_BUILT)
    small = ("--dtype", "bfloat16", "--max-model-len", "512", "--max-num-seqs", "8")
    told = Settings(
        backend="vllm-batch",
        model="smollm2-135m",
        vllm=VLLM(args=small),
        batch=BatchSettings(poll_s=1.0, settle_s=0.1, rest="fail"),
    )
    sums = [
        Request("chat", "smollm2-135m", Sampling(8), messages=(("user", f"What is {n} + 1?"),), seed=n)
        for n in range(4)
    ]
    with open_client(told, Path("s.sqlite")) as client:
        answers = list(client.answers(sums))
    assert len(answers) == 4
    assert all(a.failure in (None, Failure.LENGTH) and a.text.strip() for a in answers), answers
    assert all(a.usage.prompt_tokens > 5 and 0 < a.usage.completion_tokens <= 8 for a in answers)
