"""The vLLM backend against servers that stand in for vLLM, each in a process of its own."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_vllm import answer_to, interpreter, lines

from pipelines.errors import ConfigError, EnvironmentFault, HeadraceError
from pipelines.llm import keeper
from pipelines.llm.answer import Answer
from pipelines.llm.backends import vllm_model, vllm_server
from pipelines.llm.backends.vllm import Vllm
from pipelines.llm.backends.vllm_settings import VLLM
from pipelines.llm.client import open_client
from pipelines.llm.models import Model, model
from pipelines.llm.request import Request, Sampling
from pipelines.llm.settings import Settings

ROOT = Path(__file__).parents[2]
LOG = Path("asked.jsonl")


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of its own with a model in it; whatever a test leaves running fails it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "config.json").write_text('{"architectures": ["ToyForCausalLM"]}')
    (tmp_path / "toy" / "model.safetensors").write_bytes(b"weights")
    yield tmp_path
    left = [pid for line in lines(LOG, "started") for pid in (line["pid"], line["worker"]) if not gone(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "processes outlived the test"


def settings(*args: str, **told: object) -> Settings:
    """Servers that stand in for vLLM serve the model `toy`."""
    fake = VLLM(
        python=str(interpreter(Path.cwd())),
        weights={"toy": "toy"},
        args=("--fake-log", str(LOG.absolute()), *args),
        start_s=20.0,
    )
    return Settings(backend="vllm", model="toy", vllm=replace(fake, **told))  # type: ignore[arg-type]


def questions(count: int, text: str = "What is {n}?") -> list[Request]:
    return [Request("completion", "toy", Sampling(8), text.format(n=n), row=f"row-{n}") for n in range(count)]


def answered(told: Settings, requests: list[Request], store: str = "s.sqlite") -> list[Answer]:
    with open_client(told, Path(store)) as client:
        return list(client.answers(requests))


def right(answers: list[Answer]) -> bool:
    return all(a.ok and a.text == answer_to(str(a.request.prompt)) for a in answers)


def gone(pid: int, within_s: float = 10.0) -> bool:
    """Whether a process ends in time (a zombie is gone too)."""
    end = time.monotonic() + within_s
    while keeper.started(pid):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.slow
def test_a_server_is_started_once_asked_and_ended_with_its_workers() -> None:
    answers = answered(settings("--fake-stubborn"), questions(20))
    assert len(answers) == 20 and right(answers)
    (server,) = lines(LOG, "started")
    assert gone(server["pid"], 0) and gone(server["worker"], 0)
    assert server["model"] == str(Path("toy").absolute())
    assert list(Path(".headrace/vllm").iterdir()) == []
    (first, *_) = lines(LOG, "asked")
    # What the key does not hold may not act: the model's own defaults are overruled.
    assert first["body"] | {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0} == first["body"]


def test_stored_answers_need_neither_server_nor_environment() -> None:
    answered(settings(), questions(3))
    again = answered(settings(python="/nowhere/python", replicas=2, devices=("0", "1")), questions(3))
    assert right(again) and all(a.stored for a in again)
    assert len(lines(LOG, "started")) == 1


def test_what_vllm_said_is_replayed_without_it() -> None:
    answered(settings(), questions(3))
    replayed = answered(replace(settings(), backend="replay"), questions(3))
    assert right(replayed) and all(a.stored for a in replayed)
    with pytest.raises(HeadraceError, match="replay: no stored answer of toy"):
        answered(replace(settings(), backend="replay"), questions(4))


def converter(folder: Path, does: str) -> Path:
    """An interpreter that counts its calls and does this instead of converting; $4 is the folder."""
    script = folder / "converting-python"
    script.write_text(f"#!/bin/sh\necho once >> '{folder}/calls'\n{does}\n")
    script.chmod(0o755)
    return script


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """An embedded model of a few bytes, its folder of models empty but for it."""
    monkeypatch.setenv("HEADRACE_MODELS", str(tmp_path / "models"))
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny.gguf").write_bytes(b"GGUF")
    sha256 = hashlib.sha256(b"GGUF").hexdigest()
    return replace(model("smollm2-135m"), name="tiny", sha256=sha256, size=4)


def test_weights_are_converted_once_and_again_when_the_folder_is_not_as_it_was(tiny: Model) -> None:
    python = converter(Path.cwd(), """cat "$3" > "$4/model.safetensors"; echo '{}' > "$4/config.json" """)
    folder = vllm_model.converted(tiny, python)
    assert (folder / "model.safetensors").read_bytes() == b"GGUF"
    assert vllm_model.converted(tiny, python) == folder and Path("calls").read_text() == "once\n"
    (folder / "config.json").write_text('{"other": 1}')
    assert vllm_model.converted(tiny, python) == folder
    assert (folder / "config.json").read_text() == "{}\n" and Path("calls").read_text() == "once\n" * 2
    other = hashlib.sha256(b"GGUf").hexdigest()
    (Path("models") / "tiny.gguf").write_bytes(b"GGUf")
    vllm_model.converted(replace(tiny, sha256=other), python)
    assert (folder / "model.safetensors").read_bytes() == b"GGUf"


def test_a_conversion_that_fails_says_why_and_leaves_nothing(tiny: Model) -> None:
    python = converter(Path.cwd(), 'echo half > "$4/config.json"; echo "no memory" >&2; exit 7')
    with pytest.raises(EnvironmentFault, match=r"cannot be converted \(exit 7\): no memory"):
        vllm_model.converted(tiny, python)
    assert {p.name for p in Path("models").iterdir()} <= {"tiny.gguf", "verified.json"}


def test_no_key_reaches_a_server_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_LLM_API_KEY", "sk-planted")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted-too")
    assert right(answered(settings(), questions(2)))
    assert "sk-planted" not in LOG.read_text()


def test_an_environment_that_is_not_built_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.llm.backends.vllm_model.PROJECT", Path.cwd())
    with pytest.raises(EnvironmentFault, match=r"the vLLM environment is not built \(make vllm\)"):
        answered(settings(python=""), questions(1))


def test_a_server_that_fails_shows_its_error_and_keeps_its_log() -> None:
    with pytest.raises(EnvironmentFault) as caught:
        answered(settings("--fake-fail", "no kernel for this"), questions(3))
    told = str(caught.value)
    assert "the server of toy did not start (exit 1): ValueError: no kernel for this ..." in told
    assert told.count("\n") == 0 and len(told) < 1500
    log = Path(".headrace/vllm/failed.log")
    assert log.read_text().startswith("loading ") and str(log.absolute()) in told
    assert list(log.parent.iterdir()) == [log]


def test_a_server_that_does_not_come_in_time_is_ended() -> None:
    quiet = Path("python-quiet")
    quiet.write_text("#!/bin/sh\necho $$ > quiet.pid\nexec sleep 600\n")
    quiet.chmod(0o755)
    with pytest.raises(EnvironmentFault, match=r"the server of toy did not start in 0.5 s"):
        answered(settings(python=str(quiet), start_s=0.5), questions(1))
    assert gone(int(Path("quiet.pid").read_text()), 0)


def test_a_port_taken_meanwhile_by_a_stranger_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with running() as stranger:
        taken, free = int(stranger.rsplit(":", 1)[1]), vllm_server.free_port
        ports = iter([taken, taken])
        monkeypatch.setattr(vllm_server, "free_port", lambda: next(ports, None) or free())
        assert right(answered(settings(), questions(4)))
        assert len(lines(LOG, "asked")) == 4 and taken not in {line["port"] for line in lines(LOG, "asked")}


def test_a_killed_server_is_started_again_and_every_row_answered() -> None:
    with open_client(settings("--fake-latency-ms", "100"), Path("s")) as client:
        answers = client.answers(questions(40))
        got = [next(answers)]
        os.kill(lines(LOG, "started")[0]["pid"], signal.SIGKILL)
        got += answers
    assert right(got) and len({a.id for a in got}) == 40
    first, second = lines(LOG, "started")
    assert gone(first["worker"], 0), "what a killed server leaves is ended"
    assert first["port"] != second["port"]


def test_a_server_that_keeps_dying_is_given_up() -> None:
    with pytest.raises(EnvironmentFault, match=r"the server of toy died or hung 3 times \(exit 3\)"):
        answered(settings("--fake-deadly"), questions(8))
    assert len(lines(LOG, "started")) == 3


PREFIXES = [f"{name} " * 500 for name in ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")]


def test_requests_that_share_a_prefix_go_to_the_same_replica() -> None:
    told = replace(settings(replicas=2, devices=("0", "1")), concurrency=2)
    with open_client(told, Path("s")) as client:
        tries = itertools.count()
        wait_for(lambda: both_asked() or not list(client.answers(questions(9, f"{next(tries)} {{n}}"))))
        known = len(lines(LOG, "answered"))
        for prefix in PREFIXES:
            assert right(list(client.answers(questions(6, prefix + "question {n}"))))
    homes: dict[str, set[int]] = {}
    for line in lines(LOG, "answered")[known:]:
        homes.setdefault(line["prompt"][:5], set()).add(line["port"])
    assert len(homes) == len(PREFIXES) and all(len(ports) == 1 for ports in homes.values())
    started = lines(LOG, "started")
    assert {port for ports in homes.values() for port in ports} == {line["port"] for line in started}
    assert sorted(line["variables"]["CUDA_VISIBLE_DEVICES"] for line in started) == ["0", "1"]


def test_the_work_of_a_dead_replica_moves_and_every_row_is_answered_once() -> None:
    told = replace(settings("--fake-latency-ms", "200", replicas=2), concurrency=16)
    with open_client(told, Path("s")) as client:
        answers = client.answers(questions(120))
        got = [next(answers)]
        wait_for(both_asked)
        victim = lines(LOG, "started")[0]
        wait_for(lambda: under_way_at(victim["port"]) > 0)
        os.kill(victim["pid"], signal.SIGKILL)
        got += answers
    assert right(got) and len({a.request.row for a in got}) == 120
    assert set(Counter(line["key"] for line in lines(LOG, "answered")).values()) == {1}
    asked = Counter(line["key"] for line in lines(LOG, "asked"))
    moved = [key for key, times in asked.items() if times > 1]
    assert moved, "it held nothing when it was killed"
    assert len(moved) <= 16


def test_a_run_goes_on_without_a_replica_that_is_given_up(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pipelines.llm.backends.vllm_replica.MAX_STARTS", 1)
    with open_client(settings("--fake-latency-ms", "50", replicas=2), Path("s")) as client:
        answers = client.answers(questions(60))
        got = [next(answers)]
        wait_for(lambda: len(lines(LOG, "started")) == 2)
        os.kill(lines(LOG, "started")[0]["pid"], signal.SIGKILL)
        got += answers
    assert right(got) and len(got) == 60
    assert "goes on without a replica" in capfd.readouterr().err
    assert len(lines(LOG, "started")) == 2


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_servers_die_with_the_run(ending: signal.Signals) -> None:
    run = a_run(settings(replicas=2))
    wait_for(lambda: len(lines(LOG, "started")) == 2)
    run.send_signal(ending)
    run.wait(20)
    assert all(gone(line["pid"]) and gone(line["worker"]) for line in lines(LOG, "started"))


@pytest.mark.slow
def test_an_orphan_of_an_earlier_crash_is_ended_by_the_next_run(capfd: pytest.CaptureFixture[str]) -> None:
    told = settings("--fake-stubborn")
    run = a_run(told)
    wait_for(lambda: len(lines(LOG, "answered")) == 1)
    (orphan,) = lines(LOG, "started")
    run.send_signal(signal.SIGSTOP)  # the keeper must not see its owner die before it dies itself
    os.kill(int(Path(f"/proc/{orphan['pid']}/stat").read_text().rsplit(")", 1)[1].split()[1]), signal.SIGKILL)
    run.kill()
    run.wait()
    assert not gone(orphan["pid"], 0.5) and not gone(orphan["worker"], 0)
    assert right(answered(settings(), questions(1, "another {n}")))
    assert gone(orphan["pid"], 0) and gone(orphan["worker"], 0)
    assert "ended a server of toy that an earlier run left" in capfd.readouterr().err
    assert list(Path(".headrace/vllm").iterdir()) == []


def test_neither_a_stranger_nor_another_run_s_server_is_ended() -> None:
    state = Path(".headrace/vllm")
    state.mkdir(parents=True)
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        with open_client(settings(), Path("one")) as other:
            list(other.answers(questions(1)))
            # A record whose owner's number was given to another process since: the owner is gone.
            owner = {"pid": stranger.pid, "started": "long ago"}
            (state / "old.json").write_text(json.dumps({"token": "old", "owner": owner, "model": "toy"}))
            (state / "broken.json").write_text("{")
            assert vllm_server.end_orphans(state) == []
            assert not (state / "old.json").exists() and (state / "broken.json").exists()
            (server,) = lines(LOG, "started")
            assert stranger.poll() is None and not gone(server["pid"], 0.2)
    finally:
        stranger.kill()
        stranger.wait()


def test_running_servers_are_joined_and_left_running() -> None:
    with running() as one, running() as two:
        told = settings(urls=(one, f"{two}/v1"), args=(), python="/nowhere/python")
        assert right(answered(told, questions(40)))
        served = Counter(line["port"] for line in lines(LOG, "answered"))
        assert set(served) == {int(url.rsplit(":", 1)[1]) for url in (one, two)}
        assert right(answered(told, questions(2, "again {n}"))), "they still run"


def test_a_joined_server_is_shown_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_LLM_API_KEY", "sk-theirs")
    with running() as url:
        answered(settings(urls=(url,)), questions(1))
    assert [line["authorization"] for line in lines(LOG, "asked")] == ["Bearer sk-theirs"]


def test_a_joined_server_that_is_away_is_done_without_and_two_away_stop_the_run(
    capfd: pytest.CaptureFixture[str],
) -> None:
    away = f"http://127.0.0.1:{vllm_server.free_port()}"
    with running() as url:
        told = replace(settings(urls=(away, url)), connect_timeout_s=0.5)
        assert right(answered(told, questions(5)))
        with open_client(told, Path("s")) as client:
            slow = client.answers(questions(1, "later {n}"))
            assert right(list(slow))
            wait_for(lambda: "goes on without a replica" in capfd.readouterr().err)
    told = replace(settings(urls=(away, f"{away}/v1/v1")), connect_timeout_s=0.5)
    with pytest.raises(EnvironmentFault, match=rf"{away}: the vLLM server does not answer in 0.5 s"):
        answered(told, questions(5, "no {n}"))


def test_a_joined_server_of_another_model_is_told_apart() -> None:
    with running() as url, pytest.raises(ConfigError, match="serves toy, headrace-test, not other"):
        answered(replace(settings(urls=(url,)), model="other"), questions_of("other"))


def test_the_identity_is_the_weights_and_what_can_change_an_answer() -> None:
    def identity(model: str = "toy", **told: object) -> str:
        return Vllm(settings(**{"args": ()} | told)).identity(model)  # type: ignore[arg-type]

    plain = identity()
    assert plain.startswith("sha256:")
    fast = ("--max-num-seqs", "4", "--gpu-memory-utilization=0.5", "--enforce-eager")
    assert identity(args=fast, replicas=2, start_s=5.0) == plain
    assert identity(urls=("http://a:1", "http://b:2")) == plain, "never a host"
    fp8 = identity(args=("--quantization", "fp8", *fast))
    assert fp8 != plain and identity(args=(*fast, "--quantization=fp8")) == fp8
    Path("toy/README.md").write_text("not a part of the model")
    assert identity() == plain
    Path("toy/model.safetensors").write_bytes(b"other weights")
    assert identity() != plain
    assert identity("org/name", weights={"org/name": "org/name@v2"}) == "name:org/name@v2"
    assert identity("served", urls=("http://a:1",), weights={}) == "name:served"
    embedded = identity("smollm2-135m", weights={})
    assert embedded.startswith("sha256:b179c9523d0e") and embedded.endswith(":bf16")


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"replicas": 0}, "llm.vllm.replicas: must be at least 1, is 0"),
        (
            {"devices": ("0",), "replicas": 2},
            "llm.vllm.devices: names the devices of 1 replicas, there are 2",
        ),
        ({"args": ("--port", "1")}, "llm.vllm.args: --port is not yours to set"),
        ({"args": ("--port=1",)}, "llm.vllm.args: --port is not yours to set"),
        ({"urls": ("ftp://a",)}, "llm.vllm.urls must start with http"),
        ({"urls": ("http://a:1", "http://a:1")}, "llm.vllm.urls: names an address twice"),
        ({"weights": {"toy": "./nowhere"}}, "llm.vllm.weights.toy: './nowhere' is no folder"),
        ({"weights": {"toi": "toy"}}, "unknown model 'toy' (did you mean 'toi'?"),
        ({"python": "nowhere/python"}, "nowhere/python: there is no such interpreter"),
    ],
)
def test_a_setting_that_cannot_be_is_told_with_its_cure(told: dict[str, object], message: str) -> None:
    with pytest.raises((ConfigError, EnvironmentFault)) as caught:
        answered(settings(**told), questions(1))  # type: ignore[arg-type]
    assert message in str(caught.value) and lines(LOG) == []


# -- what the tests are made of ---------------------------------------------------------------


def questions_of(model: str) -> list[Request]:
    return [replace(request, model=model) for request in questions(2)]


def both_asked() -> bool:
    return len({line["port"] for line in lines(LOG, "asked")}) == 2


def under_way_at(port: int) -> int:
    """Questions that it was asked and has not answered."""
    told = Counter(e for e in ("asked", "answered") for line in lines(LOG, e) if line["port"] == port)
    return told["asked"] - told["answered"]


def wait_for(truth: Callable[[], bool], within_s: float = 20.0) -> None:
    end = time.monotonic() + within_s
    while not truth():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


def a_run(told: Settings) -> subprocess.Popen[bytes]:
    """A run in a process of its own that asks one question and then stays."""
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); from test_vllm import *\n"
        "told = Settings(backend='vllm', model='toy', vllm=eval(sys.argv[2]))\n"
        "client = open_client(told, Path('run.sqlite'))\n"
        "list(client.answers(questions(1))); time.sleep(600)"
    )
    here = str(Path(__file__).parent)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", code, here, repr(told.vllm)], env=environment)


class running:
    """A server that somebody else started."""

    def __enter__(self) -> str:
        port = vllm_server.free_port()
        names = ["--served-model-name", "toy", "headrace-test"]
        command = [
            str(interpreter(Path.cwd())),
            "-m",
            "x",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            *names,
        ]
        self.process = subprocess.Popen([*command, "--model", "toy", "--fake-log", str(LOG.absolute())])
        wait_for(lambda: any(line["port"] == port for line in lines(LOG, "started")))
        wait_for(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
        return f"http://127.0.0.1:{port}"

    def __exit__(self, *_: object) -> None:
        assert self.process.poll() is None
        (worker,) = [line["worker"] for line in lines(LOG, "started") if line["pid"] == self.process.pid]
        for pid in (worker, self.process.pid):
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
