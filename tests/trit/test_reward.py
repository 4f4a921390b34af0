"""The reward of one response and its pieces."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import ConfigError
from pipelines.trit.repetition import PRESETS, Repetition, commonest, in_a_row, repetitive, tokens
from pipelines.trit.reward import REWARDS, Spans, in_language, reward, split


@pytest.mark.parametrize(("fmt", "lang", "rep", "acc"), list(product((True, False), repeat=4)))
def test_the_reward_is_the_papers_table(fmt: bool, lang: bool, rep: bool, acc: bool) -> None:
    expected = 0.0 if not (fmt and lang and rep) else 1.0 if acc else 0.1  # T1
    assert reward(fmt, lang, rep, acc) == expected
    assert expected in REWARDS


@pytest.mark.parametrize(
    ("text", "ok"),
    [
        ("<think>2 + 3</think>5", True),
        ("<think></think>5", False),
        ("<think>2 + 3</think>  ", False),
        ("2 + 3</think>5", False),  # the opening tag is missing and no prompt gave it
        ("<think>2 + 3", False),
        ("<think>a</think>b</think>c", False),
        ("<think>a<think>b</think>c", False),
        ("5<think>a</think>", False),
    ],
)
def test_the_think_format_wants_both_tags_once_and_both_spans(text: str, ok: bool) -> None:
    assert split(text, "think").ok is ok


def test_an_opening_tag_may_stand_in_the_prompt() -> None:
    assert split("2 + 3</think>5", "think", opened=True) == Spans("2 + 3", "5", True)


def test_a_tag_is_removed_as_a_prefix_and_eats_no_letters() -> None:
    assert split("<think>think this ink</think>hint", "think").thinking == "think this ink"  # T9
    assert split("<think>think this ink</think>hint", "think").answer == "hint"


def test_the_plain_format_is_one_line() -> None:
    assert split(" 2 + 3 = 5. A: 5 ", "plain") == Spans("", "2 + 3 = 5. A: 5", True)
    assert not split("2\n3", "plain").ok
    assert not split("  ", "plain").ok
    with pytest.raises(ConfigError, match="did you mean 'plain'"):
        split("x", "plane")


def test_each_span_must_be_in_the_language_and_mathematics_is_in_any() -> None:
    candidates = ("en", "fr", "pt")
    french = Spans("Léo a trois pommes et en achète deux", "La réponse est 5", True)
    assert in_language(french, "fr", candidates, 6)
    assert not in_language(french, "pt", candidates, 6)
    mixed = Spans("Leo has three apples and buys two", "La réponse est 5", True)
    assert not in_language(mixed, "fr", candidates, 6)
    assert in_language(Spans("3 + 2 = 5", r"\boxed{5}", True), "ko", candidates, 6)
    assert not in_language(Spans("", "", False), "fr", candidates, 6)


@pytest.mark.parametrize(
    ("period", "train", "evaluation"), [(2, 15, 29), (3, 12, 26), (5, 9, 23), (20, 6, 20)]
)
def test_a_repeated_unit_is_flagged_from_the_worked_count_on(
    period: int, train: int, evaluation: int
) -> None:
    unit = [f"w{i}" for i in range(period)]  # T8
    for preset, first in (("train", train), ("eval", evaluation)):
        assert commonest(unit * first, 20) == first - -(-20 // period) + 1
        assert repetitive(" ".join(unit * first), PRESETS[preset])
        assert not repetitive(" ".join(unit * (first - 1)), PRESETS[preset])


def test_frequent_but_never_in_a_row_is_no_degeneration() -> None:
    unit = " ".join(f"w{i}" for i in range(20))
    spread = " ".join(f"{unit} x{i}" for i in range(8))
    assert commonest(tokens(spread), 20) == 8
    assert not repetitive(spread, PRESETS["train"])


def test_a_long_line_six_times_is_flagged_and_a_short_one_is_not() -> None:
    text = "\n".join(f"{i}\n{'z' * 20}" for i in range(6))
    assert repetitive(text, PRESETS["eval"])
    assert not repetitive(text.replace("z" * 20, "z" * 19), PRESETS["eval"])
    assert not repetitive("\n".join(f"{i}\n{'z' * 20}" for i in range(5)), PRESETS["eval"])


def test_tokens_are_words_or_single_signs_of_scripts_without_blanks() -> None:
    assert tokens("Léo a 12 pommes.") == ["Léo", "a", "12", "pommes", "."]
    assert tokens("りんごが3個") == ["り", "ん", "ご", "が", "3", "個"]
    assert tokens("사과 3개") == ["사과", "3개"]


@given(st.lists(st.sampled_from("abc"), max_size=40), st.integers(2, 4), st.integers(2, 5))
def test_units_in_a_row_are_found_as_by_plain_search(sequence: list[str], period: int, times: int) -> None:
    plain = any(
        sequence[i : i + p * times] == sequence[i : i + p] * times
        for p in range(period, len(sequence) + 1)
        for i in range(len(sequence) - p * times + 1)
    )
    assert in_a_row(sequence, period, times) is plain


def test_presets_differ_in_the_counts_alone() -> None:
    assert {"train": Repetition(6), "eval": Repetition(20)} == PRESETS
