"""vLLM itself on CPU, with SmolLM2 converted from its GGUF: the same model as llama.cpp serves."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.llm import keeper
from pipelines.llm.answer import Answer
from pipelines.llm.backends import vllm_model
from pipelines.llm.client import Client, open_client
from pipelines.llm.request import Request, Sampling
from pipelines.llm.settings import Settings

READY = vllm_model.PROJECT / vllm_model.ENVIRONMENT / ".ready"
NAME = "smollm2-135m"
TEXTS = (
    "2 + 2 = 4\n3 + 3 = 6\n1 + 1 =",
    "The capital of France is",
    "Add 12345 and 678: 12345 + 678 =",
    "Où est passé l'été 1998 ? Réponse :",
    "def add(a, b):\n    # returns the sum\n    return",
    "日本の首都は",
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.live,
    pytest.mark.skipif(not READY.is_file(), reason="the vLLM environment is not built (make vllm)"),
]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A workspace of its own, with the converted model kept from test run to test run."""
    before = Path.cwd()
    folder = tmp_path_factory.mktemp("vllm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_MODELS", str(vllm_model.PROJECT / ".headrace" / "models"))
        patch.chdir(folder)
        yield folder
    assert Path.cwd() == before


@pytest.fixture(scope="module")
def client(workspace: Path) -> Iterator[Client]:
    """One server for all tests of this module: it takes its time to start."""
    with open_client(Settings(backend="vllm", model=NAME), workspace / "vllm.sqlite") as opened:
        yield opened


def completion(text: str, tokens: int = 12, **more: object) -> Request:
    return Request("completion", NAME, Sampling(tokens, stop=("\n",)), text, seed=1, **more)  # type: ignore[arg-type]


def by_prompt(answers: list[Answer]) -> dict[str, Answer]:
    return {str(a.request.prompt): a for a in answers}


def test_it_reads_the_tokens_and_writes_the_words_that_llama_cpp_does(
    client: Client, workspace: Path
) -> None:
    requests = [completion(text) for text in TEXTS]
    served = by_prompt(list(client.answers(requests)))
    with open_client(Settings(model=NAME), workspace / "llama.sqlite") as other:
        llama = by_prompt(list(other.answers(requests)))
    assert {t: a.usage.prompt_tokens for t, a in served.items()} == {
        t: a.usage.prompt_tokens for t, a in llama.items()
    }
    assert served[TEXTS[0]].text.strip() == "2" == llama[TEXTS[0]].text.strip()
    assert "Paris" in served[TEXTS[1]].text
    # 4 bits beside 16, and each machine rounds in its own way: they begin alike, later ones may differ.
    same = [t for t, a in served.items() if a.text.strip()[:2] == llama[t].text.strip()[:2]]
    assert len(same) >= len(TEXTS) - 1, {t: (served[t].text, llama[t].text) for t in TEXTS}


def test_it_chats_by_the_model_s_own_template(client: Client, workspace: Path) -> None:
    asked = Request(
        "chat",
        NAME,
        Sampling(24),
        messages=(("system", "You answer in one word."), ("user", "What is the capital of France?")),
    )
    (served,) = client.answers([asked])
    with open_client(Settings(model=NAME), workspace / "llama.sqlite") as other:
        (llama,) = other.answers([asked])
    assert "Paris" in served.text and served.usage.prompt_tokens == llama.usage.prompt_tokens


def test_a_schema_constrains_what_it_writes(client: Client) -> None:
    schema = {
        "type": "object",
        "properties": {"sum": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["sum"],
    }
    chat = Request("chat", NAME, Sampling(32), messages=(("user", "2 + 2 as JSON"),), schema=schema)
    plain = Request("completion", NAME, Sampling(32), "2 + 2 as JSON: ", schema=schema)
    assert [type(json.loads(a.text)["sum"]) for a in client.answers([chat, plain])] == [int, int]


def test_equal_seeds_draw_equal_samples_and_others_differ(client: Client) -> None:
    def sample(seed: int, index: int) -> Request:
        drawn = Sampling(16, temperature=1.0)
        return Request("completion", NAME, drawn, "Once upon a time", seed=seed, sample=index)

    texts = {a.request.sample: a.text for a in client.answers([sample(7, 0), sample(7, 1), sample(8, 2)])}
    assert texts[0] == texts[1] != texts[2]


def test_a_prompt_beyond_the_context_fails_alone(client: Client) -> None:
    answers = {a.request.row: a for a in client.answers([completion("word " * 9000, row="long")])}
    assert answers["long"].failure == "bad_request" and "context" in answers["long"].detail


def test_its_engine_killed_it_is_started_again_and_nothing_of_it_is_left(workspace: Path) -> None:
    """It has a server of its own; that of the other tests may live beside it."""
    records = workspace / ".headrace" / "vllm"
    others = set(records.glob("*.json"))
    with open_client(Settings(backend="vllm", model=NAME), workspace / "killed.sqlite") as own:
        assert [a.ok for a in own.answers([completion(TEXTS[0])])] == [True]
        (record,) = set(records.glob("*.json")) - others
        token = json.loads(record.read_text())["token"]
        engines = [pid for pid in pids(token) if "EngineCore" in Path(f"/proc/{pid}/cmdline").read_text()]
        assert len(engines) == 1
        os.kill(engines[0], signal.SIGKILL)
        answers = list(own.answers([completion(t) for t in TEXTS[:3]]))
        assert [a.ok for a in answers] == [True] * 3
        (again,) = set(records.glob("*.json")) - others
        assert again != record and pids(token) == []
    assert pids(again.stem) == []


def pids(token: str) -> list[int]:
    """The live processes that a server's token marks."""
    mark = f"{keeper.TOKEN_VARIABLE}={token}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0") and keeper.started(int(entry.name)):
                found.append(int(entry.name))
        except OSError:
            continue
    return found
