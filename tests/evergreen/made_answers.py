"""Answers of a scripted model to the stages that make questions: good ones, and one of each fault.

`answer(body)` is what `scripted_server.py --answers` calls. The topic tells what comes back: "rivers" good
pairs, "faults" pairs that break one rule each, "noise" no JSON at all.
"""

from __future__ import annotations

import json
from typing import Any

GOOD = {
    "never": [
        ("In which year was the Suez Canal opened?", "It was opened in 1869."),
        ("Which sea does the river Danube flow into?", "It flows into the Black Sea."),
        ("How many bridges crossed the Tiber in 1500?", "There were 4 bridges."),
    ],
    "slow": [
        ("Who chairs the river council of Marrow Bay?", "The chair is Odile Marchetti."),
        ("How many lock keepers work on the Halden canal?", "There are 12 lock keepers."),
        ("Which barge holds the record on the river Orrin?", "The barge Black Swan holds it."),
    ],
    "fast": [
        ("What is the water level of the river Orrin today?", "It is 3 metres."),
        ("When does the next ferry to Halden leave?", "It leaves at 7."),
        ("What does a ticket for the river bus cost now?", "It costs 4 crowns."),
    ],
}
FAULTS = {
    "never": [
        ("The river is long.", "Yes"),  # not_a_question
        ("Which topic does this question have?", "rivers"),  # about_the_instruction
        ("Which plant does vanilla come from?", "an orchid"),  # copies_prompt
    ],
    "slow": [
        ("Which river " + "very " * 40 + "long?", "the Nile"),  # too_long
        ("Which river?", "the Nile"),  # too_short
        ("Welcher Fluss fließt durch die alte Stadt am Meer?", "die Orrin"),  # wrong_language
    ],
    "fast": [
        ("Who swims in the Orrin today?", ""),  # empty_answer
        ("Who fishes in the Orrin at night?", "I don't know"),  # no_answer
    ],  # and one is not given
}
MORE = {
    "never": [
        ("Who is the current king of the river?", "Rurik Stahl"),  # against_its_rate
        ("which sea does the river DANUBE flow into ?", "the Black Sea"),  # duplicate of a good one
        ("Who dug the old mill stream?", "monks"),  # duplicate of an ingested question
    ],
    "slow": [
        ("", "nothing"),  # empty_question
        ("Is the Nile longer than the Rhine, or the Nile shorter?", "the Nile"),  # says_its_answer
        ("Who chaired the river council in 1998?", "Ane Berg"),  # against_its_rate
    ],
}
LABELS = {question: rate for rate, pairs in GOOD.items() for question, _ in pairs}
OPPOSED = "Which barge holds the record on the river Orrin?"
SILENT = "What does a ticket for the river bus cost now?"
WORDINGS: dict[str, dict[str, tuple[str, str]]] = {
    "In which year was the Suez Canal opened?": {
        "fr": ("En quelle année le canal de Suez a-t-il été ouvert ?", "Il a été ouvert en 1869."),
        "de": ("In welchem Jahr wurde der Suezkanal eröffnet?", "Er wurde 1896 eröffnet."),  # lost_number
    },
    "Which sea does the river Danube flow into?": {
        "fr": ("Dans quelle mer le Danube se jette-t-il ?", "Il se jette dans la mer Noire."),
        "de": ("In welches Meer mündet die Donau?", "Sie mündet in das Schwarze Meer."),
    },
    "How many bridges crossed the Tiber in 1500?": {
        "fr": ("Combien de ponts traversaient le Tibre en 1500 ?", "Il y avait 4 ponts."),
        "de": ("How many bridges crossed the Tiber in 1500?", "4"),  # untranslated
    },
    "Who chairs the river council of Marrow Bay?": {
        "fr": ("Traduction : Qui préside le conseil ?", "Odile Marchetti"),  # leaked_instruction
        "de": ("Qui préside le conseil de la rivière ?", "Odile Marchetti"),  # wrong_language
    },
    "How many lock keepers work on the Halden canal?": {
        "fr": ("Les éclusiers du canal de Halden sont 12.", "Il y a 12 éclusiers."),  # not_a_question
        "de": ("Wie viele der 40 Schleusenwärter arbeiten am Haldenkanal?", "12"),  # added_number
    },
    "What is the water level of the river Orrin today?": {
        "fr": ("Quel niveau ?", "3 mètres"),  # length_ratio
        "de": ("", ""),  # empty
    },
    "Кто вырыл канал Халден в 1700 году?": {
        "en": ("Who dug the Halden canal in 1700?", "Monks dug it."),
    },
    "Who dug the Halden canal in 1700?": {
        "de": ("Wer grub 1700 den Haldenkanal?", "Mönche gruben ihn."),
        "fr": ("Qui a creusé le canal de Halden en 1700 ?", "Des moines l'ont creusé."),
    },
    "Сколько шлюзов на канале?": {
        "en": ("How many of 50 locks are on the canal?", "There are 7."),  # added_number
    },
    "When does the next ferry to Halden leave?": {
        "fr": ("Combien coûte le poivre sur ce marché ?", "Il part à 7 heures."),  # not_alike
        "de": ("Wann fährt die nächste Fähre nach Halden ab?", "Sie fährt um 7 ab."),
    },
}
BACK = {
    "Wann fährt die nächste Fähre nach Halden ab?": "When does the next ferry leave for Halden?",
    "Dans quelle mer le Danube se jette-t-il ?": "Which sea does the Danube flow into?",
    "In welches Meer mündet die Donau?": "How many apples are in the basket of my aunt?",  # not_alike_back
}
ANSWERED = {"In which year was the Suez Canal opened?": "1870"}
FORMS = {
    "It was opened in 1869.": ["1869", "in 1869", "1870", "in 1869."],
    "It flows into the Black Sea.": ["Black Sea", "the Black Sea", "Red Sea"],
    "There were 4 bridges.": ["4", "four", "4 bridges"],
    "The chair is Odile Marchetti.": ["Odile Marchetti", "Marchetti", "O. Marchetti"],
    "There are 12 lock keepers.": ["12 or perhaps more lock keepers here", "20"],  # too_few
    "Il se jette dans la mer Noire.": ["mer Noire", "la mer Noire"],
    "It is 3 metres.": "no JSON",
}


