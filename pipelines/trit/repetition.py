"""Degenerate repetition in a response (r_rep; TRIT section on rewards, facts 1.1 and T8).

Law: a response is repetitive when a run of 20 tokens comes back often AND the
same unit stands many times in a row, or when one long line comes back. Two
named presets differ in the counts alone.

Unit: our own token (the paper counts those of one tokenizer for every model): a
run of letters or digits, or one sign; in scripts without blanks one character.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_TOKEN = re.compile(
    r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff]|\w(?:(?![\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff])\w)*|\S"
)


@dataclass(frozen=True)
class Repetition:
    """Counts from which a response is repetitive. `ngram` in tokens, `line` in characters."""

    times: int  # of the commonest n-gram, and of the unit in a row
    ngram: int = 20
    period: int = 2  # shortest unit in a row, in tokens
    line: int = 20
    line_times: int = 6


PRESETS = {"train": Repetition(times=6), "eval": Repetition(times=20)}


def tokens(text: str) -> list[str]:
    """Tokens of a text, in order; see the module's docstring for the unit."""
    return _TOKEN.findall(text)


def commonest(sequence: Sequence[str], n: int) -> int:
    """How often the commonest run of n tokens occurs, overlaps counted; 0 for a shorter sequence."""
    grams = Counter(tuple(sequence[i : i + n]) for i in range(len(sequence) - n + 1))
    return max(grams.values(), default=0)


def in_a_row(sequence: Sequence[str], period: int, times: int) -> bool:
    """True when some unit of at least `period` tokens stands `times` times one after the other."""
    for p in range(period, len(sequence) // times + 1):
        run = 0
        for i in range(len(sequence) - p):
            run = run + 1 if sequence[i] == sequence[i + p] else 0
            if run >= p * (times - 1):
                return True
    return False


def repetitive(text: str, preset: Repetition) -> bool:
    """True when either detector flags the whole response."""
    lines = Counter(line.strip() for line in text.split("\n") if len(line.strip()) >= preset.line)
    if max(lines.values(), default=0) >= preset.line_times:
        return True
    sequence = tokens(text)
    if commonest(sequence, preset.ngram) < preset.times:
        return False
    return in_a_row(sequence, preset.period, preset.times)
