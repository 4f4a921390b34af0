"""Lexical diversity: the moving-average type-token ratio (MATTR, section 3.2).

Law: the ratio is an exact fraction of integers, and it is compared as one:
floats put a text that lies exactly at the threshold on the wrong side.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

TOKENISER = "words-casefold-1"  # names the rule below; the paper does not state its own
WORD = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*")


def tokens(text: str) -> list[str]:
    """Words: runs of letters and digits, inner hyphens and apostrophes kept, NFC, case folded."""
    return WORD.findall(unicodedata.normalize("NFC", text).casefold())


def mattr(words: Sequence[str], window: int) -> Fraction:
    """Mean share of different words over all windows of `window` words, stride 1; O(n).

    A text of n < window words is one window of n words (ours; its score is comparable only to
    texts of like length, so report n). An empty text scores 0. Raises ValueError for window < 1.
    """
    if window < 1:
        raise ValueError("a window holds at least one word")
    n = len(words)
    w = min(window, n)
    if n == 0:
        return Fraction(0)
    counts = Counter(words[:w])
    unique = total = len(counts)
    for leaving, coming in zip(words, words[w:], strict=False):
        counts[leaving] -= 1
        unique -= counts[leaving] == 0
        unique += counts[coming] == 0
        counts[coming] += 1
        total += unique
    return Fraction(total, (n - w + 1) * w)
