"""The reward of one reasoning response and its pieces (TRIT, rewards; facts T1, T3 of the design rules).

Law: r is 1, 0.1 or 0. It is 0 as soon as format, language or repetition fails,
whatever the answer; the published code differs there (a repetitive answer earns
0.1) and is not followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.data.language import NEUTRAL, identify
from pipelines.errors import ConfigError, nearest
from pipelines.trit.repetition import Repetition, repetitive

REWARDS = (0.0, 0.1, 1.0)
FORMATS = ("think", "plain")
OPENING, CLOSING = "<think>", "</think>"


@dataclass(frozen=True)
class Spans:
    """A response split by its format. `thinking` is empty for the plain format."""

    thinking: str
    answer: str
    ok: bool  # r_fmt


def reward(fmt: bool, lang: bool, rep: bool, acc: bool) -> float:
    """1 if all hold, 0.1 if only the answer is wrong, else 0 (T1)."""
    return (1.0 if acc else 0.1) if fmt and lang and rep else 0.0


def split(text: str, form: str, *, opened: bool = False) -> Spans:
    """The spans of a response and r_fmt.

    think: one opening tag (in the text, or `opened` by the prompt), one closing tag,
    both spans non-empty, in this order. plain: a completion without tags, one
    non-empty line. Raises ConfigError for an unknown format.
    """
    if form == "plain":
        body = text.strip()
        return Spans("", body, bool(body) and "\n" not in body)
    if form != "think":
        raise ConfigError(f"unknown format {form!r}", where="trit.reason.format", cure=nearest(form, FORMATS))
    body = text.strip()
    inner = body.removeprefix(OPENING)  # never strip(): that eats letters of the text (T9)
    has_opening = opened or inner != body
    thinking, closing, answer = inner.partition(CLOSING)
    once = OPENING not in inner and CLOSING not in answer and bool(closing)
    thinking, answer = thinking.strip(), answer.strip()
    return Spans(thinking, answer, has_opening and once and bool(thinking) and bool(answer))


def in_language(spans: Spans, language: str, candidates: Sequence[str], fewest_letters: int) -> bool:
    """r_lang: each span is in the language, or holds too few letters outside mathematics to tell."""
    parts = [part for part in (spans.thinking, spans.answer) if part]
    found = [identify(part, candidates, fewest_letters=fewest_letters) for part in parts]
    return bool(found) and all(f in (language, NEUTRAL) for f in found)


def not_repetitive(text: str, preset: Repetition) -> bool:
    """r_rep over the whole response."""
    return not repetitive(text, preset)
