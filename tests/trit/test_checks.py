"""The free checks of a translation."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.trit.checks import Rules, fault, folded, shots_of
from pipelines.trit.prompting import ENGLISH, LABELS, item_of, parse_item, prompt_of

ENGLISH_TEXT = "Tom has 3 apples. Tom buys 1,200 more. How many apples does Tom have?"
SHOT = "Il y a 1 200 sacs de 3 balles."
FRENCH = Rules("fr", ("en", "fr", "pt"), 6, 0.6, 2.0, "French:", (SHOT,))


@pytest.mark.parametrize(
    ("translation", "reason"),
    [
        ("  ", "empty"),
        ("Tom a 3 pommes. Tom en achète plus. Combien de pommes a Tom ?", "numbers_lost"),
        ("Tom a 3 pommes, il en achète 1,200. Combien de pommes a Tom ?", "numbers_lost"),  # 1.2 in French
        ("Tom a 3 pommes, 1 200 poires et 7 noix. Combien de pommes a Tom ?", "numbers_added"),
        ("Tom a 3 リンゴ. Il en achète 1 200. Combien de pommes a Tom ?", "script"),
        (ENGLISH_TEXT.replace("1,200", "1 200"), "copy"),
        ("Tom has 3 apples. Tom en achète 1 200. Combien de pommes a Tom ?", "copy"),
        ("French: Tom a 3 pommes, il en achète 1 200. Combien de pommes ?", "leaked_prompt"),
        ("Tom a 3 pommes, il en achète 1 200.</Translation> Combien ?", "leaked_prompt"),
        (SHOT + " Combien de balles y a-t-il dans les sacs ?", "leaked_prompt"),
        ("Tom owns 3 fruits and gets 1 200 of them later on. What is the total?", "language"),
        ("Tom tem 3 maçãs e compra mais 1 200. Quantas maçãs ele tem agora?", "language"),
        ("Tom : 3 et 1 200 pommes", "length_ratio"),
        ("Tom a 3 pommes et 1 200 autres. " + "Combien de pommes a-t-il donc ? " * 4, "length_ratio"),
    ],
)
def test_the_first_rule_that_says_no_names_the_reason(translation: str, reason: str) -> None:
    found = fault(ENGLISH_TEXT, translation, FRENCH)
    assert found is not None and found[0] == reason


def test_a_faithful_translation_passes_in_every_language() -> None:
    english = "There are 4 boxes. Each box has 3 pencils. How many pencils are there in all?"
    said = {
        "fr": "Il y a 4 boîtes. Chaque boîte contient 3 crayons. Combien de crayons y a-t-il en tout ?",
        "pt": "Há quatro caixas. Cada caixa tem 3 lápis. Quantos lápis há ao todo?",
        "ja": "箱が４つあります。それぞれの箱に鉛筆が三本入っています。鉛筆は全部で何本ありますか。",
        "ko": "상자가 4개 있습니다. 상자마다 연필이 세 자루 들어 있습니다. 연필은 모두 몇 자루입니까?",
        "th": "มีกล่อง ๔ กล่อง แต่ละกล่องมีดินสอสามแท่ง มีดินสอทั้งหมดกี่แท่ง",
    }
    for language, text in said.items():
        rules = Rules(language, ("en", "fr", "pt", language), 6, 0.2, 2.0, LABELS[language])
        assert fault(english, text, rules) is None


def test_a_wrong_word_passes_since_no_rule_can_see_it() -> None:
    english = "There are 4 boxes. Each box has 3 pencils. How many pencils are there in all?"
    spoons = "Il y a 4 cuillères. Chaque boîte contient 3 crayons. Combien de crayons y a-t-il en tout ?"
    assert fault(english, spoons, FRENCH) is None


@pytest.mark.parametrize("language", sorted(LABELS))
def test_the_examples_of_a_prompt_are_known_and_none_is_a_problem_of_the_demo(language: str) -> None:
    prompt = prompt_of("translate", language)
    shots = shots_of(prompt.text, (ENGLISH, LABELS[language]))
    assert len(shots) == 6
    problems = folded(
        (Path(__file__).parents[2] / "data" / "raw" / "trit" / "problems.jsonl").read_text(encoding="utf-8")
    )
    assert not [shot for shot in shots if folded(shot) in problems]
    assert prompt.render(question="Q?").endswith(f"English: Q?\n{LABELS[language]}")


def test_an_item_names_its_group_and_sample_whatever_the_key_holds() -> None:
    assert parse_item(item_of("a#1#b", 12)) == ("a#1#b", 12)
