"""Kin: near wordings in a language, nearest meanings across languages, and what follows from them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.data.duplicates import question_key
from pipelines.evergreen.curating.caps import Held, over_the_cap, template_of
from pipelines.evergreen.curating.curation import Kin, Question, Verdicts, decide, decide_near
from pipelines.evergreen.curating.kinship import apart, kin_by_meaning, kin_by_words


def row(question_id: str, language: str, question: str, split: str = "train") -> dict[str, Any]:
    told = {"question_id": question_id, "language": language, "question": question, "split": split}
    return {**told, "label": "mutable", "question_key": question_key(question), "benchmark": ""}


def test_near_in_one_language_is_kin_and_the_nearest_language_is_told() -> None:
    rows = [
        row("1", "en", "What is the population of Pakistan?"),
        row("2", "en", "Tell me, what is the population of Pakistan?"),
        row("1", "de", "Wie groß ist die Bevölkerung Pakistans?"),
        row("2", "de", "Und wie groß ist die Bevölkerung Pakistans?"),
        row("3", "de", "Wie groß ist die Bevölkerung Albaniens?"),
    ]
    (kin,) = kin_by_words(rows, 0.65)
    assert (kin.a, kin.b, kin.languages) == ("1", "2", "de")
    assert kin_by_words(rows[::-1], 0.65) == [kin]


def test_of_many_equal_questions_one_of_each_split_and_label_is_kin() -> None:
    rows = [row(f"{n:03}", "en", "Who leads Pakistan?", "test") for n in range(300)]
    rows += [row("999", "en", "And who leads Pakistan?")]
    assert [(k.a, k.b) for k in kin_by_words(rows, 0.65)] == [("000", "999")]


def test_one_ideograph_more_may_be_another_word() -> None:
    rows = [row("1", "zh", "谁发明了电？"), row("2", "zh", "是谁发明了电视？")]
    assert kin_by_words(rows, 0.65) == []
    assert (
        len(
            kin_by_words(
                [row("1", "zh", "汽油是由什么制成的？"), row("2", "zh", "那么汽油是由什么制成的？")], 0.65
            )
        )
        == 1
    )


MEANINGS = {"Who?": 0, "Wer?": 0, "Wann 7?": 1, "When 7?": 1, "When ٨?": 1, "Кто?": 0, "Où ?": 2}


def embed(texts: Sequence[str]) -> np.ndarray:
    """A unit vector for each meaning, a little turned by the text."""
    vectors = np.zeros((len(texts), 8))
    for n, text in enumerate(texts):
        vectors[n, MEANINGS[text]] = 1
        vectors[n, 3 + len(text) % 5] = 0.1
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_questions_without_a_common_language_are_kin_by_meaning_and_numbers() -> None:
    rows = [
        row("1", "en", "Who?"),
        row("2", "de", "Wer?"),
        row("3", "de", "Wann 7?"),
        row("4", "en", "When 7?"),
    ]
    found = kin_by_meaning(rows, embed, 0.9)
    assert [(k.a, k.b, k.languages) for k in found] == [("1", "2", "de~en"), ("3", "4", "de~en")]
    assert kin_by_meaning(rows[::-1], embed, 0.9) == found
    other_number = [row("3", "de", "Wann 7?"), row("4", "en", "When ٨?")]
    assert kin_by_meaning(other_number, embed, 0.9) == []


def test_only_what_must_be_compared_is_embedded() -> None:
    asked: list[str] = []

    def count(texts: Sequence[str]) -> np.ndarray:
        asked.extend(texts)
        return embed(texts)

    both = [row("1", "en", "Who?"), row("1", "de", "Wer?"), row("2", "de", "Wann 7?")]
    assert kin_by_meaning(both, count, 0.9) == [] and asked == []
    assert list(apart([*both, row("3", "ru", "Кто?")])) == [("de",), ("de", "en"), ("ru",)]
    (kin,) = kin_by_meaning([*both, row("3", "ru", "Кто?")], count, 0.9)
    assert (kin.a, kin.b) == ("1", "3") and sorted(asked) == ["Wann 7?", "Wer?", "Who?", "Кто?"]


def q(
    name: str, split: str = "train", label: str = "mutable", keys: int = 1, benchmark: str = ""
) -> Question:
    return Question(name, split, label, frozenset(f"en {name}{n}" for n in range(keys)), benchmark)


def near(found: Sequence[Question], *pairs: str) -> Verdicts:
    verdicts = decide(found)
    decide_near(found, [Kin(*sorted(p), 0.8, "en") for p in pairs], verdicts)
    return verdicts


def test_of_a_chain_of_near_questions_only_those_near_one_that_stays_go() -> None:
    found = near([q("a"), q("b", keys=2), q("c"), q("d")], "ab", "bc", "cd")
    assert found.duplicates == {"a": "b", "c": "b"}  # d is near c alone, which went


def test_near_across_splits_and_labels_stays() -> None:
    found = near([q("a"), q("b", "dev"), q("c", "test"), q("d", label="evergreen")], "ab", "ac", "ad")
    assert (found.duplicates, found.leaks_into_test, found.leaks_into_dev) == ({}, {"a"}, {"a"})
    assert [(k.a, k.b) for k in found.doubtful] == [("a", "d")]


def test_near_a_benchmark_only_train_goes() -> None:
    found = near([q("a"), q("b", "dev"), q("c", "pool", "unknown", benchmark="nq")], "ac", "bc")
    assert found.benchmarks == {"a": "c"} and found.near.keys() == {"a"}


NAMES = "abcdef"
PAIRS = st.lists(st.sampled_from([a + b for a in NAMES for b in NAMES if a < b]), unique=True)
SPLIT, LABEL = st.sampled_from(["train", "dev", "test"]), st.sampled_from(["mutable", "unknown"])
FOUND = st.tuples(*[st.builds(q, st.just(n), SPLIT, LABEL) for n in NAMES])


@given(FOUND, PAIRS, st.randoms(use_true_random=False))
def test_no_two_near_questions_of_train_stay_and_order_changes_nothing(
    found: tuple[Question, ...], pairs: list[str], chance: random.Random
) -> None:
    verdicts = near(found, *pairs)
    by_id = {x.id: x for x in found}
    for a, b in pairs:
        alike = by_id[a].split == by_id[b].split == "train" and by_id[a].label == by_id[b].label
        assert not alike or {a, b} & verdicts.gone
    assert all(by_id[i].split == "train" for i in verdicts.gone)
    assert all(kept not in verdicts.gone for kept in verdicts.duplicates.values())
    turned, mixed = list(found), list(pairs)
    chance.shuffle(turned)
    chance.shuffle(mixed)
    assert near(turned, *mixed) == verdicts


AGE = {"age": {"en": ("how old",), "zh": ("多大",)}, "born": {"en": ("born",)}}


@pytest.mark.parametrize(
    ("wordings", "name"),
    [
        ({"en": "Tell me: HOW old is she?"}, "age"),
        ({"en": "How older?"}, ""),
        ({"fr": "How old?", "zh": "她多大了？"}, "age"),
        ({"en": "Where was she born, and how old is she?"}, "age"),
    ],
)
def test_a_template_is_a_run_of_words_in_its_language(wordings: dict[str, str], name: str) -> None:
    assert template_of(wordings, AGE) == name


@given(st.lists(st.sampled_from(["how old", "born", "where"]), max_size=40), st.floats(0, 1))
def test_no_template_is_above_its_share_of_what_stays(forms: list[str], share: float) -> None:
    asked = [Held(str(n), "mutable", {"en": form}) for n, form in enumerate(forms)]
    gone = over_the_cap(asked, AGE, share, 7)
    stay = [form for n, form in enumerate(forms) if str(n) not in gone]
    if share < 1:
        assert all(stay.count(form) <= share * len(stay) + 1e-9 for form in ("how old", "born"))
    assert stay.count("where") == forms.count("where")
