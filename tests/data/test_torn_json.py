"""A damaged JSON document gives all whole records, or is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.data import torn_json
from pipelines.data.record import Torn, fault_of
from pipelines.data.torn_json import Count

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
RECORDS = st.lists(
    st.fixed_dictionaries({"q": TEXT, "a": TEXT, "n": st.lists(TEXT, max_size=2)}), min_size=3, max_size=6
)


def count(value: Any) -> Count:
    """Readable and other records of a list."""
    if not isinstance(value, list):
        return Count(0, 0, 0)
    good = sum(isinstance(v, dict) and not fault_of(v) for v in value)
    return Count(good, 0, len(value) - good)


@settings(deadline=None)
@given(RECORDS)
def test_a_whole_document_is_read_as_json_reads_it(records: list[dict[str, Any]]) -> None:
    assert torn_json.load(json.dumps(records), count) == records


@settings(max_examples=60, deadline=None)
@given(RECORDS, st.data())
def test_a_record_without_its_last_quote_costs_itself(
    records: list[dict[str, Any]], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(records) - 1))
    rows = [json.dumps({k: r[k] for k in "qan"}, ensure_ascii=False) for r in records]
    answer = f'"a": {json.dumps(records[at]["a"], ensure_ascii=False)}'
    rows[at] = rows[at].replace(f'{answer}, "n"', f'{answer[:-1]}, "n"')
    found = torn_json.load(f"[{', '.join(rows)}]", count)
    assert [v for v in found if not fault_of(v)] == [r for n, r in enumerate(records) if n != at]
    assert len(found) == len(records)


def test_what_was_taken_out_tells_the_fault() -> None:
    found = torn_json.load('[{"q": "a"}, {"q" "b"}, {"q": "c"}]', count)
    assert found[::2] == [{"q": "a"}, {"q": "c"}]
    assert isinstance(found[1], Torn) or fault_of(found[1])
    assert fault_of(found[1]).startswith("not JSON: Expecting ':' delimiter: line 1 column 19")


def test_numbers_that_no_row_can_hold_cost_their_record() -> None:
    found = torn_json.load(
        '[{"n": NaN}, {"n": 1e999}, {"n": ' + "9" * 5000 + '}, {"n": 12345678901234567890}]', count
    )
    assert [fault_of(v) for v in found[:3]] == ["a number is out of range"] * 3
    assert found[3] == {"n": 12345678901234567890}


def test_two_values_of_one_key_cost_their_record() -> None:
    found = torn_json.load('[{"q": "a", "q": "b"}, {"q": "c"}]', count)
    assert fault_of(found[0]) == "the key 'q' stands twice"


@pytest.mark.parametrize(
    "text", ['[{"q": "a"}, {"q": "b', '[{"q": "a"}, {"q": "b"}', "{", "[1, 2", "not JSON at all", ""]
)
def test_a_document_that_is_cut_off_or_none_is_refused(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        torn_json.load(text, count)


def test_a_document_nested_beyond_reading_is_refused() -> None:
    with pytest.raises(RecursionError):
        torn_json.load("[" * 100_000 + "]" * 100_000, count)
