"""Replay: the stored bytes or an error that names the request, never a model."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from questions import question, settings

from pipelines.llm.backends.replay import ReplayMiss
from pipelines.llm.client import open_client
from pipelines.llm.models import REGISTRY
from pipelines.llm.request import Sampling, named_request
from pipelines.llm.settings import Settings
from pipelines.llm.store import Kept, Record, Store

REPLAY = Settings(backend="replay", model="scripted")


def test_a_replay_gives_the_recorded_answers_without_a_server(serve, tmp_path: Path) -> None:
    server, store = serve(), tmp_path / "s.sqlite"
    with open_client(settings(server.url), store) as client:
        recorded = {a.id: (a.text, a.usage) for a in client.answers(map(question, range(20)))}
    server.stop()
    with open_client(REPLAY, store) as client:
        assert {a.id: (a.text, a.usage) for a in client.answers(map(question, range(20)))} == recorded


def test_a_replay_finds_what_embedded_weights_said(tmp_path: Path) -> None:
    request = replace(question(1), model="gemma3-270m")
    named = named_request(request, "gemma3-270m", REGISTRY["gemma3-270m"].identity)
    with Store(tmp_path / "s") as store:
        store.put([Record(named.key, "completion", "gemma3-270m", "i", named.canonical, Kept("four"), b"")])
    with open_client(replace(REPLAY, model="gemma3-270m"), tmp_path / "s") as client:
        assert [a.text for a in client.answers([request])] == ["four"]


def test_a_replay_finds_what_an_endpoint_said_under_a_registered_name(serve, tmp_path: Path) -> None:
    request = replace(question(1), model="smollm2-135m")
    with open_client(settings(serve().url, model="smollm2-135m"), tmp_path / "s") as client:
        recorded = [(a.id, a.text) for a in client.answers([request])]
    with open_client(replace(REPLAY, model="smollm2-135m"), tmp_path / "s") as client:
        assert [(a.id, a.text) for a in client.answers([request])] == recorded


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (replace(question(1), prompt="What is 1 plus 1?"), "differs from the stored one in prompt"),
        (
            replace(question(1), sampling=Sampling(16, temperature=0.2, stop=("\n",))),
            "in sampling.temperature",
        ),
        (replace(question(1), sample=3, seed=9), "sample 3: differs from the stored one in sample, seed"),
        (
            replace(question(1), model="other"),
            'of other to test of row row1.*in model: "name:other" where "name:scripted" is stored',
        ),
        (
            question(7),
            r"row row7, sample 0: differs from the nearest stored one, of row row1, in prompt, seed: "
            r"'What is 7 \+ 7\?' where 'What is 1 \+ 1\?' is stored",
        ),
        (replace(question(7), purpose="other"), "other of row row7, sample 0: nothing is stored for it"),
    ],
)
def test_a_miss_names_row_purpose_model_and_what_differs(serve, tmp_path: Path, changed, says: str) -> None:
    with open_client(settings(serve().url), tmp_path / "s") as client:
        assert len(list(client.answers([question(1)]))) == 1
    with open_client(REPLAY, tmp_path / "s") as client, pytest.raises(ReplayMiss, match=says):
        list(client.answers([changed]))


def test_stale_are_the_answers_in_whose_place_something_else_is_asked_and_no_others(
    serve, tmp_path: Path
) -> None:
    asked = [question(n) for n in range(400)]
    with open_client(settings(serve().url), tmp_path / "s") as client:
        assert len(list(client.answers(asked))) == 400
    for changed, says in (
        ([replace(q, seed=77) if q.row == "row3" else q for q in asked], r"; 1 answers .*\(rows row3\)"),
        (
            [replace(q, seed=77) if q.row < "row15" else q for q in asked[:20]],
            r"; 7 answers .*row10, .*, \.\.\.\)",
        ),
        ([*asked[:3], question(1000)], r"^((?!are stale).)*$"),
        ([replace(asked[1], sample=1)], r"^((?!are stale).)*$"),
    ):
        with open_client(REPLAY, tmp_path / "s") as client, pytest.raises(ReplayMiss) as missed:
            list(client.answers(changed))
        assert re.search(says, str(missed.value)), str(missed.value)
