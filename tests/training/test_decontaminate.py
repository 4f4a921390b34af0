"""Which train questions go because of test."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.training.decontaminate import Wording, equal_leaks, near_leaks


def wording(question_id: str, language: str, text: str) -> Wording:
    return Wording(f"{question_id}/{language}", question_id, language, text, True, "real")


TEST = [
    wording("t1", "en", "How many moons does Mars have?"),
    wording("t1", "fr", "Combien de lunes Mars a-t-elle ?"),
    wording("t2", "en", "Who wrote Hamlet?"),
    wording("t2", "fr", "Qui a écrit Hamlet ?"),
]


def test_equality_in_french_alone_names_the_whole_question() -> None:
    train = [
        wording("a", "en", "What is the number of the moons of Mars?"),
        wording("a", "fr", "combien de lunes mars a t elle"),
        wording("b", "en", "What is the capital of Chad?"),
        wording("b", "fr", "Quelle est la capitale du Tchad ?"),
    ]
    leaks = equal_leaks(train, TEST)
    assert set(leaks) == {"a"}
    assert (leaks["a"].train.row_id, leaks["a"].test.row_id) == ("a/fr", "t1/fr")


def test_equality_looks_past_case_punctuation_blanks_width_and_composition() -> None:
    train = [
        wording("a", "en", "WHO  WROTE “HAMLET”"),
        wording("b", "en", "Ｗｈｏ ｗｒｏｔｅ Ｈａｍｌｅｔ？"),
        wording("c", "fr", "Qui a e\u0301crit Hamlet?"),
        wording("d", "en", "Who wrote Hamlet 2?"),
    ]
    assert set(equal_leaks(train, TEST)) == {"a", "b", "c"}


def test_equality_holds_across_languages() -> None:
    assert set(equal_leaks([wording("a", "de", "Who wrote Hamlet?")], TEST)) == {"a"}


def test_texts_without_words_equal_nothing() -> None:
    assert equal_leaks([wording("a", "en", "???")], [wording("t", "en", "!")]) == {}


def unit(degrees: float) -> list[float]:
    return [float(np.cos(np.radians(degrees))), float(np.sin(np.radians(degrees)))]


def test_nearness_counts_within_a_language_only() -> None:
    train = [wording("a", "en", "x"), wording("b", "fr", "y"), wording("c", "en", "z")]
    vectors = np.array([unit(0), unit(90), unit(40)])
    test = [TEST[0], TEST[1]]  # en at 10 degrees, fr at 0 degrees
    leaks = near_leaks(train, vectors, test, np.array([unit(10), unit(0)]), 0.95)
    assert set(leaks) == {"a"}  # 10 degrees apart; "a" and fr's are equal but of two languages
    assert abs(leaks["a"].cosine - np.cos(np.radians(10))) < 1e-9


def test_the_bound_itself_is_near() -> None:
    train, vector = [wording("a", "en", "x")], np.array([[1.0, 0.0]])
    assert set(near_leaks(train, vector, TEST[:1], np.array([[0.95, 0.3]]), 0.95)) == {"a"}
    assert near_leaks(train, vector, TEST[:1], np.array([[0.9499, 0.3]]), 0.95) == {}


@settings(deadline=None)
@given(st.permutations(range(12)), st.integers(0, 2**32 - 1))
def test_the_order_of_train_rows_changes_nothing(order: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    train = [wording(f"q{i // 2}", ("en", "fr")[i % 2], f"text {i}") for i in range(12)]
    vectors = rng.normal(size=(12, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    test_vectors = rng.normal(size=(4, 3))
    test_vectors /= np.linalg.norm(test_vectors, axis=1, keepdims=True)
    straight = near_leaks(train, vectors, TEST, test_vectors, 0.8)
    mixed = near_leaks([train[i] for i in order], vectors[list(order)], TEST, test_vectors, 0.8)
    assert {k: (v.train.row_id, v.test.row_id) for k, v in straight.items()} == {
        k: (v.train.row_id, v.test.row_id) for k, v in mixed.items()
    }
