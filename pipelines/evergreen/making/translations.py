"""The free checks on a translated question and its answer: what a rule can tell without another model.

Law: pure. A translation that breaks a rule is a fault with a reason, never an empty text. Numbers and
named years must be the source's, no more and no fewer; number words are read only in languages that have a
table of them (`data.numerals`), elsewhere only digits are compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from pipelines.data.duplicates import question_key
from pipelines.data.language import NEUTRAL, added_numbers, identify, lost_numbers, numbers, scripts
from pipelines.data.numerals import words
from pipelines.evergreen.making.faults import MARKS, Fault, shared_run

UNMARKED = frozenset({"th", "ja"})  # languages whose questions need no question mark
OWN_SCRIPT = {"ar": "arabic", "he": "hebrew", "ru": "cyrillic", "zh": "han", "ko": "hangul", "th": "thai"}
LEAST_OWN = 2  # letters of its own script by which a text of foreign names is still in its language

_ORDINAL = re.compile(r"\d+(?:st|nd|rd|th|er|ère|e|ème|º|ª)\b", re.IGNORECASE)
_TALK = re.compile(
    r"^\W*(?:translations?|translated|question|answer|here (?:is|are)|sure|traduction|übersetzung|перевод"
    r"|翻译|译文|الترجمة|תרגום|english|french|german|russian|hebrew|arabic|chinese)\s*[:：]"
    r"|\bjson\b|[{}]|```|\n",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Rules:
    """What a translation is held against.

    ratio: least and most characters of it per character of its source. candidates: languages told apart.
    prompt: the instruction; shown: question keys of its examples.
    """

    source: str
    target: str
    ratio: tuple[float, float]
    candidates: tuple[str, ...]
    prompt: str
    shown: frozenset[str]


def fault_of_question(source: str, translation: str, rules: Rules) -> Fault | None:
    """The first rule that the translation of a question breaks; None when it breaks none."""
    if not question_key(translation):
        return Fault("empty")
    if question_key(translation) == question_key(source):
        return Fault("untranslated", "equal to its source")
    if found := _leaked(source, translation, rules):
        return found
    if not in_language(translation, rules.target, rules.candidates):
        return Fault("wrong_language", f"not in {rules.target}")
    asks = source.rstrip()[-1:] in tuple(MARKS)
    if asks and rules.target not in UNMARKED and not any(m in translation for m in MARKS):
        return Fault("not_a_question", "the source asks")
    return _numbers(source, translation, rules) or _length(source, translation, rules, 8)


def fault_of_answer(source: str, translation: str, rules: Rules) -> Fault | None:
    """The same for its answer, which may be a name, and so equal to its source and of no language."""
    if not question_key(translation):
        return Fault("empty", "answer")
    found = (
        _leaked(source, translation, rules)
        or _numbers(source, translation, rules)
        or _length(source, translation, rules, 20)
    )
    return found and Fault(found.reason, f"answer: {found.detail}")


def in_language(text: str, language: str, candidates: tuple[str, ...]) -> bool:
    """Whether a text is in a language, foreign names in it aside; too short a text is let pass."""
    found = identify(text, candidates)
    own = OWN_SCRIPT.get(language)
    return found in (language, NEUTRAL) or (own is not None and scripts(text)[own] >= LEAST_OWN)


def _leaked(source: str, translation: str, rules: Rules) -> Fault | None:
    if (found := _TALK.search(translation)) and not _TALK.search(source):
        return Fault("leaked_instruction", found.group().strip()[:40] or "several lines")
    if question_key(translation) in rules.shown:
        return Fault("leaked_instruction", "the example of the prompt")
    if run := shared_run(translation, rules.prompt):
        return Fault("leaked_instruction", run)
    return None


def _numbers(source: str, translation: str, rules: Rules) -> Fault | None:
    lost = lost_of(source, translation, rules.source, rules.target)
    if lost:
        return Fault("lost_number", _told(lost))
    added = added_of(source, translation, rules.source, rules.target)
    if added:
        return Fault("added_number", _told(added))
    return None


def _told(found: Iterable[Decimal]) -> str:
    return ", ".join(f"{n:f}" for n in found)


def lost_of(source: str, translation: str, source_language: str, language: str) -> list[Decimal]:
    """Numbers of the source that the translation lacks, each as often as it is lacking; ordinals aside."""
    if source_language == "en" and (words(language) or language in ("ja", "zh")):
        return lost_numbers(source, translation, language)
    needed = numbers(_ORDINAL.sub(" ", source), source_language)
    return sorted((needed - numbers(translation, language, words=True)).elements())


def added_of(source: str, translation: str, source_language: str, language: str) -> list[Decimal]:
    """Numbers in digits that the translation has and the source has neither in digits nor in words.

    A source in words without a table ("sieben") may have any small number: up to 20 none counts as added.
    """
    if source_language == "en":
        return added_numbers(source, translation, language)
    known = numbers(source, source_language, words=True)
    told = bool(words(source_language)) or source_language in ("ja", "zh")
    return sorted(n for n in numbers(translation, language) if n not in known and (told or n > 20))


def _length(source: str, translation: str, rules: Rules, slack: int) -> Fault | None:
    """`slack` characters more or less are let pass: short texts differ by more than their ratio."""
    least, most = rules.ratio
    length, low, high = len(translation), least * len(source) - slack, most * len(source) + slack
    if not low <= length <= high:
        return Fault("length_ratio", f"{length} characters for {len(source)}")
    return None


def ratio_of(per_english: Mapping[str, tuple[float, ...]], source: str, target: str) -> tuple[float, float]:
    """Length ratio between two languages from each one's to English, [least, most]."""
    one = (1.0, 1.0)
    (low_s, high_s), (low, high) = (per_english.get(k, one) if k != "en" else one for k in (source, target))
    return low / high_s, high / low_s
