"""The first verdict of a reply is its label, and a reply without one is a wrong one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.evergreen.making.verdicts import UNPARSED, agreement, objection, same_share, verdict

SAID = st.sampled_from(["evergreen", "mutable", UNPARSED])


@pytest.mark.parametrize(
    ("reply", "label"),
    [
        ("mutable", "mutable"),
        ("Mutable.", "mutable"),
        ("**Immutable**", "evergreen"),
        ("evergreen\n\nQuestion: Who is the king?\nClassification: mutable", "evergreen"),
        ("Classification: “Evergreen”", "evergreen"),
        ("The label mutable or not? Classification: evergreen", "evergreen"),
        ("ｍｕｔａｂｌｅ", "mutable"),
        ("never‑changing", "evergreen"),
        ("It is not mutable", "evergreen"),
        ("non-evergreen", "mutable"),
        ("Slow-changing", "mutable"),
        ("", UNPARSED),
        ("I cannot say", UNPARSED),
        ("commutable", UNPARSED),
        ("immutability", UNPARSED),
    ],
)
def test_a_verdict_is_read_whatever_stands_around_it(reply: str, label: str) -> None:
    assert verdict(reply) == label


@given(reply=st.text())
def test_any_reply_has_one_of_three_ends(reply: str) -> None:
    assert verdict(reply) in ("evergreen", "mutable", UNPARSED)


@given(reply=st.text(alphabet=" \n*_.\"'“”"), label=st.sampled_from(["evergreen", "mutable"]))
def test_emphasis_and_punctuation_change_no_verdict(reply: str, label: str) -> None:
    assert verdict(f"{reply}{label.title()}{reply}") == label


def test_an_unparsed_reply_counts_in_the_denominator() -> None:
    assert agreement("mutable", ["mutable", UNPARSED, "mutable", "evergreen"]) == 0.5


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (["evergreen", "evergreen", "mutable"], None),
        (["evergreen", "mutable", "mutable"], "disagreement"),
        (["evergreen", UNPARSED, UNPARSED], UNPARSED),
        (["evergreen", "mutable", UNPARSED], "undecided"),
        ([UNPARSED] * 3, UNPARSED),
    ],
)
def test_what_the_verdicts_leave_open_has_a_name(said: list[str], why: str | None) -> None:
    assert objection("evergreen", said, 0.66) == why


@given(said=st.lists(SAID, min_size=1, max_size=9), least=st.floats(0.51, 1))
def test_two_labels_are_never_both_agreed_on(said: list[str], least: float) -> None:
    both = [objection(label, said, least) is None for label in ("evergreen", "mutable")]
    assert both != [True, True]


@pytest.mark.parametrize(
    ("answer", "replies", "share"),
    [
        ("It was opened in 1869.", ["1869", "In 1869!", "1870", ""], 0.5),
        ("the Black Sea", ["Black Sea.", "It is the Black Sea", "Red Sea"], 2 / 3),
        ("seven", ["7", "seven", "eight"], 2 / 3),
        ("Carmen", ["…"], 0.0),
    ],
)
def test_answers_are_the_same_when_they_hold_each_other_or_have_the_same_numbers(
    answer: str, replies: list[str], share: float
) -> None:
    assert same_share(answer, replies) == share
