"""Near duplicates are those that counting every pair finds, whatever the order, however many look alike."""

from __future__ import annotations

import itertools
import random
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.data import near
from pipelines.data.duplicates import question_key
from pipelines.data.near import Pair, pairs, same_words, words
from pipelines.data.shingles import shingles

LETTERS = st.text(alphabet="abcdeé 1?人是", max_size=14)


def similarity(a: str, b: str, width: int = 3) -> float:
    """Jaccard of the sets of character shingles, by their definition."""
    sets = []
    for text in (a, b):
        key = question_key(text)
        sets.append({key[i : i + width] for i in range(max(1, len(key) - width + 1))})
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def brute(texts: list[str], threshold: float, width: int = 3) -> set[tuple[int, int]]:
    """The near pairs of distinct texts by looking at each pair."""
    return {
        (i, j)
        for (i, a), (j, b) in itertools.combinations(enumerate(texts), 2)
        if question_key(a) and question_key(b)
        if similarity(a, b, width) >= threshold and same_words(a, b)
    }


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("How many people are there in the world?", "How many peoples are there in the world?"),
        ("What is the population of Pakistan?", "Tell me, what is the population of Pakistan?"),
        ("When did the Civil War begin in Russia?", "When did the civil war in Russia begin"),
        ("What is the captial of France?", "What is the capital of France?"),
        ("Кто президент Казахстана?", "Кто сейчас президент Казахстан?"),
        ("谁是英国的国王？", "那么，谁是英国的国王？"),
    ],
)
def test_added_moved_inflected_and_misspelt_words_are_the_same_words(a: str, b: str) -> None:
    assert same_words(a, b) and same_words(b, a)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("What is the population of Peru?", "What is the population of Chad?"),
        ("Which element has the symbol N?", "Which element has the symbol Zn?"),
        ("Who won the World Cup in 2018?", "Who won the World Cup in 2022?"),
        ("Who won the World Cup?", "Who won the World Cup in 2022?"),
        ("What is the capital of Gambia?", "What is the capital of Zambia?"),
        ("Where is Iran?", "Where is Iraq?"),
        ("哪一颗行星离太阳最近？", "哪一颗行星离太阳最远？"),
    ],
)
def test_a_word_in_the_place_of_another_makes_another_question(a: str, b: str) -> None:
    assert not same_words(a, b) and not same_words(b, a)


def test_words_are_parted_by_blanks_and_punctuation_and_ideographs_stand_alone() -> None:
    assert words("How OLD is «O'Neil», 2?") == ["how", "old", "is", "o", "neil", "2"]
    assert words("ＧＤＰ最高") == ["gdp", "最", "高"]
    assert words("कि क्या") == [unicodedata.normalize("NFKC", w) for w in ("कि", "क्या")]


@given(LETTERS, LETTERS, LETTERS)
def test_the_shingles_of_a_text_do_not_depend_on_the_others(text: str, a: str, b: str) -> None:
    key = question_key(text)
    for language in ("en", "zh"):
        told = []
        for texts in ([text], [a, text, b], [text, b, a]):
            found, _ = shingles(texts, language)
            told.append(found.of(list(found.keys).index(key)) if key in found.keys else None)
        assert told[0] == told[1] == told[2]


@given(LETTERS, LETTERS)
def test_word_bits_never_rule_out_texts_with_the_same_words(a: str, b: str) -> None:
    found, _ = shingles([a, b], "en")
    if len(found) == 2 and same_words(a, b):
        pair = (np.array([0]), np.array([1]))
        assert found.may_share_words(*pair, look=0)[0] and found.may_share_words(*pair, look=1)[0]


@given(st.lists(LETTERS, max_size=12, unique_by=question_key))
@settings(max_examples=100)
def test_few_texts_give_what_looking_at_each_pair_gives(texts: list[str]) -> None:
    found = {(p.first, p.second): p.similarity for p in pairs(texts, threshold=0.8)}
    assert set(found) == brute(texts, 0.8)
    for (i, j), told in found.items():
        assert told == pytest.approx(similarity(texts[i], texts[j]), abs=1e-6)


@given(st.lists(LETTERS, max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_texts_changes_nothing(texts: list[str], chance: random.Random) -> None:
    turned = list(range(len(texts)))
    chance.shuffle(turned)
    once = groups(texts, pairs(texts))
    assert groups(texts, pairs([texts[i] for i in turned]), turned) == once


def groups(texts: list[str], found: list[Pair], at: list[int] | None = None) -> set[tuple[str, str, float]]:
    """Pairs by their keys, without those of equal ones, of which the first in order stands for all."""
    at = list(range(len(texts))) if at is None else at
    return {
        (*sorted((question_key(texts[at[p.first]]), question_key(texts[at[p.second]]))), p.similarity)
        for p in found
        if p.similarity < 1
    }


def test_equal_texts_pair_with_the_first_alone() -> None:
    texts = ["Where is Oslo?", "where  is oslo", "Why?", "WHERE IS OSLO?!", "???", ""]
    assert pairs(texts) == [Pair(0, 1, 1.0), Pair(0, 3, 1.0)]


def test_none_and_one_have_no_pairs() -> None:
    assert pairs([]) == pairs(["Where?"]) == pairs(["", "?"]) == []


def test_ideographs_are_compared_two_by_two() -> None:
    texts = ["谁是英国的国王？", "那么，谁是英国的国王？"]
    assert similarity(*texts, width=2) == 0.75
    assert pairs(texts, language="zh") == [Pair(0, 1, 0.75)]


def crowd(count: int) -> list[str]:
    """Questions on so many places, all alike but for the place."""
    chance = random.Random(3)
    syllables = [a + b for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "u")]
    places = {"".join(chance.choices(syllables, k=4)).capitalize() for _ in range(count)}
    return [f"Who is the person at the head of the government of {p}?" for p in sorted(places)]


def test_the_pairs_of_a_crowd_that_looks_alike_are_found() -> None:
    texts = crowd(400)
    chance = random.Random(5)
    planted = chance.sample(range(len(texts)), 40)
    added = [f"Tell me, {texts[i][0].lower()}{texts[i][1:]}" for i in planted[:20]]
    added += [f"{texts[i][:-1]} today?" for i in planted[20:]]
    found = {(p.first, p.second) for p in pairs([*texts, *added])}
    wanted = {(i, len(texts) + n) for n, i in enumerate(planted)}
    assert len(wanted & found) >= 39
    assert all(same_words([*texts, *added][i], [*texts, *added][j]) for i, j in found)


@pytest.mark.parametrize("size", [500, 1000, 2000])
def test_of_any_crowd_a_text_meets_so_many_others_and_no_more(size: int) -> None:
    """So the time grows with the number of texts and not with its square."""
    alike = near._together(
        np.zeros(size, dtype=np.uint32),
        lambda: (np.arange(size, dtype=np.uint64)[::-1], np.arange(size)[::-1]),
    )
    met = sum(len(first) for first, _ in alike)
    assert near.CROWD * (size - near.CROWD) <= met <= 2 * near.CROWD * size


def test_hashes_agree_as_often_as_sets_share_members() -> None:
    texts = crowd(60)
    found, _ = shingles(texts, "en")
    signature = found.minhash(400)
    for i, j in itertools.combinations(range(0, 60, 7), 2):
        share = float((signature[:, i] == signature[:, j]).mean())
        assert share == pytest.approx(similarity(found.keys[i], found.keys[j]), abs=0.1)
