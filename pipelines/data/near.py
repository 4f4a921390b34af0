"""Near duplicates among short texts of one language, in time linear in their number.

Law: two texts are near when the Jaccard similarity of their character shingles reaches the threshold and
they differ by added, moved or inflected words only: "the population of Peru" and "the population of Chad"
resemble each other and are not near. Each pair given is so by count, not by estimate. Which pairs are
looked at depends on the two texts alone (MinHash, locality-sensitive hashing), but in crowds: of more than
`CROWD` texts that look alike each meets its neighbours in the order of the alphabet, from both ends.

MinHash: Broder 1997; bands of rows: Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, ch. 3.
The chance to miss a pair of similarity s is (1 - s**ROWS) ** BANDS: 2 % at .65, .4 % at .7.
"""

from __future__ import annotations

import gc
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from pipelines.data.duplicates import HEAD, LONG, WORD_KINDS, fold, unspaced

if TYPE_CHECKING:
    import numpy as np

    from pipelines.data.shingles import Shingles

THRESHOLD = 0.65
ROWS, BANDS = 4, 20
CROWD = 5
SLACK = 0.17  # how far below the threshold the share of equal hashes may be: three standard deviations


class Pair(NamedTuple):
    """Texts `first` < `second`, by position, and the Jaccard similarity of their shingles in (0, 1]."""

    first: int
    second: int
    similarity: float


def pairs(texts: Sequence[str], *, threshold: float = THRESHOLD, language: str = "en") -> list[Pair]:
    """The near pairs, sorted. `threshold` in (0, 1].

    Of texts that differ in manner of writing only the first stands for the others: they make a pair with
    it, at 1, and none with each other; so n equal texts give n - 1 pairs. Texts without words have none.
    """
    from pipelines.data.shingles import shingles

    found, stood = shingles(texts, language)
    told = [Pair(first, at, 1.0) for at, first in enumerate(stood.tolist()) if 0 <= first < at]
    first, second = _candidates(found, threshold)
    with _uncollected():
        told += _confirmed(found, first.tolist(), second.tolist(), threshold)
    return sorted(told)


def _confirmed(
    found: Shingles, first: Sequence[int], second: Sequence[int], threshold: float
) -> Iterator[Pair]:
    """Those of the candidates that are near by the definition; the cheaper half of it is looked at first."""
    words_of = {n: frozenset(_parted(found.folded[n])) for n in {*first, *second}}
    shingles_of = cache(found.of)
    position = found.position.tolist()
    for a, b in zip(first, second, strict=True):
        if _same(words_of[a], words_of[b]):
            ours, theirs = shingles_of(a), shingles_of(b)
            common = len(ours & theirs)
            similarity = common / (len(ours) + len(theirs) - common)
            if similarity >= threshold:
                i, j = position[a], position[b]
                yield Pair(min(i, j), max(i, j), round(similarity, 6))


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without a search for cycles: thousands of sets are made, none of which can be in one."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def same_words(a: str, b: str) -> bool:
    """True when one text has all the words of the other, inflection and typing errors aside.

    A word stands for another when both have `LONG` letters and begin with the same `HEAD`, and behind it one
    letter is added, lost or changed, or two neighbours are swapped. Words that are added hold no digit. In a
    script without blanks each character is a word.
    """
    return _same(frozenset(words(a)), frozenset(words(b)))


def _same(ours: frozenset[str], theirs: frozenset[str]) -> bool:
    left, right = ours - theirs, theirs - ours
    if left and right:
        if len(left) == len(right) == 1:
            return _resembles(*left, *right)
        known = {b for b in right if any(_resembles(a, b) for a in left)}
        left = frozenset(a for a in left if not any(_resembles(a, b) for b in known))
        right = right - known
    return not (left and right) and not any(map(str.isdigit, "".join(left or right)))


def words(text: str) -> list[str]:
    """The words of a text, folded; punctuation and symbols part them."""
    return _parted(fold(text))


def _parted(folded: str) -> list[str]:
    return folded.translate(_PARTED).split()


