"""Language of a text and the numbers in it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.data.language import (
    DETECTORS,
    NEUTRAL,
    OTHER,
    Detector,
    added_numbers,
    identify,
    lost_numbers,
    numbers,
    strip_maths,
    written_in,
)
from pipelines.errors import ConfigError

ALL = ("en", "fr", "ja", "ko", "pt", "th")


def found(text: str, language: str, *, words: bool = False) -> list[Decimal]:
    return sorted(numbers(text, language, words=words).elements())


def values(*texts: str) -> list[Decimal]:
    return sorted(map(Decimal, texts))


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("au prix de 80 000 $ et 50 000 $", "fr", ["80000", "50000"]),
        ("80\u202f000 euros", "fr", ["80000"]),
        ("custa 80.000 reais e 2,50", "pt", ["80000", "2.5"]),
        ("$80,000 and $2.50", "en", ["80000", "2.5"]),
        ("80,000 บาท", "th", ["80000"]),
        ("80,000", "fr", ["80"]),  # read as French reads it
        ("1,500,000", "fr", ["1500000"]),  # two separators group in every language
        ("2.5 kg", "fr", ["2.5"]),  # a point that cannot group
        ("2,5", "en", ["2", "5"]),
        ("১২৩ টাকা", "bn", ["123"]),
        ("١٢٣", "ar", ["123"]),
        ("１，２００．５円", "ja", ["1200.5"]),
        ("8万円", "ja", ["80000"]),
        ("3 millions de francs", "fr", ["3000000"]),
        ("chaque pneu coûte 25 cents", "fr", ["25"]),
        (r"20{,}000 and 6\,000\,000 and 10,\!080", "en", ["20000", "6000000", "10080"]),
        ("$.50", "en", ["0.5"]),
        ("from 10:30 on", "en", ["10", "30"]),
        ("10-5", "en", ["10", "5"]),
        ("in 2020 300 people", "fr", ["2020", "300"]),
        ("none", "en", []),
    ],
)
def test_numbers_are_read_as_their_language_writes_them(
    text: str, language: str, expected: list[str]
) -> None:
    assert found(text, language) == values(*expected)


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("twenty-five and three dozen", "en", ["25", "3", "12"]),
        ("two hundred", "en", ["200"]),
        ("soixante et onze, quatre-vingt-dix-sept", "fr", ["71", "97"]),
        ("vinte e cinco, duas dúzias", "pt", ["25", "2", "12"]),
        ("二十五個と三つ", "ja", ["25", "3"]),
        ("세 개와 스물다섯, 이십오", "ko", ["3", "25", "25"]),
        ("สี่สิบเอ็ด และ ยี่สิบสาม", "th", ["41", "23"]),
    ],
)
def test_small_numbers_in_words_are_found(text: str, language: str, expected: list[str]) -> None:
    assert found(text, language, words=True) == values(*expected)


def test_words_inside_other_words_are_no_numbers() -> None:
    assert found("someone weighs the stone; often", "en", words=True) == []
    assert found("sixième onzième", "fr", words=True) == []


_GROUPED = {"en": (",", "."), "ja": (",", "."), "ko": (",", "."), "th": (",", ".")}
_GROUPED |= {"fr": (" ", ","), "pt": (".", ","), "es": (".", ","), "de": (".", ",")}
_DIGITS = {"en": "0123456789", "ja": "０１２３４５６７８９", "th": "๐๑๒๓๔๕๖๗๘๙", "bn": "০১২৩৪৫৬৭৮৯"}


@given(
    st.sampled_from(sorted(_GROUPED)),
    st.integers(0, 10**12),
    st.integers(0, 99),
    st.booleans(),
    st.sampled_from(sorted(_DIGITS)),
)
def test_a_formatted_number_comes_back_in_each_language_and_script(
    language: str, whole: int, cents: int, pointed: bool, script: str
) -> None:
    group, point = _GROUPED[language]
    text = f"{whole:,}".replace(",", group) + (f"{point}{cents:02}" if pointed else "")
    text = text.translate(str.maketrans("0123456789", _DIGITS[script]))
    assert found(f"( {text} )", language) == [whole + (Decimal(cents) / 100 if pointed else 0)]


@given(st.text())
def test_any_text_has_a_language_and_numbers_without_error(text: str) -> None:
    for language in ALL:
        assert lost_numbers(text, text, "en") == []
        numbers(text, language, words=True)
    assert isinstance(strip_maths(text), str)


def test_a_lost_number_is_named_as_often_as_it_is_lost() -> None:
    english = "Tom has 3 boxes of 3 pens and a dozen caps. He is the 1st of 1,200 and one more."
    assert lost_numbers(english, "Tom a 3 boîtes de 3 stylos, 12 bouchons. Un de 1 200", "fr") == []
    assert lost_numbers(english, "Tom a trois boîtes, une douzaine, 1 200", "fr") == [3]
    assert lost_numbers(english, "Tom tem 3 caixas de três, 1,200 e dúzia", "pt") == [1200]


def test_an_added_number_is_one_that_the_english_has_in_no_form() -> None:
    assert added_numbers("three cats and 2 dogs", "3 chats, 2 chiens", "fr") == []
    assert added_numbers("three cats", "3 chats, 15 chiens", "fr") == [15]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("costs $5 and then $6 more", "costs and then more"),
        (r"so $x+1$ and \(y\) and \[z\] hold", "so and and hold"),
        ("x = 5 is it", "is it"),
        (r"réponse \boxed{\frac{1}{2}}.", "réponse ."),
        ("2 <<1+1=2>> pommes", "pommes"),
        (r"\begin{align}a&=b\end{align} fin", "fin"),
    ],
)
def test_mathematics_is_taken_out_and_money_is_no_formula(text: str, left: str) -> None:
    assert strip_maths(text) == left


ONE_LINERS = {
    "fr": r"La réponse est \boxed{42}.",
    "pt": r"A resposta é \boxed{42}.",
    "ja": r"答えは \boxed{42} です。",
    "ko": r"답은 \boxed{42} 입니다.",
    "th": r"คำตอบคือ \boxed{42}",
}


@pytest.mark.parametrize("detector", DETECTORS)
@pytest.mark.parametrize("language", sorted(ONE_LINERS))
def test_a_one_line_answer_is_in_its_language_once_mathematics_is_out(
    language: str, detector: Detector
) -> None:
    answers = {identify(ONE_LINERS[language], ALL, detector=detector) for _ in range(20)}
    assert answers == {language}  # T7: right in 20 of 20, also by the detector that draws at random


@pytest.mark.parametrize("detector", DETECTORS)
@pytest.mark.parametrize("text", [r"\boxed{42}", "42", "x = 5", "$a+b$", "", "12 + 3 = 15 m"])
def test_mathematics_alone_has_no_language(text: str, detector: Detector) -> None:
    assert identify(text, ALL, detector=detector) == NEUTRAL


def test_script_decides_before_statistics() -> None:
    assert identify("ABC社は東京にあります", ("en", "ja")) == "ja"
    assert identify("Сколько яблок у Тома?", ALL) == OTHER
    assert identify("多少个苹果一共", ("en", "ja")) == OTHER  # Han without kana is not Japanese
    assert identify("多少个苹果一共", ("en", "ja", "zh")) == "zh"
    assert identify("Combien de pommes ?", ("ja", "th")) == OTHER


def test_letters_of_a_foreign_script_are_seen() -> None:
    assert written_in("Tom a 3 pommes", "fr")
    assert not written_in("Tom a 3 りんご", "fr")
    assert written_in("トムはABCの本を3冊", "ja")
    assert not written_in("トムは 사과 3", "ja")


def test_an_unknown_language_is_an_error_with_the_nearest_known() -> None:
    with pytest.raises(ConfigError, match="cannot identify language 'xx'"):
        identify("a text of some length", ("en", "xx"))


@pytest.mark.parametrize("language", ["fr", "th", "es", "de", "zh"])
@pytest.mark.real
def test_people_s_translations_are_told_by_language(real_data: Path, language: str) -> None:
    rows = (real_data / "mgsm" / f"mgsm_{language}.tsv").read_text(encoding="utf-8").split("\n")
    questions = [row.split("\t")[0] for row in rows if row]
    candidates = ("en", "fr", "es", "de", "pt", "th", "zh")
    assert {identify(q, candidates) for q in questions} == {language}


@pytest.mark.parametrize(("language", "most"), [("fr", 13), ("th", 7)])
@pytest.mark.real
def test_few_translations_of_people_seem_to_lose_numbers(real_data: Path, language: str, most: int) -> None:
    """What is left are times of day told in another way (5 PM, 17 h), and one real fault of the set."""

    def questions(code: str) -> list[str]:
        text = (real_data / "mgsm" / f"mgsm_{code}.tsv").read_text(encoding="utf-8")
        return [row.split("\t")[0] for row in text.split("\n") if row]

    pairs = list(zip(questions("en"), questions(language), strict=True))
    lossy = [e for e, t in pairs if lost_numbers(e, t, language)]
    assert len(pairs) == 250 and len(lossy) <= most
    if language == "fr":  # the French lost its 8: "Elle a gagné _ fois plus"
        assert any(e.startswith("A football team played 22 games.") for e in lossy)
