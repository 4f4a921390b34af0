"""When an endpoint is given up, and when a few questions that always fail are not taken for its end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.llm.answer import Failure
from pipelines.llm.outage import GONE_BY, Outage
from pipelines.llm.protocol import Reply
from pipelines.llm.stops import EndpointGone, RefusesAll
from pipelines.llm.store import Kept

ERROR = Reply(Kept("", failure=Failure.SERVER, detail="HTTP 500"))
UNSENT = Reply(Kept("", failure=Failure.NETWORK, detail="no server"), left=False)
REFUSED = Reply(Kept("", failure=Failure.OVERLOADED, detail="HTTP 429: come tomorrow"), throttled=True)
GOOD = Reply(Kept("four"))


@given(st.lists(st.floats(0, 1e6), max_size=50))
def test_questions_that_failed_before_spend_their_retries_and_never_stop_the_run(silent: list[float]) -> None:
    outage = Outage(outage_s=60, patience_s=600)
    assert [outage.probe_failed(ERROR, "u", s, first=False) for s in silent] == [False] * len(silent)


def test_first_attempts_of_several_questions_tell_that_it_is_gone_and_an_answer_that_it_is_not() -> None:
    outage = Outage(outage_s=60, patience_s=600)
    for _ in range(GONE_BY - 1):
        assert outage.probe_failed(ERROR, "u", 61, first=True), "it spends no retry"
    outage.probe_answered()
    for _ in range(GONE_BY - 1):
        assert outage.probe_failed(ERROR, "u", 61, first=True)
    with pytest.raises(EndpointGone, match="nothing for 61 s; at last: HTTP 500"):
        outage.probe_failed(ERROR, "u", 61, first=True)


def test_one_that_cannot_be_reached_is_gone_after_the_outage_and_costs_no_retry() -> None:
    outage = Outage(outage_s=60, patience_s=600)
    assert outage.probe_failed(UNSENT, "u", 60, first=False)
    with pytest.raises(EndpointGone):
        outage.probe_failed(UNSENT, "u", 60.1, first=False)


def test_refusals_alone_for_longer_than_the_patience_stop_the_run() -> None:
    outage = Outage(outage_s=60, patience_s=600)
    for now, reply in ((0, REFUSED), (600, REFUSED), (601, GOOD), (602, REFUSED), (1202, REFUSED)):
        outage.ended(reply, "u", now)
    with pytest.raises(RefusesAll, match="for 601 s; at last: HTTP 429: come tomorrow"):
        outage.ended(REFUSED, "u", 1203)
