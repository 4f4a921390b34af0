"""Labelled questions that no model wrote: sentence patterns filled from tables, each with its change rate.

Law: what is drawn depends on the files and the seed alone, no two drawn questions
are equal in any language, and the manner of a question (an opener, a missing mark)
never depends on its label.

The patterns and tables are our own writing (`templates/*.yaml`; `files`
reads and checks them). They are written in pairs, so that form does not give the
label away: how old a person is and how old one was at death, the highest mountain
and the richest person, who was first and who is it now. A question that a model is
scored on is kept out: those of the public set by a list of hashes, others by their
keys (`avoid`).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pipelines.data.duplicates import question_key
from pipelines.data.rows import ID_HEX, digest
from pipelines.errors import ConfigError, nearest
from pipelines.evergreen.templates.bank import RATES, Bank, Fill, Manner, Template
from pipelines.evergreen.templates.files import parse

FILES = (
    "manner.yaml",
    "countries.yaml",
    "people.yaml",
    "cities.yaml",
    "science.yaml",
    "arithmetic.yaml",
    "works.yaml",
    "companies.yaml",
    "sports.yaml",
    "nature.yaml",
    "calendar.yaml",
    "words.yaml",
    "general.yaml",
    "places.yaml",
)
WITHHELD = "withheld.txt"  # fillings that equal a question of the public test or dev set, by hash
MARKS = "?？؟.。 \u00a0"


@dataclass(frozen=True)
class Made:
    """One question in each of the languages drawn."""

    template: str
    topic: str
    change_rate: str  # never | slow | fast
    fill: Mapping[str, str]  # slot -> what stands there in the first language
    wordings: Mapping[str, str]  # language -> question
    answers: Mapping[str, str | None]  # language -> answer; None where no timeless one is known


@cache
def load() -> Bank:
    """The patterns and tables of the package. Raises TemplateError with file and place."""
    folder = Path(__file__).parent
    withheld = frozenset((folder / WITHHELD).read_text(encoding="utf-8").split())
    return parse({name: (folder / name).read_text(encoding="utf-8") for name in FILES}, withheld)


def draw(
    bank: Bank,
    *,
    wanted: Mapping[str, int],
    languages: Sequence[str],
    seed: int,
    avoid: Container[str] = (),
    plain: bool = False,
) -> list[Made]:
    """As many questions of each change rate as wanted, each worded in all the languages.

    Patterns take turns, so that none has more than its share. `avoid` holds question
    keys (of any language) that are not drawn; `plain` leaves out openers, small first
    letters and missing question marks. Ordered by rate, then by turn.

    Raises ConfigError for an unknown rate or language, and when the tables cannot give as many.
    """
    for rate in wanted:
        if rate not in RATES:
            raise ConfigError(f"unknown change rate {rate!r}", cure=nearest(rate, RATES))
    for language in languages:
        if language not in bank.languages:
            cure = nearest(language, bank.languages)
            raise ConfigError(f"no template is written in {language!r}", cure=cure)
    if not languages:
        raise ConfigError("no language to draw questions in")
    used: set[tuple[str, str]] = set()
    made: list[Made] = []
    for rate in RATES:
        turns = _turns(bank, rate, languages, seed)
        found = 0
        while found < wanted.get(rate, 0):
            turn = next(turns, None)
            if turn is None:
                what = f"the templates give {found} {rate} questions, {wanted[rate]} are wanted"
                raise ConfigError(what, where=f"in {', '.join(languages)}", cure="ask for fewer, or add rows")
            question = _worded(bank, *turn, languages, seed, plain)
            keys = {(k, question_key(w)) for k, w in question.wordings.items()}
            if used.isdisjoint(keys) and not any(key in avoid for _, key in keys):
                used |= keys
                made.append(question)
                found += 1
    return made


def supply(bank: Bank, languages: Sequence[str]) -> dict[str, int]:
    """How many fillings of each change rate are worded in all the languages: no more can be drawn."""
    counts = dict.fromkeys(RATES, 0)
    for template in bank.templates:
        if all(k in template.wordings for k in languages):
            counts[template.rate] += len(template.fills)
    return counts


def _turns(bank: Bank, rate: str, languages: Sequence[str], seed: int) -> Iterator[tuple[Template, int]]:
    """(template, number of its filling): one of each template, then the second of each, and so on."""
    able = [t for t in bank.templates if t.rate == rate and all(k in t.wordings for k in languages)]
    able.sort(key=lambda t: digest(seed, "template", t.name))
    queues = [(t, iter(_shuffled(len(t.fills), seed, t.name))) for t in able]
    while queues:
        left = []
        for template, numbers in queues:
            number = next(numbers, None)
            if number is not None:
                yield template, number
                left.append((template, numbers))
        queues = left


def _shuffled(size: int, *key: object) -> list[int]:
    return sorted(range(size), key=lambda i: digest("order", *key, i))


def _worded(
    bank: Bank, template: Template, number: int, languages: Sequence[str], seed: int, plain: bool
) -> Made:
    fill: Fill = template.fills[number]
    wordings = {}
    for language in languages:
        variants = template.wordings[language]
        chance = _chances(seed, template.name, number, language)
        text = fill.render(variants[int(next(chance) * len(variants))], language)
        manner = bank.manners.get(language)
        wordings[language] = text if plain or manner is None else mannered(text, manner, chance)
    return Made(
        template=template.name,
        topic=template.topic,
        change_rate=template.rate,
        fill=fill.shown(languages[0]),
        wordings=wordings,
        answers={k: template.answer(fill, k) for k in languages},
    )


def mannered(text: str, manner: Manner, chance: Iterator[float]) -> str:
    """The question as a person might type it: after an opener, in a small letter, without its mark.

    `chance` gives numbers in [0, 1); three to four are taken.
    """
    opener, small, unmarked = next(chance), next(chance), next(chance)
    first = text.split(" ", 1)[0].casefold()
    if "any" in manner.question_words and opener < manner.opener_share:  # a script without case
        text = manner.openers[int(next(chance) * len(manner.openers))] + text
    elif first in manner.question_words:
        if opener < manner.opener_share:
            text = manner.openers[int(next(chance) * len(manner.openers))] + text[0].lower() + text[1:]
        elif small < manner.small_share:
            text = text[0].lower() + text[1:]
    return text.rstrip(MARKS) if unmarked < manner.unmarked_share else text


def _chances(*key: object) -> Iterator[float]:
    """Numbers in [0, 1) that the key alone decides."""
    turn = 0
    while True:
        yield int(digest("chance", *key, turn), 16) / 16**ID_HEX
        turn += 1
