"""What a preview foretells of a stage's questions: "at most" is not overtaken, and no time is made up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from batch_server import BatchServer
from questions import question, settings
from scripted_server import ScriptedServer

from pipelines.llm.answer import Answer
from pipelines.llm.backends.batch_settings import BatchSettings
from pipelines.llm.client import open_client
from pipelines.llm.forecast import Count, Forecast, Previewer, Unanswered
from pipelines.llm.prices import NANO, Price, charge, most
from pipelines.llm.request import Request, canonical
from pipelines.llm.settings import Settings
from pipelines.llm.structured import structured

PRICE = Price(prompt=1.0, completion=2.0)
PRICED = {"prices": {"scripted": PRICE}}
NOBODY = "http://127.0.0.1:9"
QUESTIONS = [question(n) for n in range(20)]


def foretold(settings: Settings, asked: Sequence[Request] = QUESTIONS, store: Path = Path("none")) -> Count:
    forecast = Forecast()
    with pytest.raises(Unanswered), Previewer(settings, store, Path("no"), forecast, read_on=True) as client:
        list(client.answers(asked))
    return forecast.counts["scripted"]


def told(backend: str, **changes: object) -> Settings:
    return settings(NOBODY, backend=backend, **(PRICED | changes))


def test_a_batch_is_likely_to_cost_its_share_and_singly_asked_leftovers_at_most_all_of_it() -> None:
    single = foretold(told("openai"))
    assert single.usd and single.usd_most
    batch = foretold(told("batch", batch=BatchSettings(price_share=0.25)))
    assert (batch.usd, batch.usd_most) == (pytest.approx(single.usd / 4, rel=1e-3), single.usd_most)
    alone = foretold(told("batch", batch=BatchSettings(price_share=0.25, rest="fail")))
    assert (alone.usd, alone.usd_most) == (batch.usd, pytest.approx(single.usd_most / 4, rel=1e-3))


def test_answers_that_came_in_a_batch_say_nothing_of_the_pace(tmp_path: Path) -> None:
    store, quick = tmp_path / "s.sqlite", BatchSettings(poll_s=0.05, poll_max_s=0.2)
    with BatchServer() as server, open_client(settings(server.url, backend="batch", batch=quick), store) as c:
        assert all(a.ok for a in c.answers(QUESTIONS[:8]))
    assert foretold(told("openai"), store=store).seconds is None
    with ScriptedServer(latency_ms=50) as server, open_client(settings(server.url), store) as client:
        assert all(a.ok for a in client.answers(QUESTIONS[8:10]))
    timed = foretold(told("openai", concurrency=1), store=store)
    assert (timed.new, timed.stored) == (10, 10) and timed.seconds is not None and timed.seconds >= 10 * 0.05


def test_the_time_of_a_batch_is_unknown_also_where_a_pace_is_known(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    with ScriptedServer(latency_ms=50) as server, open_client(settings(server.url), store) as client:
        list(client.answers(QUESTIONS[:2]))
    assert foretold(told("batch"), store=store).seconds is None


@pytest.mark.parametrize("kind", ["completion", "chat"])
def test_at_most_holds_where_every_answer_needs_a_repair(kind: str) -> None:
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    wanted = [replace(question(n, kind=kind), schema=schema) for n in range(10)]
    asked: list[Request] = []

    def garbage(requests: Iterable[Request]) -> Iterator[Answer]:
        """As many tokens as may be, of one byte each: none is read as fewer bytes than it is billed for."""
        for request in requests:
            asked.append(request)
            assert request.sampling is not None
            yield Answer(request, request.row, text="x" * request.sampling.max_tokens)

    assert not any(end.ok for end in structured(garbage, wanted))
    held = sum(charge(PRICE, most(r, canonical(r, "name:scripted"))).nano for r in asked) / NANO
    count = foretold(told("openai"), wanted)
    assert len(asked) == 2 * count.new == 20
    assert count.usd_most is not None and count.usd_most >= held - 1e-12


def test_samples_that_ride_in_one_call_pay_for_the_prompt_once() -> None:
    samples = [question(n, sample=k) for n in range(2) for k in range(6)]
    alone, riding = (foretold(told("openai", samples_per_call=n), samples) for n in (1, 3))
    assert (riding.new, riding.prompt_tokens) == (12, alone.prompt_tokens // 3)
    assert riding.completion_tokens == alone.completion_tokens and riding.usd_most == alone.usd_most


def test_a_replay_costs_nothing_and_counts_what_it_lacks() -> None:
    forecast = Forecast()
    with (
        pytest.raises(Unanswered),
        Previewer(told("replay"), Path("none"), Path("none"), forecast, read_on=True) as client,
    ):
        list(client.answers(QUESTIONS))
    count = forecast.counts["scripted"]
    assert (forecast.missed, count.new, count.prompt_tokens, count.usd, count.usd_most) == (20, 20, 0, 0, 0)
