"""The label, or the answer, that a model's reply says, and what several replies say together.

Law: one denominator. A reply without a verdict is a wrong one and is counted; it is never left out. The
first verdict of a reply is taken: a base model goes on and invents a next question, whose label is not
the answer's.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from pipelines.data.duplicates import question_key
from pipelines.data.language import numbers
from pipelines.evergreen.schema import EVERGREEN, MUTABLE

UNPARSED = "unparsed"

_WORDS = {
    **dict.fromkeys(("evergreen", "immutable", "never-changing", "unchanging", "timeless"), EVERGREEN),
    **dict.fromkeys(("mutable", "changing", "changeable", "slow-changing", "fast-changing"), MUTABLE),
}
_OPPOSITE = {EVERGREEN: MUTABLE, MUTABLE: EVERGREEN}
_DASHES = re.compile("[\u2010-\u2015\u2212]")
_MARKS = re.compile(r"[*_`\"'“”‘’«»]")
_MARKER = re.compile(r"(?:classification|label|verdict|answer)\s*[:：]", re.IGNORECASE)
_NEXT = re.compile(r"\n\s*\n|\bquestion\s*[:：]")  # behind it a base model invents another question
_VERDICT = re.compile(
    r"(?<![\w-])(?P<no>(?:not|non|never|isn't|isnt)[\s-]+)?"
    rf"(?P<word>{'|'.join(sorted(_WORDS, key=len, reverse=True))})(?![\w-])"
)


def verdict(reply: str) -> str:
    """evergreen | mutable, the first that the reply says (after its marker, if it has one); else unparsed.

    Case, width, dashes and marks of emphasis do not count; "not mutable" is evergreen, "both" is neither.
    """
    text = _MARKS.sub("", _DASHES.sub("-", unicodedata.normalize("NFKC", reply))).casefold()
    head = _NEXT.split(text.strip(), maxsplit=1)[0]
    marker = _MARKER.search(head)
    found = _VERDICT.search(head, marker.end()) if marker else None
    found = found or _VERDICT.search(head) or _VERDICT.search(text)
    if found is None:
        return UNPARSED
    label = _WORDS[found["word"]]
    return _OPPOSITE[label] if found["no"] else label


def agreement(label: str, verdicts: Sequence[str]) -> float:
    """Share of the verdicts that are `label`, in [0, 1]; those unparsed are none. Needs one at least."""
    return sum(v == label for v in verdicts) / len(verdicts)


def objection(label: str, verdicts: Sequence[str], least: float) -> str | None:
    """Why the verdicts do not make `label` one by agreement; None when they do.

    disagreement: the opposite label has more of them than this one; unparsed: more than half say nothing;
    undecided: neither.
    """
    if agreement(label, verdicts) >= least:
        return None
    if agreement(_OPPOSITE[label], verdicts) > agreement(label, verdicts):
        return "disagreement"
    return UNPARSED if 2 * agreement(UNPARSED, verdicts) > 1 else "undecided"


def same_share(answer: str, replies: Sequence[str]) -> float:
    """Share of the replies that say `answer`, in [0, 1]; needs one at least.

    A reply says it when one of the two holds the other, punctuation and case aside, or when both have
    numbers and these are the same.
    """
    return sum(_same(answer, reply) for reply in replies) / len(replies)


def _same(answer: str, reply: str) -> bool:
    own, other = question_key(answer), question_key(reply)
    if not own or not other:
        return False
    said, told = numbers(answer, "en", words=True), numbers(reply, "en", words=True)
    if said or told:
        return set(said) == set(told)
    return own in other or other in own