class _Parted(dict[int, str]):
    """What each character becomes where words are told apart; filled as characters are met."""

    def __missing__(self, code: int) -> str:
        in_word = unicodedata.category(chr(code))[0] in WORD_KINDS
        self[code] = (f" {chr(code)} " if unspaced(code) else chr(code)) if in_word else " "
        return self[code]


_PARTED = _Parted()


def _resembles(a: str, b: str) -> bool:
    """One edit apart (Damerau), with no digit in it."""
    if a[:HEAD] != b[:HEAD] or min(len(a), len(b)) < LONG or abs(len(a) - len(b)) > 1:
        return False
    head, shorter = HEAD, min(len(a), len(b))
    while head < shorter and a[head] == b[head]:
        head += 1
    ours, theirs = a[head:], b[head:]
    lost, added, changed = ours[1:] == theirs, ours == theirs[1:], ours[1:] == theirs[1:]
    swapped = ours[:2] == theirs[:2][::-1] and ours[2:] == theirs[2:]
    return (lost or added or changed or swapped) and not any(map(str.isdigit, a + b))


def _candidates(found: Shingles, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """Pairs first < second worth counting, each once: a band in common, and nothing that rules them out."""
    import numpy as np

    if len(found) < 2:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    backwards = cache(lambda: _backwards(found.keys))
    signature = found.minhash(ROWS * BANDS)
    met: list[np.ndarray] = []
    for start in range(0, len(signature), ROWS):
        band = np.zeros(len(found), dtype=np.uint32)
        for row in signature[start : start + ROWS]:
            band = (band ^ row) * np.uint32(0x9E3779B1)
            band ^= band >> np.uint32(15)
        for first, second in _together(band, backwards):
            likely = found.may_share_words(first, second, look=0)
            low, high = first[likely], second[likely]
            met.append((np.minimum(low, high) << 32) | np.maximum(low, high))
    codes = np.sort(np.concatenate(met))
    first, second = _apart(codes[np.flatnonzero(np.concatenate((codes[:1] >= 0, codes[1:] != codes[:-1])))])
    likely = found.may_share_words(first, second, look=1)
    first, second = first[likely], second[likely]
    same = np.zeros(len(first), dtype=np.int16)
    for row in signature:
        same += row.take(first) == row.take(second)
    likely = same >= (threshold - SLACK) * len(signature)
    return first[likely], second[likely]


def _backwards(keys: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Rank of each key in the order of the alphabet from the end, uint64, and the key of each rank."""
    import numpy as np

    turned = [key[::-1] for key in keys]
    by_rank = np.array(sorted(range(len(keys)), key=turned.__getitem__), dtype=np.int64)
    rank = np.empty(len(keys), dtype=np.uint64)
    rank[by_rank] = np.arange(len(keys), dtype=np.uint64)
    return rank, by_rank


def _together(
    band: np.ndarray, backwards: Callable[[], tuple[np.ndarray, np.ndarray]]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs of texts with one value of `band` [n], of a crowd the neighbours; perhaps some twice.

    `backwards` gives the texts' ranks by their letters read from the end, and back; the texts' own order is
    that from the beginning.
    """
    import numpy as np

    texts = np.arange(len(band), dtype=np.uint64)
    value, text = _apart(np.sort((band.astype(np.uint64) << np.uint64(32)) | texts))
    yield from _neighbours(value, text)
    if (value[CROWD:] == value[:-CROWD]).any():
        edges = np.flatnonzero(np.concatenate(([True], value[1:] != value[:-1], [True])))
        runs = np.diff(edges)
        crowded = np.repeat(runs > CROWD, runs)
        rank, by_rank = backwards()
        turned = np.sort((value[crowded].astype(np.uint64) << np.uint64(32)) | rank[text[crowded]])
        value, text = _apart(turned)
        yield from _neighbours(value, by_rank[text])


def _neighbours(value: np.ndarray, text: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The pairs at most `CROWD` apart in runs of one value."""
    import numpy as np

    for step in range(1, CROWD + 1):
        at = np.flatnonzero(value[step:] == value[:-step])
        yield text[at], text[at + step]


def _apart(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The halves of codes of 64 bits, the lower as positions."""
    import numpy as np

    return codes >> 32, (codes & 0xFFFFFFFF).astype(np.int64)
