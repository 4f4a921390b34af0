"""While requests are under way Python looks for cycles seldom, and as before once they are done."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.llm.client import open_client
from pipelines.llm.collector import THRESHOLD, seldom
from pipelines.llm.settings import Settings
from tests.llm.scripted_server import ScriptedServer
from tests.llm.test_claims import questions


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_of_those_within_the_last_one_out_puts_back_what_was() -> None:
    gc.set_threshold(600, 7, 8)
    one, other = seldom(), seldom()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert gc.get_threshold() == (THRESHOLD, 7, 8)
    other.__exit__(None, None, None)
    assert gc.get_threshold() == (600, 7, 8)


@pytest.mark.parametrize("own", [0, THRESHOLD + 1])
def test_who_collects_more_seldom_still_or_never_goes_on_so(own: int) -> None:
    gc.set_threshold(own, 10, 10)
    with seldom():
        assert gc.get_threshold() == (own, 10, 10)
    assert gc.get_threshold() == (own, 10, 10)


def test_answers_are_collected_seldom_until_all_are_read_or_nobody_reads_on(tmp_path: Path) -> None:
    gc.set_threshold(600, 10, 10)
    with (
        ScriptedServer() as server,
        open_client(Settings("openai", "m", server.url), tmp_path / "s.sqlite") as client,
    ):
        for end in (list, lambda answers: answers.close()):
            answers = client.answers(questions(3))
            assert next(answers).ok
            assert gc.get_threshold() == (THRESHOLD, 10, 10)
            end(answers)
            assert gc.get_threshold() == (600, 10, 10)