def answer(body: dict[str, Any]) -> str:
    """What the model says to one request of the four stages."""
    if "prompt" in body:
        asked = body["prompt"].rpartition("Question: ")[2]
        return " " + _label(asked.partition("\nClassification:")[0])
    schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
    asked = body["messages"][-1]["content"]
    if schema is None and "five words" in body["messages"][0]["content"]:
        question = asked.removeprefix("Question: ").strip()
        return ANSWERED.get(question, dict(GOOD["never"]).get(question, "Nobody knows"))
    if schema is None:
        return _label(asked.removeprefix("Question: ").strip())
    if "is not the JSON" in asked:
        return "Still none."
    if "pairs" in schema["properties"]:
        return _pairs(asked)
    if "answers" in schema["properties"]:
        told = next(line for line in asked.split("\n") if line.startswith("Answer: "))
        forms = FORMS.get(told.removeprefix("Answer: "), ["something else"])
        return forms if isinstance(forms, str) else json.dumps({"answers": forms})
    return _wordings(json.loads(asked.split("\n", 1)[1]), list(schema["required"]))


def _label(question: str) -> str:
    if question == SILENT:
        return "That is hard to say."
    evergreen = (LABELS[question] == "never") != (question == OPPOSED)
    return "Classification: **Evergreen**." if evergreen else "mutable"


def _pairs(asked: str) -> str:
    topic = next(t for t in ("rivers", "faults", "more", "noise") if f"Topic: {t}\n" in asked)
    marks = {"never": "for ever", "slow": "every few years", "fast": "weeks or months"}
    rate = next(r for r, mark in marks.items() if mark in asked)
    if topic == "noise":
        return "Rivers are fine."
    pairs = {"rivers": GOOD, "faults": FAULTS, "more": MORE}[topic].get(rate, GOOD[rate][:1])
    return json.dumps({"pairs": [{"question": q, "reply": a} for q, a in pairs]})


def _wordings(given: dict[str, str], languages: list[str]) -> str:
    question = given["question"]
    if question in BACK and languages == ["en"]:
        return json.dumps({"en": {"question": BACK[question]}})
    told = WORDINGS.get(question, dict.fromkeys(languages, ("no JSON", "")))
    if any(told[k][0] == "no JSON" for k in languages):
        return "no JSON"
    said = {k: dict(zip(given, told[k], strict=False)) for k in languages}  # with a reply where one was given
    return json.dumps(said, ensure_ascii=False)
