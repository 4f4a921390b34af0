"""Which question and answer of a model are fit to be a row, by rule; and how many are wanted.

Law: pure. What a rule can tell is told here with a reason of one word; what no rule can tell (whether the
answer is right, whether the label is) is left to `verify`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from pipelines.data.duplicates import question_key
from pipelines.data.language import NEUTRAL, identify
from pipelines.errors import ConfigError
from pipelines.evergreen.making.faults import MARKS, Fault, count_words, shared_run
from pipelines.evergreen.schema import FAST, NEVER, SLOW, UNKNOWN

RATES = (NEVER, SLOW, FAST)

_INSTRUCTION = re.compile(
    r"\b(?:json|change rates?|never[- ]changing|slow[- ]changing|fast[- ]changing|evergreen|mutable"
    r"|question[- ]answer|(?:this|the (?:above|following|next)) (?:topic|prompt|instruction|question|example)"
    r"|language model|an ai\b|ai assistant|placeholder)|[\[{<][\w ]{2,30}[\]}>]",
    re.IGNORECASE,
)
_NO_ANSWER = re.compile(
    r"\b(?:as an ai|i (?:do not|don't|cannot|can't|am unable)|not (?:available|known|specified|applicable)"
    r"|n/a|tbd|unknown|it (?:depends|varies)|no answer|varies)\b|^(?:\W*|\.{2,})$",
    re.IGNORECASE,
)
_NOW = re.compile(
    r"\b(?:current(?:ly)?|latest|newest|most recent(?:ly)?|right now|at the moment|today|tonight|tomorrow"
    r"|now|nowadays|this (?:week|month|year|season)|these days|so far|next (?:week|month|year|season))\b",
    re.IGNORECASE,
)
_PAST_YEAR = re.compile(
    r"\b(?:in|of|since|from|during|before|after|until)\s+(?:the year\s+)?(?:1\d{3}|200\d|201\d)\b"
)


@dataclass(frozen=True)
class Rules:
    """What a candidate is held against. `shown`: questions of the prompt; `prompt`: its whole text."""

    language: str
    candidates: tuple[str, ...]
    shown: frozenset[str]  # question keys
    prompt: str
    longest_question: int  # characters
    longest_answer: int
    fewest_words: int = 3


def fault(question: str, answer: str, rate: str, rules: Rules) -> Fault | None:
    """The first rule that a question and its answer break; None when they break none."""
    return _of_question(question, rules) or _of_answer(question, answer, rules) or _of_rate(question, rate)


def _of_question(question: str, rules: Rules) -> Fault | None:
    if not question_key(question):
        return Fault("empty_question")
    if found := _INSTRUCTION.search(question):
        return Fault("about_the_instruction", found.group())
    marks = sum(question.count(m) for m in MARKS)
    if marks != 1 or question.rstrip(" \"'”»)")[-1:] not in tuple(MARKS):
        return Fault("not_a_question", f"{marks} question marks, one is expected at its end")
    if question_key(question) in rules.shown:
        return Fault("copies_prompt", "an example of the prompt")
    if run := shared_run(question, rules.prompt):
        return Fault("copies_prompt", run)
    if len(question) > rules.longest_question:
        return Fault("too_long", f"{len(question)} characters, at most {rules.longest_question}")
    if count_words(question) < rules.fewest_words:
        return Fault("too_short", f"{count_words(question)} words, at least {rules.fewest_words}")
    found_in = identify(question, rules.candidates)
    if found_in not in (rules.language, NEUTRAL):
        return Fault("wrong_language", f"{found_in}, not {rules.language}")
    return None


def _of_answer(question: str, answer: str, rules: Rules) -> Fault | None:
    key = question_key(answer)
    if not key:
        return Fault("empty_answer")
    if found := _INSTRUCTION.search(answer) or _NO_ANSWER.search(answer.strip()):
        return Fault("no_answer", found.group())
    if key == question_key(question) or answer.rstrip()[-1:] in tuple(MARKS):
        return Fault("no_answer", "it asks")
    if len(answer) > rules.longest_answer:
        return Fault("too_long", f"{len(answer)} characters of answer, at most {rules.longest_answer}")
    if len(key) > 3 and re.search(rf"\b{re.escape(answer.strip().rstrip('.'))}\b", question, re.IGNORECASE):
        return Fault("says_its_answer", answer.strip()[:60])
    return None


def _of_rate(question: str, rate: str) -> Fault | None:
    """What English words of time say against the rate that was asked for."""
    if rate == NEVER and (found := _NOW.search(question)):
        return Fault("against_its_rate", f"{found.group()!r} in a question that never changes")
    if rate in (SLOW, FAST) and (found := _PAST_YEAR.search(question)):
        return Fault("against_its_rate", f"{found.group()!r} in a question that changes")
    return None


def missing(have: Mapping[str, int], shares: Mapping[str, float], total: int = 0) -> dict[str, int]:
    """How many questions of each rate lack for `shares` to hold among `total`, in either direction.

    have: questions by rate; mutable ones of unknown rate stand for slow and fast as `shares` divides
    these. total 0: as many as the fullest rate asks for, so that nothing has to be left out.
    Raises ConfigError unless the shares are of known rates and add up to 1.
    """
    if set(shares) - set(RATES) or abs(sum(shares.values()) - 1) > 1e-6:
        raise ConfigError(
            f"needs shares of {', '.join(RATES)} that add up to 1", where="params.yaml: evergreen.synthesize"
        )
    counted = {r: float(have.get(r, 0)) for r in RATES}
    changing = shares.get(SLOW, 0.0) + shares.get(FAST, 0.0)
    for rate in (SLOW, FAST):
        counted[rate] += have.get(UNKNOWN, 0) * (shares.get(rate, 0.0) / changing if changing else 0.5)
    if not total:
        total = ceil(max((counted[r] / s for r, s in shares.items() if s > 0), default=0) - 1e-9)
    return {r: max(0, round(total * shares.get(r, 0.0) - counted[r] + 1e-9)) for r in RATES}


def capped(wanted: Mapping[str, int], most: int) -> dict[str, int]:
    """`wanted` scaled down to `most` in all, by largest remainder; 0 for no cap."""
    total = sum(wanted.values())
    if not most or total <= most:
        return dict(wanted)
    exact = {r: n * most / total for r, n in wanted.items()}
    got = {r: int(x) for r, x in exact.items()}
    for rate in sorted(exact, key=lambda r: (got[r] - exact[r], r))[: most - sum(got.values())]:
        got[rate] += 1
    return got


def first_of_each(keys: Iterable[str], taken: Iterable[str]) -> list[bool]:
    """For each key, in order: whether neither `taken` nor an earlier one is the same."""
    seen = set(taken)
    fresh: list[bool] = []
    for key in keys:
        fresh.append(key not in seen)
        seen.add(key)
    return fresh


def by_turns(topics: Sequence[str], number: int) -> tuple[str, int]:
    """Topic and sample index of the `number`-th request: each topic once, then each again."""
    return topics[number % len(topics)], number // len(topics)
