"""Which short forms of an answer may stand beside it: the rules that need no model.

Law: an alias says nothing that the long answer does not say, as far as a rule can tell: each of its numbers
(in digits, in words, Roman) is one of the answer's, and each of its words is one of the answer's, a spelling
near to one, an abbreviation of one, or initials of several. Words of the question may stand beside one of
the answer's own ("Vincenzo chess club"). What is no such form is refused with a reason; a true synonym of
other letters ("Holland") is refused too: no rule can tell it from a wrong answer.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from decimal import Decimal
from difflib import SequenceMatcher

from pipelines.data.duplicates import question_key
from pipelines.data.language import numbers
from pipelines.data.numerals import SCALES
from pipelines.evergreen.making.faults import MARKS, Fault, count_words
from pipelines.evergreen.refreshing.history import answer_key

SIMILAR = 0.75  # SequenceMatcher ratio of two spellings of one word: "Moscow", "Moskow"
ABBREVIATED = 4  # letters at most of an abbreviation of one word: "m", "Dr", "Prof"
_SMALL = frozenset(
    "a an the of in at on and by to le la les l de du des d un une et en der die das ein eine von und im el "
    "los las y o il lo gli i e di da do dos das os as em no na van het een".split()
)
_ROMAN = re.compile(r"(?=[MDCLXVI]{2,}$|[VX]$)M{0,3}(CM|CD|D?C{0,3})(XC|XL|L?X{0,3})(IX|IV|V?I{0,3})")
_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
_TALK = re.compile(
    r"^\W*(?:answers?|alias(?:es)?|short forms?|e\.g\.|i\.e\.)\b|[{}\[\]]|\bjson\b", re.IGNORECASE
)


def sifted(
    told: Sequence[str], question: str, answer: str, language: str, *, longest: int, most: int
) -> tuple[list[str], list[tuple[str, Fault]]]:
    """The aliases that may stand, in the order told, `most` at most; those refused, each with its fault."""
    kept: list[str] = []
    refused: list[tuple[str, Fault]] = []
    keys: set[str] = set()
    for text in (" ".join(t.split()).strip(" ;,") for t in told):
        found = fault(text, question, answer, language, longest)
        if found is None and answer_key(text) in keys:
            found = Fault("repeats", "the same as another")
        if found is None and len(kept) == most:
            found = Fault("too_many", f"{most} are enough")
        if found is not None:
            refused.append((text, found))
            continue
        keys.add(answer_key(text))
        kept.append(text)
    return kept, refused


def fault(alias: str, question: str, answer: str, language: str, longest: int) -> Fault | None:
    """The first rule that an alias breaks; None when it breaks none. `longest`: words."""
    if not question_key(alias):
        return Fault("empty")
    if (
        _TALK.search(alias)
        or alias.rstrip()[-1:] in tuple(MARKS)
        or question_key(alias) == question_key(question)
    ):
        return Fault("no_answer")
    if count_words(alias) > longest:
        return Fault("too_long", f"{count_words(alias)} words, at most {longest}")
    more = sorted(said_numbers(alias, language) - said_numbers(answer, language))
    if more:
        return Fault("added_number", ", ".join(f"{n:f}" for n in more))
    asked = {_fold(w) for w in _words(question)}
    said = {w: _said(w, answer, language) for w in _words(alias)}
    foreign = next((w for w, known in said.items() if not known and _fold(w) not in asked), "")
    if foreign:
        return Fault("not_said", foreign)
    own = any(known and _fold(w) not in asked | _SMALL for w, known in said.items())
    if not own and not all(said.values()):
        return Fault("not_said", "its words are the question's")
    return None


def said_numbers(text: str, language: str) -> set[Decimal]:
    """The numbers in a text: in digits, in words where the language has a table of them, Roman."""
    found = set(numbers(text, language, words=True))
    return found | {Decimal(n) for w in re.findall(r"\w+", text) if (n := roman(w))}


def roman(word: str) -> int:
    """Value of a Roman numeral in capitals, of two letters or more (or V, X); 0 for any other word."""
    if not word or not _ROMAN.fullmatch(word):
        return 0
    values = [_VALUES[c] for c in word]
    return sum(-v if v < max(values[i:]) else v for i, v in enumerate(values))


def _said(word: str, answer: str, language: str) -> bool:
    """Whether an alias's word is one of the answer's in some form."""
    folded = _fold(word)
    theirs = [_fold(w) for w in _words(answer)]
    if folded in theirs or folded in _SMALL:
        return True
    if said_numbers(word, language) or folded in SCALES.get(language, {}):  # its numbers were compared
        return True
    if _dense(word):
        return word in answer
    if any(_near(folded, w) for w in theirs):
        return True
    bare = folded.replace(".", "")
    initials = "".join(w[0] for w in theirs if w not in _SMALL)
    every = "".join(w[0] for w in theirs if w)
    return len(bare) > 1 and (bare in initials or bare in every or bare in "".join(theirs))


def _near(word: str, other: str) -> bool:
    """Two spellings of one word, or one short for the other: its first letter and some that follow."""
    if SequenceMatcher(None, word, other, autojunk=False).ratio() >= SIMILAR:
        return True
    short = word.rstrip(".")
    if not 0 < len(short) <= ABBREVIATED or not other.startswith(short[0]) or len(short) >= len(other):
        return False
    letters = iter(other)
    return all(c in letters for c in short)


def _words(text: str) -> list[str]:
    """Words of a text; a character each in a script without blanks; a possessive's own word."""
    text = re.sub(r"['’]s\b", "", text)
    return re.findall(
        r"[\u3040-\u9fff\u0e01-\u0e5b]|[^\W\u3040-\u9fff\u0e01-\u0e5b]+(?:\.[^\W\d_]\b)*\.?", text
    )


def _dense(word: str) -> bool:
    return "\u3040" <= word[0] <= "\u9fff" or "\u0e01" <= word[0] <= "\u0e5b"


def _fold(word: str) -> str:
    """Case, width and accents aside."""
    plain = unicodedata.normalize("NFKD", word).casefold()
    return "".join(c for c in plain if not unicodedata.combining(c)).rstrip(".")
