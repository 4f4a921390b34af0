"""Worse than the champion: paired, on the same rows, beyond what chance gives."""

from __future__ import annotations

import json

import pytest

from pipelines.errors import StageError
from pipelines.evaluation.promotion import Verdict, judged

LABELS = [i % 4 != 0 for i in range(60)]


def verdicts(wrong: set[int]) -> list[Verdict]:
    return [
        (f"q{i:02}", language, y, y != (i in wrong))
        for i, y in enumerate(LABELS)
        for language in ("en", "fr")
    ]


def worse(ours: set[int], theirs: set[int]) -> bool:
    return judged(verdicts(ours), 500, 0.95, 7).worse(judged(verdicts(theirs), 500, 0.95, 7).text)


def test_equal_verdicts_are_not_worse() -> None:
    assert not worse({1, 2}, {1, 2})


def test_fewer_mistakes_are_not_worse_and_many_more_are() -> None:
    assert not worse({1}, {1, 2, 3, 5, 6, 7, 9, 10})
    assert worse({1, 2, 3, 5, 6, 7, 9, 10}, {1})


def test_one_mistake_more_is_within_chance() -> None:
    assert not worse({1, 2, 3}, {1, 2})


def test_the_order_of_rows_changes_no_byte_and_the_text_is_json() -> None:
    one, other = (judged(rows, 10, 0.95, 7).text for rows in (verdicts({1}), verdicts({1})[::-1]))
    assert one == other
    assert json.loads(one)[2] == ["q01", "en", 1, 0]


def test_other_labels_are_not_compared() -> None:
    turned = [(q, x, not y, p) for q, x, y, p in verdicts(set())]
    with pytest.raises(StageError, match="on other rows or labels"):
        judged(turned, 10, 0.95, 7).worse(judged(verdicts(set()), 10, 0.95, 7).text)
