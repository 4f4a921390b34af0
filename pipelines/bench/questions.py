"""Short questions to look for duplicates in: many forms, many names, and edits of some of them.

Law: the n questions of a seed are the same everywhere and for ever. About one in eight is an edit of an
earlier one (asked more politely, a word added or moved, a plural, a typing error, other punctuation), about
one in ten asks the same of another name, and a few forms are far more frequent than the rest.
"""

from __future__ import annotations

import random
from collections.abc import Callable

FORMS = (
    "How old is {person}?",
    "Who is the head of the government of {place}?",
    "What is the population of {place}?",
    "What is the name of the capital of {place}?",
    "Which music label represents {person}?",
    "In which year was {person} born?",
    "When did {person} publish the first book about {thing}?",
    "How many {things} does {person} own?",
    "Which river flows through {place} and {place}?",
    "What did {person} say about the {thing} of {place} in {year}?",
    "Who won the {thing} championship of {place} in {year}?",
    "How far is it from {place} to {place} by {thing}?",
    "Why was the {thing} in {place} closed after {year}?",
    "Is it true that {person} and {person} met in {place}?",
    "Where can one buy a {thing} made in {place}?",
    "What colour is the {thing} on the flag of {place}?",
    "Which {thing} museum in {place} did {person} found?",
    "Who played the role of {person} in the film about the {thing}?",
    "How long does a {thing} live in the wild near {place}?",
    "What is the current price of {things} in {place}?",
    "Does {person} still live in {place}?",
    "In {year}, who sold the first {thing} to {person}?",
    "Which school did {person} leave for {place}?",
    "Name the author of the poem on the {thing} and the {thing}.",
    "Has the {thing} of {place} ever been stolen?",
    "Under which name is {person} known in {place}?",
    "To whom did {person} give a {thing} in {year}?",
    "Can {things} be grown north of {place}?",
    "What do {things} and {things} have in common?",
    "After which {thing} is the square in {place} named?",
    "Who else signed the treaty of {place} with {person}?",
    "How deep is the lake beside {place}?",
    "By what margin did {person} beat {person} in {year}?",
    "What was built in {place} in {year} instead of the {thing}?",
    "Whose {thing} hangs in the town hall of {place}?",
    "Are there more {things} in {place} than in {place}?",
    "On what day does {place} celebrate the {thing}?",
    "Which language do the people around {place} speak?",
    "From where does {place} get its {things}?",
    "Did {person} invent the {thing}, or was it {person}?",
)
THINGS = (
    "anchor apple arrow autumn bakery barrel basket beacon bicycle blanket bottle bridge bucket button "
    "cabin candle canvas carpet castle cattle cellar chapel cherry circus cloud coffee compass copper "
    "cotton cradle crystal curtain dagger diamond dolphin dragon engine falcon feather ferry fiddle "
    "flower forest fountain garden ginger glacier glass goblet guitar hammer harbor harvest helmet honey "
    "hunter island ivory jacket kettle kitchen ladder lantern leather lemon library lighthouse lizard "
    "locker marble market meadow mirror monkey mountain needle orchard organ otter paddle palace parrot "
    "pebble pepper piano pigeon pillow planet pocket pottery prairie puzzle rabbit railway ribbon river "
    "rocket saddle salmon sandal satin scarf school shadow shelter shovel silver spider spoon squirrel "
    "stable statue summer table temple thunder ticket tiger timber tobacco tower tunnel turtle valley "
    "velvet village violin wagon walnut window winter zebra "
).split()
EDITED = 0.12  # of the questions
POLITE = ("Tell me, {}", "And {}", "So, {}", "Could you say {}", "Please, {}")
LATER = (" now?", " today?", " exactly?", " at the moment?")


def questions(count: int, seed: int = 4) -> list[str]:
    """So many questions in English."""
    chance = random.Random(seed)
    people = _names(chance, 4000, 2)
    places = _names(chance, 1500, 1)
    found: list[str] = []
    for _ in range(count):
        if found and chance.random() < EDITED:
            found.append(edited(chance.choice(found), chance))
        else:
            form = FORMS[min(chance.randrange(len(FORMS)), chance.randrange(len(FORMS)))]
            found.append(_filled(form, chance, people, places))
    return found


def edited(question: str, chance: random.Random) -> str:
    """The question said a little otherwise."""
    return chance.choice(EDITS)(question, chance)


def _polite(question: str, chance: random.Random) -> str:
    return chance.choice(POLITE).format(question[:1].lower() + question[1:])


def _later(question: str, chance: random.Random) -> str:
    return question.rstrip("?") + chance.choice(LATER)


def _written(question: str, chance: random.Random) -> str:
    return chance.choice((str.upper, str.lower, str.title))(question).replace(
        "?", chance.choice((" ?", "", "?!"))
    )


def _mistyped(question: str, chance: random.Random) -> str:
    words = question.split(" ")
    at = chance.choice([i for i, w in enumerate(words) if len(w) > 6] or [0])
    cut = chance.randrange(2, max(3, len(words[at]) - 2))
    words[at] = words[at][:cut] + words[at][cut + 1 :]
    return " ".join(words)


def _moved(question: str, chance: random.Random) -> str:
    words = question.rstrip("?").split(" ")
    at = chance.randrange(1, len(words)) if len(words) > 1 else 0
    return " ".join([*words[at:], *words[:at]]) + "?"


EDITS: tuple[Callable[[str, random.Random], str], ...] = (_polite, _later, _written, _mistyped, _moved)


def _filled(form: str, chance: random.Random, people: list[str], places: list[str]) -> str:
    parts = form.split("{")
    words = [parts[0]]
    for part in parts[1:]:
        slot, _, rest = part.partition("}")
        words.append(_filling(slot, chance, people, places) + rest)
    return "".join(words)


def _filling(slot: str, chance: random.Random, people: list[str], places: list[str]) -> str:
    if slot == "year":
        return str(chance.randrange(1850, 2026))
    if slot in ("thing", "things"):
        return chance.choice(THINGS) + ("s" if slot == "things" else "")
    return chance.choice(people if slot == "person" else places)


def _names(chance: random.Random, count: int, words: int) -> list[str]:
    heads = [a + b for a in "bcdfghjklmnprstvwz" for b in ("a", "e", "i", "o", "u", "ai", "ea", "or", "an")]
    tails = (
        "n",
        "r",
        "s",
        "ll",
        "ck",
        "th",
        "nd",
        "ria",
        "ton",
        "berg",
        "ville",
        "mar",
        "sk",
        "dez",
        "ey",
        "",
    )

    def name() -> str:
        return ("".join(chance.choices(heads, k=chance.randint(1, 3))) + chance.choice(tails)).capitalize()

    return [" ".join(name() for _ in range(words)) for _ in range(count)]
