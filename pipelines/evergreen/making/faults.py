"""What a rule says against a text that a model wrote, and what such rules look at.

Law: pure; a fault has a reason of one stable word, so that faults can be counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MARKS = "?？؟"
RUN = 6  # words in a row that a text shares with its prompt only by copying it


@dataclass(frozen=True)
class Fault:
    """Why a candidate is none: a reason of one word, and what was seen."""

    reason: str
    detail: str = ""


def shared_run(text: str, prompt: str, run: int = RUN) -> str:
    """The first `run` words in a row that `text` has from `prompt`; "" when there are none."""
    words, known = _folded(text), _folded(prompt)
    runs = {tuple(known[i : i + run]) for i in range(len(known) - run + 1)}
    found = (tuple(words[i : i + run]) for i in range(len(words) - run + 1))
    return next((" ".join(w) for w in found if w in runs), "")


def _folded(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def count_words(text: str) -> int:
    """Words; in a script without blanks two characters count as one."""
    dense = sum("\u3040" <= c <= "\u9fff" or "\u0e01" <= c <= "\u0e5b" for c in text)
    return max(len(text.split()), dense // 2)
