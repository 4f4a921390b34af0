"""Which kinds a wording is of, and its form: by the rules that the module states."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipelines.evaluation.question_kinds import KINDS, kinds, lead, tense

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("wording", "told"),
    [
        ("What is the largest lake in Africa?", ["superlative"]),
        ("Which language has the most speakers?", ["superlative"]),
        ("Which forest surrounds Budapest?", []),
        ("How many rooms does a guest need at most?", []),
        ("Most of what is the Sun made?", []),
        ("How old is Tom Hanks?", ["living_person"]),
        ("Can you tell me how old Will Smith is?", ["living_person"]),
        ("Who is the mayor of Oslo?", ["living_person"]),
        ("How many children does Marie Laurent have?", ["living_person"]),
        ("How old was Socrates when he died?", ["dead_person"]),
        ("Where is Ivan the Terrible buried?", ["dead_person"]),
        ("Who was Albert Einstein married to?", ["dead_person"]),
        ("Where is the Dead Sea?", []),
        ("What was the hottest day of 2024?", ["superlative", "recent_year"]),
        ("Who became king in 1936?", ["dead_person"]),
        ("Which team won the World Cup in 2018?", ["recent_year", "scheduled_event"]),
        ("Where will the next Olympic Games take place?", ["scheduled_event"]),
        ("When will the third season be released?", ["scheduled_event"]),
        ("Which league does Juventus play in?", []),
        ("What is the boiling point of water?", []),
    ],
)
def test_a_wording_is_of_these_kinds(wording: str, told: list[str]) -> None:
    assert kinds(wording) == told


@pytest.mark.parametrize(
    ("wording", "told"),
    [
        ("How old is the Earth?", ("how_old", "present")),
        ("And tell me, what age is Katy Perry?", ("how_old", "present")),
        ("How many moons does Mars have?", ("how_many", "present")),
        ("How tall is Mont Blanc?", ("how_measured", "present")),
        ("How do bees fly?", ("how", "present")),
        ("With whom did Emma dance?", ("who", "past")),
        ("In which city was Kafka born?", ("which", "past")),
        ("At what temperature does lead melt?", ("what", "present")),
        ("When will the bridge open?", ("when", "future")),
        ("Where is Will Smith's house located?", ("where", "present")),
        ("Which element is denoted by Pb?", ("which", "present")),
        ("Who is the chair of the Two-tailed Dog Party?", ("who", "present")),
        ("Does a hamster have a tail?", ("yes_no", "present")),
        ("Why did the dinosaurs vanish?", ("why", "past")),
        ("The capital of Peru", ("other", "present")),
        ("The Pripyat flows into which river?", ("which", "present")),
        ("From a sailor's view, how deep is the Baltic?", ("how_measured", "present")),
        ("", ("other", "present")),
    ],
)
def test_the_form_of_a_wording_is_its_lead_and_its_tense(wording: str, told: tuple[str, str]) -> None:
    assert (lead(wording), tense(wording)) == told


@given(st.text(max_size=200))
def test_any_text_has_a_form_and_kinds_in_their_order(wording: str) -> None:
    found = kinds(wording)
    assert found == [k for k in KINDS if k in found]
    assert lead(wording)
    assert tense(wording) in ("past", "present", "future")


def test_blanks_and_the_case_of_the_first_word_do_not_count() -> None:
    assert kinds("  what is  the LARGEST lake? ") == kinds("What is the largest lake?")
    assert lead("HOW MANY?") == lead("how  many?") == "how_many"


@pytest.mark.parametrize("stage", ["training.evergreen", "evergreen.classify", "evergreen.filter"])
def test_no_stage_that_trains_or_predicts_reaches_the_kinds(stage: str) -> None:
    """By the code that dvc.yaml names of each stage; another test holds it to what the stage reaches."""
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    rules = "pipelines/evaluation/question_kinds.py"
    assert rules not in stages[stage]["deps"]
    assert rules in stages["evaluation.evergreen"]["deps"]
