"""What the four stages say to a model: own examples, one hash a sheet, two ways to put it."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.data.duplicates import question_key
from pipelines.errors import ConfigError, StageError
from pipelines.evergreen.aliases import Params as AliasParams
from pipelines.evergreen.aliases import turns_of as alias_turns
from pipelines.evergreen.making.translating import Job, answer_schema
from pipelines.evergreen.making.translating import turns_of as translation_turns
from pipelines.evergreen.prompting import Turns, language_name, sheet
from pipelines.evergreen.synthesize import Ask
from pipelines.evergreen.synthesize import turns_of as synthesis_turns
from pipelines.evergreen.verify import turns_of as verify_turns

SHEETS = {n: sheet(f"prompts/{n}.yaml") for n in ("synthesize", "verify", "translate", "aliases")}


def shown() -> Iterator[str]:
    """Every question that the sheets show."""
    yield from (p["question"] for e in SHEETS["synthesize"].parts["examples"].values() for p in e["pairs"])
    yield from (question for question, _ in SHEETS["verify"].parts["shots"])
    yield from SHEETS["translate"].parts["example"]["question"].values()
    yield from (s["question"] for s in SHEETS["aliases"].parts["shots"])


def test_the_classifier_is_shown_five_mutable_and_five_evergreen_questions() -> None:
    labels = Counter(label for _, label in SHEETS["verify"].parts["shots"])
    assert labels == {"mutable": 5, "evergreen": 5}


@pytest.mark.real
def test_no_question_of_the_public_sets_is_shown(real_data: Path) -> None:
    """Three of the ten shots of the published prompt are training questions."""
    known = set()
    files = [*(real_data / "evergreenqa").glob("*.csv"), *(real_data / "freshqa").glob("*.csv")]
    for path in files:
        with open(path, encoding="utf-8-sig", newline="") as f:
            known |= {question_key(cell) for row in csv.DictReader(f) for cell in row.values() if cell}
    assert len(known) > 20_000
    assert [q for q in shown() if question_key(q) in known] == []


def test_a_chat_has_its_examples_as_earlier_turns() -> None:
    form = verify_turns(SHEETS["verify"], "Who is it?").form("chat")
    roles = [role for role, _ in form["messages"]]
    assert roles == ["system", *["user", "assistant"] * 10, "user"]
    assert form["messages"][-1] == ("user", "Question: Who is it?")
    assert {told for role, told in form["messages"] if role == "assistant"} == {"evergreen", "mutable"}


def test_a_completion_is_one_text_that_ends_with_its_cue() -> None:
    form = verify_turns(SHEETS["verify"], "Who is it?").form("completion")
    assert form["kind"] == "completion"
    assert form["prompt"].count("\nClassification: ") == 10
    assert form["prompt"].endswith("\n\nQuestion: Who is it?\nClassification:")


def test_a_style_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(ConfigError, match="unknown style 'talk' .one of chat, completion"):
        Turns("a", [], "b").form("talk")
    with pytest.raises(ConfigError, match="no prompt names language 'xx'"):
        language_name("xx")


def test_a_sheet_s_hash_covers_its_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines.evergreen import prompting

    monkeypatch.setattr(prompting, "__file__", str(tmp_path / "prompting.py"))
    path = tmp_path / "p.yaml"
    path.write_text("ask: '{{ word }}'\nshots: [a]\n")
    before = sheet("p.yaml")
    path.write_text("ask: '{{ word }}'\nshots: [b]\n")
    assert sheet("p.yaml").hash != before.hash
    assert before.say("ask", word=" {{ secret }} ") == "{{ secret }}"
    with pytest.raises(StageError, match="'word' is undefined"):
        before.say("ask")


def test_pairs_are_asked_by_topic_and_rate_with_as_many_examples_as_wanted() -> None:
    turns = synthesis_turns(SHEETS["synthesize"], Ask("never", "bridges", 0, 2), "en")
    assert turns.asked.startswith("Topic: bridges\nWrite 2 different questions in English. Each reply is")
    assert len(json.loads(turns.shots[0][1])["pairs"]) == 2


def test_a_translation_shows_an_example_between_the_same_languages_and_an_answer_only_if_there_is_one() -> (
    None
):
    job = Job({"question_id": "q", "language": "ru", "question": "Кто это?", "answer": None}, ("en",))
    turns = translation_turns(SHEETS["translate"], job)
    assert json.loads(turns.shots[0][1]) == {"en": {"question": "How many keys does a piano have?"}}
    assert turns.asked == 'From Russian to English (en):\n{"question": "Кто это?"}'
    answered = Job({**job.source, "answer": "Это Анна."}, ("en", "fr"))
    turns = translation_turns(SHEETS["translate"], answered)
    assert set(json.loads(turns.shots[0][1])["fr"]) == {"question", "reply"}


def test_decoding_in_alphabetical_order_writes_a_question_before_its_answer() -> None:
    one = answer_schema(["fr", "de"], ["question", "answer"])["properties"]["fr"]
    assert sorted(one["properties"]) == ["question", "reply"]


def test_aliases_are_asked_in_the_language_of_the_row() -> None:
    row = {"question": "Wer war es?", "answer": "Es war Anna.", "language": "de"}
    turns = alias_turns(SHEETS["aliases"], AliasParams(fewest=2, most=4), row)
    assert turns.asked.endswith("Write 2 to 4 short forms of the answer in German.")
    assert len(turns.shots) == 2
