"""Training questions from templates: as many as wanted, none that is in test or train."""

from __future__ import annotations

from collections import Counter

import pytest

from pipelines.data.duplicates import question_key
from pipelines.errors import ConfigError
from pipelines.training.drawn import Templates, drawn, is_drawn

LANGUAGES = ("en", "fr", "zh")


def test_each_rate_is_drawn_as_often_as_wanted_in_so_many_languages() -> None:
    rows = drawn(Templates(never=12, slow=5, fast=7, wordings=2), LANGUAGES, [], [], 7)
    labels = {w.question_id: w.evergreen for w in rows}
    assert Counter(labels.values()) == {True: 12, False: 12}
    assert set(Counter(w.question_id for w in rows).values()) == {2}
    assert {w.language for w in rows} == set(LANGUAGES)
    assert all(is_drawn(w.question_id) and w.source == "template" for w in rows)
    assert [w.row_id for w in rows] == sorted({w.row_id for w in rows})


def test_the_seed_and_the_languages_decide_and_not_their_order() -> None:
    recipe = Templates(never=6, fast=6, wordings=0)
    assert drawn(recipe, LANGUAGES, [], [], 7) == drawn(recipe, frozenset(LANGUAGES), [], [], 7)
    assert drawn(recipe, LANGUAGES, [], [], 7) != drawn(recipe, LANGUAGES, [], [], 8)


def test_a_question_of_test_or_train_is_not_drawn() -> None:
    recipe = Templates(never=6, fast=6, wordings=0)
    first = drawn(recipe, LANGUAGES, [], [], 7)
    test, train = first[0].question.upper() + " !", first[-1].question
    again = drawn(recipe, LANGUAGES, [test], [train], 7)
    keys = {question_key(w.question) for w in again}
    assert keys.isdisjoint({question_key(test), question_key(train)})
    assert len({w.question_id for w in again}) == 12


def test_a_language_without_templates_is_left_out() -> None:
    assert {w.language for w in drawn(Templates(never=3), ("en", "xx"), [], [], 7)} == {"en"}


def test_nothing_wanted_reads_no_template() -> None:
    assert drawn(Templates(), ("xx",), [], [], 7) == []


def test_more_than_the_templates_give_is_refused() -> None:
    with pytest.raises(ConfigError, match="are wanted"):
        drawn(Templates(never=10**6), ("en",), [], [], 7)
