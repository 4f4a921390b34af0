"""A result file that cannot be read is no empty one: it is looked at again, and its bill is not lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from batch_server import BatchServer
from questions import question, settings

from pipelines.errors import ConfigError, EnvironmentFault
from pipelines.llm import budget, spending
from pipelines.llm.answer import Answer, Failure
from pipelines.llm.backends.batch_ledger import Batch, Ledger, ledger_path
from pipelines.llm.backends.batch_settings import BatchSettings
from pipelines.llm.backends.batch_watch import LOOKS_AGAIN
from pipelines.llm.caps import Cap, Caps
from pipelines.llm.client import open_client
from pipelines.llm.prices import Price
from pipelines.llm.settings import Settings

COUNT = 20
SINGLE = 14e-6  # what a question costs that is asked singly: 10 prompt tokens and 2 of the completion


def told(url: str, **batch: object) -> Settings:
    quick = {"poll_s": 0.05, "poll_max_s": 0.1, "settle_s": 0.2}
    priced = {"scripted": Price(prompt=1.0, completion=2.0)}
    return settings(url, backend="batch", batch=BatchSettings(**(quick | batch)), prices=priced)  # type: ignore[arg-type]


def ask(settings: Settings, store: Path) -> list[Answer]:
    with open_client(settings, store) as client:
        return sorted(client.answers(map(question, range(COUNT))), key=lambda a: a.id)


def spent(store: Path) -> float:
    """USD of this month, as the ledger of spending has them."""
    ledger = spending.Spending(spending.ledger_path(store))
    try:
        return ledger.sums(("month", budget.now().strftime("%Y-%m")))[0].nano / 1e9
    finally:
        ledger.close()


def only_batch(store: Path) -> Batch:
    ledger = Ledger(ledger_path(store))
    try:
        (batch,) = ledger.batches(open_only=False)
        return batch
    finally:
        ledger.close()


@pytest.mark.parametrize(
    ("fault", "uncounted"),
    [("html", False), (404, False), ("torn", False), ("cut", False), ("html", True), (404, True)],
)
def test_a_file_that_cannot_be_read_now_is_read_later_and_nothing_is_paid_twice(
    tmp_path: Path, fault: object, uncounted: bool
) -> None:
    script = {"faults": {"content": [fault] * 2}, "uncounted": uncounted}
    with BatchServer(script) as server:
        answers = ask(told(server.url), tmp_path / "s.sqlite")
        assert not server.single() and len(server.events("refused content")) == 2
    assert all(a.ok for a in answers) and len(answers) == COUNT
    assert only_batch(tmp_path / "s.sqlite").done == COUNT
    assert spent(tmp_path / "s.sqlite") == pytest.approx(COUNT * SINGLE / 2)


@pytest.mark.parametrize("fault", ["html", 404])
def test_answers_that_stay_unreadable_are_asked_singly_and_paid_in_full(
    tmp_path: Path, fault: object
) -> None:
    store = tmp_path / "s.sqlite"
    with BatchServer({"faults": {"content": [fault] * 100}}) as server:
        answers = ask(told(server.url), store)
        assert len(server.events("refused content")) == LOOKS_AGAIN + 1
        assert len(server.single()) == COUNT and set(server.single().values()) == {1}
    assert all(a.ok for a in answers)
    assert only_batch(store).said == "20 answers that it counts cannot be read"
    assert spent(store) > 3 * COUNT * SINGLE  # a bound is several times a price


def test_a_cap_sees_the_bill_of_answers_that_were_lost(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    with BatchServer({"faults": {"content": ["html"] * 100}}) as server:
        free = told(server.url)
        ask(free, store)
        bound = (spent(store) - COUNT * SINGLE) / COUNT
    store = tmp_path / "capped.sqlite"
    with BatchServer({"faults": {"content": ["html"] * 100}}) as server:
        capped = replace(told(server.url), caps=Caps(month=Cap(usd=bound * COUNT * 1.2)))
        answers = ask(capped, store)
        assert len(server.batched()) == COUNT and len(server.single()) < COUNT / 2
    assert {a.failure for a in answers} == {None, Failure.OVER_BUDGET}
    assert spent(store) <= bound * COUNT * 1.2


def test_without_a_rest_the_lost_rows_fail_and_their_bill_is_kept(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    with BatchServer({"faults": {"content": ["html"] * 100}}) as server:
        answers = ask(told(server.url, rest="fail"), store)
    assert {a.failure for a in answers} == {Failure.BROKEN_BODY}
    assert "20 answers that it counts cannot be read" in answers[0].detail
    assert spent(store) > 2 * COUNT * SINGLE


@pytest.mark.parametrize("fault", ["garbage", "hollow"])
def test_of_a_file_with_bad_lines_only_those_are_asked_again_and_paid_in_full(
    tmp_path: Path, fault: str
) -> None:
    store = tmp_path / "s.sqlite"
    with BatchServer({"lines": dict.fromkeys("01234567", fault)}) as server:
        answers = ask(told(server.url), store)
        bad = {a.id for a in answers if a.id[0] in "01234567"}
        assert set(server.single()) == bad and 0 < len(bad) < COUNT
    assert all(a.ok for a in answers)
    paid = (COUNT - len(bad)) * SINGLE / 2 + len(bad) * SINGLE
    assert spent(store) > paid + 2 * len(bad) * SINGLE  # the bounds of what came to nothing


def test_what_a_batch_never_answered_is_not_paid_for(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    with BatchServer({"ends": ["expired"]}) as server:
        ask(told(server.url), store)
    assert spent(store) == pytest.approx(COUNT / 2 * SINGLE / 2 + COUNT / 2 * SINGLE)


def test_a_file_that_is_refused_for_long_ends_the_run_and_the_batch_is_found_later(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    with BatchServer({"faults": {"content": [500] * 8}}) as server:
        impatient = replace(told(server.url), patience_s=0.3)
        with pytest.raises(EnvironmentFault, match="recorded"):
            ask(impatient, store)
        assert all(a.ok for a in ask(told(server.url), store)) and not server.single()


def test_a_file_that_is_too_large_for_the_endpoint_names_the_limits_to_lower(tmp_path: Path) -> None:
    with (
        BatchServer({"limits": {"requests": 7}}) as server,
        pytest.raises(ConfigError, match="413") as caught,
    ):
        ask(told(server.url), tmp_path / "s.sqlite")
    assert "llm.batch.max_requests" in str(caught.value) and "llm.batch.max_mb" in str(caught.value)
    assert "llm.model" not in str(caught.value)
