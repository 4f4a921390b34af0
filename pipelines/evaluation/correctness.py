"""Whether an answer to a question is right, given the gold answers.

Law: both sides are normalised alike, and a short gold answer does not hide inside a longer word or
number ("5" is not in "15").

Normalisation is SQuAD's: lower case, punctuation and a/an/the taken out, blanks joined. "contains"
is the papers' in-accuracy (evergreen-facts 2.1): a gold alias occurs in the answer; "exact" is exact match.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from pipelines.evaluation.estimates import tokens

RULES = ("contains", "exact")
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalised(text: str) -> str:
    """SQuAD's normal form, with the punctuation of all scripts; a text of articles alone keeps them ("A")."""
    bare = "".join(c for c in unicodedata.normalize("NFKC", text).lower() if not _is_mark(c))
    return " ".join(_ARTICLES.sub(" ", bare).split() or bare.split())


def exact(answer: str, golds: Iterable[str]) -> bool:
    """Whether the answer is one of the gold answers; one that says nothing is none."""
    given = normalised(answer)
    return given != "" and any(given == normalised(gold) for gold in golds)


def contains(answer: str, golds: Iterable[str]) -> bool:
    """Whether a gold answer occurs in the answer, word for word."""
    given = f" {' '.join(tokens(normalised(answer)))} "
    wanted = (" ".join(tokens(normalised(gold))) for gold in golds)
    return any(gold and f" {gold} " in given for gold in wanted)


def right(answer: str, golds: Iterable[str], rule: str) -> bool:
    """By one of `RULES`."""
    return exact(answer, golds) if rule == "exact" else contains(answer, golds)


def _is_mark(c: str) -> bool:
    return unicodedata.category(c)[0] == "P" or c in "$+<=>^`|~"  # ASCII's other punctuation
