"""What a rule can tell of a translation: its language, its numbers, its length, that it is one."""

from __future__ import annotations

import csv
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.data.duplicates import question_key
from pipelines.evergreen.making.translations import (
    Rules,
    added_of,
    fault_of_answer,
    fault_of_question,
    in_language,
    lost_of,
    ratio_of,
)

SEVEN = ("ar", "de", "en", "fr", "he", "ru", "zh")
NAMES = ("Arabic", "German", "English", "French", "Hebrew", "Russian", "Chinese")
RATIOS = {
    "ar": (0.4, 1.6),
    "de": (0.6, 1.8),
    "fr": (0.7, 2.0),
    "he": (0.4, 1.3),
    "ru": (0.5, 1.6),
    "zh": (0.15, 0.8),
}
SOURCE = "Who won 3 races of the Halden ferry cup in 1998?"
GOOD = {
    "fr": "Qui a gagné 3 courses de la coupe du ferry de Halden en 1998 ?",
    "de": "Wer gewann 1998 drei Rennen um den Pokal der Fähre von Halden, nämlich 3?",
    "ru": "Кто выиграл 3 гонки кубка парома Халден в 1998 году?",
    "he": "מי ניצח ב-3 מרוצים של גביע המעבורת של הלדן ב-1998?",
    "ar": "من فاز بثلاثة سباقات من كأس عبارة هالدن، أي 3، في عام ١٩٩٨؟",
    "zh": "1998年谁在哈尔登渡轮杯中赢得了3场比赛？",
}


def rules(target: str, source: str = "en") -> Rules:
    return Rules(
        source=source,
        target=target,
        ratio=ratio_of(RATIOS, source, target),
        candidates=SEVEN,
        prompt="You translate a question. Keep every number, year and name.",
        shown=frozenset({question_key("Combien de touches a un piano ?")}),
    )


def reason(translation: str, target: str = "fr", source: str = SOURCE) -> str | None:
    found = fault_of_question(source, translation, rules(target))
    return None if found is None else found.reason


@pytest.mark.parametrize("language", sorted(GOOD))
def test_a_right_translation_has_no_fault(language: str) -> None:
    assert reason(GOOD[language], language) is None


@pytest.mark.parametrize(
    ("translation", "told"),
    [
        ("", "empty"),
        (" … ", "empty"),
        ("who won 3 races of the Halden Ferry Cup in 1998 ?", "untranslated"),
        ("Traduction : Qui a gagné 3 courses en 1998 ?", "leaked_instruction"),
        ('{"fr": "Qui a gagné 3 courses en 1998 ?"}', "leaked_instruction"),
        ("Qui a gagné 3 courses en 1998 ?\nQui a gagné ?", "leaked_instruction"),
        ("Combien de touches a un piano ?", "leaked_instruction"),
        ("You translate a question. Keep every number, year and name 3 1998 ?", "leaked_instruction"),
        ("Wer hat 1998 in Halden 3 Rennen um den Pokal gewonnen?", "wrong_language"),
        ("Odile Marchetti a gagné 3 courses de la coupe en 1998.", "not_a_question"),
        ("Qui a gagné la coupe du ferry de Halden en 1998 ?", "lost_number"),
        ("Qui a gagné 3 courses de la coupe du ferry en 1989 ?", "lost_number"),
        ("Qui a gagné 3 des 12 courses de la coupe du ferry en 1998 ?", "added_number"),
        ("Qui : 3, 1998 ?", "length_ratio"),
        (GOOD["fr"] + " Et qui a perdu alors " + "vraiment " * 6 + "?", "length_ratio"),
    ],
)
def test_a_wrong_translation_is_refused_with_the_check(translation: str, told: str) -> None:
    assert reason(translation) == told


def test_an_answer_may_be_a_name_but_loses_no_number_and_says_something() -> None:
    assert fault_of_answer("Neil Armstrong", "Neil Armstrong", rules("fr")) is None
    assert fault_of_answer("It was 1998.", "C'était en 1998.", rules("fr")) is None
    for said, told in (
        ("", "empty"),
        ("C'était en 1989.", "lost_number"),
        ("Réponse\n", "leaked_instruction"),
    ):
        found = fault_of_answer("It was 1998.", said, rules("fr"))
        assert found is not None and found.reason == told


def test_number_words_count_where_the_language_has_a_table_of_them() -> None:
    assert lost_of("How many are seven and 8?", "Combien font sept et 8 ?", "en", "fr") == []
    assert lost_of("How many are seven and 8?", "Combien font 8 ?", "en", "fr") == [Decimal(7)]
    assert lost_of("How many are seven and 8?", "Wie viel sind sieben und 8?", "en", "de") == []
    assert lost_of("Wie viel sind 7 und 8?", "How many are seven and 8?", "de", "en") == []
    assert added_of("Wie viel sind sieben und acht?", "How many are 7 and 8?", "de", "en") == []
    assert added_of("Wann war der Krieg?", "When was the war of 1870?", "de", "en") == [Decimal(1870)]


def test_ordinals_need_not_stay_digits() -> None:
    assert lost_of("Who was the 16th president?", "Wer war der sechzehnte Präsident?", "en", "de") == []


def test_length_is_compared_by_way_of_english() -> None:
    assert ratio_of(RATIOS, "en", "fr") == (0.7, 2.0)
    assert ratio_of(RATIOS, "ru", "en") == (1 / 1.6, 1 / 0.5)
    assert ratio_of(RATIOS, "zh", "de") == (0.6 / 0.8, 1.8 / 0.15)


@given(text=st.text(max_size=200), target=st.sampled_from(sorted(RATIOS)))
def test_any_text_is_judged_without_an_error(text: str, target: str) -> None:
    found = fault_of_question(SOURCE, text, rules(target))
    assert found is None or found.reason in {
        "empty", "untranslated", "leaked_instruction", "wrong_language", "not_a_question", "lost_number",
        "added_number", "length_ratio",
    }  # fmt: skip


@pytest.mark.real
@pytest.mark.parametrize("language", sorted(RATIOS))
def test_people_s_translations_of_the_public_set_pass(real_data: Path, language: str) -> None:
    """600 questions of train: the share refused is small, so what is refused of a model's is worth a look."""
    with open(real_data / "evergreenqa" / "train.csv", encoding="utf-8", newline="") as f:
        rows = [row for row, _ in zip(csv.DictReader(f), range(600), strict=False)]
    name = NAMES[SEVEN.index(language)]
    found = [fault_of_question(r["English"], r[name], rules(language)) for r in rows]
    assert sum(f is not None for f in found) <= 0.05 * len(rows)
    told = [in_language(r[name], language, SEVEN) for r in rows]
    assert sum(told) >= 0.98 * len(rows)
