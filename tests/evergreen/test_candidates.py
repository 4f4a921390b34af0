"""Which questions of a model a rule refuses, and how many questions a balance asks for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.data.duplicates import question_key
from pipelines.errors import ConfigError
from pipelines.evergreen.making.candidates import RATES, Rules, by_turns, capped, fault, missing
from pipelines.evergreen.making.faults import shared_run

PROMPT = "You write short factual questions that people type into a search engine, each with its reply."
RULES = Rules(
    language="en",
    candidates=("de", "en", "fr"),
    shown=frozenset({question_key("Which plant does vanilla come from?")}),
    prompt=PROMPT,
    longest_question=100,
    longest_answer=60,
)
HALF = {"never": 0.5, "slow": 0.25, "fast": 0.25}


def reason(question: str, answer: str = "Iran", rate: str = "never") -> str | None:
    found = fault(question, answer, rate, RULES)
    return None if found is None else found.reason


@pytest.mark.parametrize(
    ("question", "answer", "rate"),
    [
        ("In which year was the Suez Canal opened?", "1869", "never"),
        ("Who chairs the harbour council of Oslo?", "Ane Berg", "slow"),
        ("What does a litre of milk cost in Oslo now?", "22 kroner", "fast"),
        ("Which river is longer than the Rhine, the Danube or the Main?", "the Danube river", "never"),
        ("Who won the cup in 1998?", "France", "never"),
    ],
)
def test_a_plain_question_with_its_answer_is_fit(question: str, answer: str, rate: str) -> None:
    assert reason(question, answer, rate) is None


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("", "empty_question"),
        ("?!", "empty_question"),
        ("The Danube flows into the Black Sea.", "not_a_question"),
        ("What is a river? And what is a lake?", "not_a_question"),
        ("Which river? The Danube.", "not_a_question"),
        ("which plant does vanilla come from ?", "copies_prompt"),
        ("Do people type into a search engine what they want?", "copies_prompt"),
        ("Which river is " + "very " * 20 + "long?", "too_long"),
        ("Which river?", "too_short"),
        ("Welcher Fluss fließt durch die Hauptstadt von Österreich?", "wrong_language"),
        ("Which question in the JSON has the topic rivers?", "about_the_instruction"),
        ("What is the capital of [country name]?", "about_the_instruction"),
        ("Who is the current mayor of Oslo?", "against_its_rate"),
    ],
)
def test_a_question_that_is_none_is_refused_with_the_rule(question: str, told: str) -> None:
    assert reason(question) == told


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("", "empty_answer"),
        ("-", "empty_answer"),
        ("I don't know.", "no_answer"),
        ("As an AI, I cannot say", "no_answer"),
        ("It varies", "no_answer"),
        ("Where does the Danube end?", "no_answer"),
        ("Danube", "says_its_answer"),
        ("the Black Sea, which lies between Europe and Asia and is " + "deep " * 5, "too_long"),
    ],
)
def test_an_answer_that_is_none_is_refused_with_the_rule(answer: str, told: str) -> None:
    assert reason("Into which sea does the Danube flow?", answer) == told


def test_a_question_of_a_past_year_is_not_one_that_changes() -> None:
    assert reason("Who led the harbour council in 1998?", "Ane Berg", "slow") == "against_its_rate"
    assert reason("Who led the harbour council in 1998?", "Ane Berg", "never") is None


def test_words_are_copied_when_six_in_a_row_are_the_prompt_s() -> None:
    assert shared_run("what people type into a search engine", PROMPT) == "people type into a search engine"
    assert shared_run("people type into a search box", PROMPT) == ""


def test_the_released_train_split_lacks_1590_mutable_questions_for_halves() -> None:
    """1,799 evergreen of 2,008 real ones, the mutable of no known rate; the paper made 1,449."""
    lacking = missing({"never": 1799, "unknown": 209}, HALF)
    assert lacking == {"never": 0, "slow": 795, "fast": 795}
    assert sum(lacking.values()) == 1590


def test_the_balance_works_in_the_other_direction_too() -> None:
    """The released synthetic part: 30 evergreen, 1,449 mutable."""
    assert missing({"never": 30, "unknown": 1449}, HALF) == {"never": 1419, "slow": 0, "fast": 0}


def test_a_total_that_is_told_is_filled_by_rate() -> None:
    assert missing({"never": 47, "slow": 22, "fast": 21}, HALF, 120) == {"never": 13, "slow": 8, "fast": 9}
    assert missing({"never": 90}, HALF, 120) == {"never": 0, "slow": 30, "fast": 30}


def test_shares_must_be_of_known_rates_and_add_up() -> None:
    for shares in ({"never": 0.5, "slow": 0.4}, {"never": 0.5, "often": 0.5}, {}):
        with pytest.raises(ConfigError, match="add up to 1"):
            missing({}, shares)


@given(
    have=st.dictionaries(st.sampled_from([*RATES, "unknown"]), st.integers(0, 3000)),
    parts=st.tuples(*[st.integers(1, 9)] * 3),
)
def test_with_what_is_made_each_rate_has_its_share_within_one_question(
    have: dict[str, int], parts: tuple[int, int, int]
) -> None:
    shares = {r: p / sum(parts) for r, p in zip(RATES, parts, strict=True)}
    lacking = missing(have, shares)
    changing = shares["slow"] + shares["fast"]
    unknown = have.get("unknown", 0)
    after = {
        r: have.get(r, 0) + lacking[r] + (0 if r == "never" else unknown * shares[r] / changing)
        for r in RATES
    }
    total = sum(after.values())
    assert all(abs(after[r] - total * shares[r]) < 2 for r in RATES)


@given(wanted=st.dictionaries(st.sampled_from(RATES), st.integers(0, 500)), most=st.integers(0, 800))
def test_a_cap_keeps_the_proportions_and_is_reached(wanted: dict[str, int], most: int) -> None:
    got, total = capped(wanted, most), sum(wanted.values())
    assert got.keys() == wanted.keys()
    assert sum(got.values()) == (total if not most else min(most, total))
    if most and total > most:
        assert all(abs(got[r] - wanted[r] * most / total) < 1 for r in wanted)


def test_topics_take_turns() -> None:
    assert [by_turns(("a", "b"), n) for n in range(5)] == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2)]
