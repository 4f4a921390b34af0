"""A short form says nothing that the long answer does not say, as far as a rule can tell."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.evergreen.making.alias_rules import fault, roman, said_numbers, sifted

KING = "The king of the United Kingdom is Charles the Third."
ASKED = "Who is the king of the United Kingdom?"


def reason(alias: str, answer: str, language: str = "en") -> str | None:
    found = fault(alias, ASKED, answer, language, 5)
    return None if found is None else found.reason


@pytest.mark.parametrize(
    ("alias", "answer", "language"),
    [
        ("Charles the Third", KING, "en"),
        ("King Charles", KING, "en"),
        ("U.K.", "It is the United Kingdom.", "en"),
        ("USA", "the United States of America", "en"),
        ("Louis XIV", "It was Louis 14 of France.", "en"),
        ("Louis 14", "It was Louis XIV of France.", "en"),
        ("330 m", "The tower is 330 metres tall.", "en"),
        ("seven", "There are 7 of them.", "en"),
        ("7", "There are seven of them.", "en"),
        ("1,440", "1440 minutes", "en"),
        ("Dostoevsky", "Fyodor Dostoyevsky wrote it.", "en"),
        ("Goethe", "Es war Johann Wolfgang von Goethe.", "de"),
        ("Leonard de Vinci", "Léonard de Vinci l'a peinte.", "fr"),
        ("查理三世", "英国国王是查理三世。", "zh"),
        ("three hundred metres", "It is 300 metres tall.", "en"),
        ("300000 km/s", "The speed of light is 300,000 kilometres per second.", "en"),
    ],
)
def test_other_spellings_of_what_the_answer_says_stand(alias: str, answer: str, language: str) -> None:
    assert reason(alias, answer, language) is None


@pytest.mark.parametrize(
    ("alias", "answer", "told"),
    [
        ("", KING, "empty"),
        ("...", KING, "empty"),
        ("Who is it?", KING, "no_answer"),
        ("Answer: Charles", KING, "no_answer"),
        ("Charles the Third of the United Kingdom", KING, "too_long"),
        ("Charles in 2022", KING, "added_number"),
        ("Charles III", "The king is Charles.", "added_number"),
        ("1870", "The canal was opened in 1869.", "added_number"),
        ("Elizabeth", KING, "not_said"),
        ("Holland", "It is the Netherlands.", "not_said"),
        ("Charles of Wales", KING, "not_said"),
        ("the United Kingdom reign", KING, "not_said"),
    ],
)
def test_what_the_answer_does_not_say_is_refused_with_the_rule(alias: str, answer: str, told: str) -> None:
    assert reason(alias, answer) == told


def test_words_of_the_question_may_stand_beside_one_of_the_answer_s_own() -> None:
    asked = "Which chess club of Oslo has the most women's titles?"
    said = {
        a: fault(a, asked, "It is Vincenzo.", "en", 5) for a in ("Vincenzo chess club", "Oslo chess club")
    }
    assert said["Vincenzo chess club"] is None
    assert said["Oslo chess club"] is not None and said["Oslo chess club"].reason == "not_said"


def test_forms_that_are_equal_are_one_and_the_rest_is_refused() -> None:
    told = ["1869", "1869.", " 1869 ", "in 1869", "1870", "year 1869"]
    kept, refused = sifted(told, ASKED, "The canal was opened in the year 1869.", "en", longest=5, most=2)
    assert kept == ["1869", "in 1869"]
    assert [(t, f.reason) for t, f in refused] == [
        ("1869.", "repeats"),
        ("1869", "repeats"),
        ("1870", "added_number"),
        ("year 1869", "too_many"),
    ]


@pytest.mark.parametrize(
    ("word", "value"),
    [("III", 3), ("XIV", 14), ("V", 5), ("MMXXVI", 2026), ("I", 0), ("IIII", 0), ("Civic", 0), ("CD", 400)],
)
def test_roman_numerals_are_read_and_other_words_are_none(word: str, value: int) -> None:
    assert roman(word) == value


@given(n=st.integers(2, 3999))
def test_every_roman_numeral_is_the_number_that_it_writes(n: int) -> None:
    parts = [(1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC")]
    parts += [(50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]
    left, word = n, ""
    for value, letters in parts:
        word += letters * (left // value)
        left %= value
    assert roman(word) == (0 if word in ("L", "C", "D", "M") else n)


def test_numbers_of_a_text_are_its_digits_words_and_roman_numerals() -> None:
    assert said_numbers("Louis XIV had 2 or three", "en") == {Decimal(14), Decimal(2), Decimal(3)}


@given(told=st.lists(st.text(max_size=30), max_size=8), most=st.integers(1, 6))
def test_every_form_ends_kept_or_refused_and_none_twice(told: list[str], most: int) -> None:
    kept, refused = sifted(told, ASKED, KING, "en", longest=5, most=most)
    assert len(kept) + len(refused) == len(told) and len(kept) <= most
    assert len(set(kept)) == len(kept)
