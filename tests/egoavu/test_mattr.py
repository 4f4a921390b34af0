"""MATTR is exact, linear in its text, and says nothing that the plain definition does not."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.egoavu.mattr import mattr, tokens


def naive(words: list[str], window: int) -> Fraction:
    """The definition, O(n w)."""
    w = min(window, len(words))
    spans = [words[i : i + w] for i in range(len(words) - w + 1)]
    return sum((Fraction(len(set(s)), w) for s in spans), Fraction(0)) / len(spans)


@pytest.mark.parametrize(
    ("text", "window", "score"),
    [
        ("a b a c", 2, Fraction(1)),
        ("a b a b a b", 3, Fraction(2, 3)),
        ("a a a a a", 2, Fraction(1, 2)),
        ("cut knife chop cut board chop knife sizzle pan sizzle", 4, Fraction(25, 28)),
        ("the the cut", 200, Fraction(2, 3)),
    ],
)
def test_it_gives_the_worked_numbers(text: str, window: int, score: Fraction) -> None:
    assert mattr(tokens(text), window) == score


def test_the_fourth_worked_number_in_decimals() -> None:
    words = tokens("cut knife chop cut board chop knife sizzle pan sizzle")
    assert round(float(mattr(words, 4)), 7) == 0.8928571


def test_a_cycle_of_60_words_scores_exactly_three_tenths() -> None:
    words = [f"w{i % 60}" for i in range(600)]
    assert mattr(words, 200) == Fraction(3, 10)
    assert not mattr(words, 200) > Fraction("0.3")  # the paper keeps what exceeds 0.3
    assert mattr([f"w{i % 61}" for i in range(600)], 200) > Fraction("0.3")


def test_no_words_score_nothing_and_a_window_of_none_is_refused() -> None:
    assert mattr([], 200) == 0
    with pytest.raises(ValueError, match="at least one word"):
        mattr(["a"], 0)


@given(st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=60), st.integers(1, 70))
def test_it_equals_the_plain_definition(words: list[str], window: int) -> None:
    assert mattr(words, window) == naive(words, window)


def test_words_are_folded_and_keep_inner_hyphens_and_apostrophes() -> None:
    assert tokens("Pick-up the CHEF'S knife, 2x!") == ["pick-up", "the", "chef's", "knife", "2x"]
    assert tokens("ﬁn café") == tokens("ﬁn cafe\u0301")
