"""Items end once, and the counts add up or the stage fails."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.data.outcomes import Ledger, Outcome, Settled
from pipelines.errors import StageError

NOT_ACCEPTED = [o for o in Outcome if o is not Outcome.ACCEPTED]


def test_an_item_without_an_outcome_is_an_error_that_names_it() -> None:
    ledger = Ledger()
    ledger.plan(["a", "b"])
    ledger.accept("a")
    with pytest.raises(StageError, match="1 of 2 work items have no outcome, first 'b'"):
        ledger.check()


def test_an_item_cannot_end_twice_nor_unplanned_nor_be_planned_twice() -> None:
    ledger = Ledger()
    ledger.plan(["a"])
    ledger.accept("a")
    with pytest.raises(StageError, match="settled twice"):
        ledger.settle(Settled("a", Outcome.REJECTED, "copy"))
    with pytest.raises(StageError, match="never planned"):
        ledger.accept("b")
    with pytest.raises(StageError, match="planned twice"):
        ledger.plan(["a"])


@given(st.dictionaries(st.text(max_size=5), st.sampled_from(list(Outcome)), max_size=30))
def test_outcomes_add_up_to_the_items_whatever_they_are(ends: dict[str, Outcome]) -> None:
    ledger = Ledger()
    ledger.plan(ends)
    for item, outcome in ends.items():
        if outcome is Outcome.ACCEPTED:
            ledger.accept(item)
        else:
            ledger.settle(Settled(item, outcome, "why"))
    ledger.check()
    summary = ledger.summary()
    assert summary["items"] == len(ends) == sum(int(str(summary[str(o)])) for o in Outcome)
    assert len(ledger.rejected) == sum(o in NOT_ACCEPTED for o in ends.values())
