"""Near duplicates among short texts of one language, in time linear in their number.

Law: two texts are near when the Jaccard similarity of their character shingles reaches the threshold and
they differ by added, moved or inflected words only: "the population of Peru" and "the population of Chad"
resemble each other and are not near. Each pair given is so by count, not by estimate. Which pairs are
looked at depends on the two texts alone (MinHash, locality-sensitive hashing), but in crowds: of more than
`CROWD` texts that look alike each meets its neighbours in the order of the alphabet, from both ends.

MinHash: Broder 1997; bands of rows: Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, ch. 3.
The chance to miss a pair of similarity s is (1 - s**ROWS) ** BANDS: at .65 under 0.2 %.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from pipelines.data.duplicates import LONG, WORD_KINDS, fold, unspaced

if TYPE_CHECKING:
    import numpy as np

    from pipelines.data.shingles import Shingles

THRESHOLD = 0.65
ROWS, BANDS = 4, 32
CROWD = 24
HINT = 48  # hashes that tell whether a pair is worth counting
SLACK = 0.22  # how far below the threshold their share may be: three standard deviations


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

    found, alike = shingles(texts, language)
    told = [Pair(a, b, 1.0) for a, b in alike]
    first, second = _candidates(found, threshold)
    similarity = found.jaccard(first, second)
    for a, b, s in zip(first.tolist(), second.tolist(), similarity.tolist(), strict=True):
        if s >= threshold:
            i, j = sorted((int(found.position[a]), int(found.position[b])))
            if same_words(texts[i], texts[j]):
                told.append(Pair(i, j, round(s, 6)))
    return sorted(told)


def same_words(a: str, b: str) -> bool:
    """True when one text has all the words of the other, inflection and typing errors aside.

    A word stands for another when both have `LONG` letters and the same first one, and one letter is added,
    lost or changed, or two neighbours are swapped. Words that are added hold no digit. In a script without
    blanks each character is a word.
    """
    ours, theirs = Counter(words(a)), Counter(words(b))
    left, right = list((ours - theirs).elements()), list((theirs - ours).elements())
    for word in list(left):
        twin = next((w for w in right if _resembles(word, w)), None)
        if twin is not None:
            left.remove(word)
            right.remove(twin)
    return not (left and right) and not any(c.isdigit() for word in left or right for c in word)


def words(text: str) -> list[str]:
    """The words of a text, folded; punctuation and symbols part them."""
    return fold(text).translate(_PARTED).split()


class _Parted(dict[int, str]):
    """What each character becomes where words are told apart; filled as characters are met."""

    def __missing__(self, code: int) -> str:
        in_word = unicodedata.category(chr(code))[0] in WORD_KINDS
        self[code] = (f" {chr(code)} " if unspaced(code) else chr(code)) if in_word else " "
        return self[code]


_PARTED = _Parted()


def _resembles(a: str, b: str) -> bool:
    """One edit apart (Damerau), with no digit in it."""
    if min(len(a), len(b)) < LONG or a[0] != b[0] or abs(len(a) - len(b)) > 1:
        return False
    if any(c.isdigit() for c in a + b):
        return False
    head = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    ours, theirs = a[head:], b[head:]
    lost, added, changed = ours[1:] == theirs, ours == theirs[1:], ours[1:] == theirs[1:]
    return lost or added or changed or (ours[:2] == theirs[:2][::-1] and ours[2:] == theirs[2:])


def _candidates(found: Shingles, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """Pairs first < second worth counting, each once: a band in common, and nothing that rules them out."""
    import numpy as np

    backwards = cache(lambda: np.argsort(np.argsort(np.array([k[::-1] for k in found.keys], dtype=object))))
    hints: list[np.ndarray] = []
    met: list[np.ndarray] = []
    band = np.zeros(len(found), dtype=np.uint32)
    for number, row in enumerate(found.minhash(ROWS * BANDS) if len(found) > 1 else ()):
        if number < HINT:
            hints.append(row)
        band = (band ^ row) * np.uint32(0x9E3779B1)
        band ^= band >> np.uint32(15)
        if number % ROWS == ROWS - 1:
            together = _together(band, backwards)
            met.append(together[found.may_share_words(*_apart(together))])
            band = np.zeros(len(found), dtype=np.uint32)
    first, second = _apart(np.unique(np.concatenate(met)) if met else np.zeros(0, dtype=np.uint64))
    size = np.diff(found.starts)
    likely = np.minimum(size[first], size[second]) >= threshold * np.maximum(size[first], size[second])
    first, second = first[likely], second[likely]
    same = np.zeros(len(first), dtype=np.int16)
    for row in hints:
        same += row[first] == row[second]
    likely = same >= (threshold - SLACK) * HINT
    return first[likely], second[likely]


def _together(band: np.ndarray, backwards: Callable[[], np.ndarray]) -> np.ndarray:
    """Codes first << 32 | second of texts with one value of `band` [n], of a crowd the neighbours.

    `backwards` gives each text's rank by its letters read from the end; the texts' own order is that from
    the beginning.
    """
    import numpy as np

    texts = np.arange(len(band), dtype=np.uint64)
    value, text = _apart(np.sort((band.astype(np.uint64) << np.uint64(32)) | texts))
    found = _neighbours(value, text)
    crowd = np.flatnonzero(value[CROWD:] == value[:-CROWD])
    if len(crowd):
        crowded = np.isin(value, value[crowd])
        value, text = value[crowded], text[crowded]
        order = np.lexsort((backwards()[text], value))
        found += _neighbours(value[order], text[order])
    return np.concatenate(found)


def _neighbours(value: np.ndarray, text: np.ndarray) -> list[np.ndarray]:
    """Codes of the pairs at most `CROWD` apart in runs of one value."""
    import numpy as np

    found = []
    at = np.arange(len(value))
    for step in range(1, CROWD + 1):
        at = at[at + step < len(value)]
        at = at[value[at] == value[at + step]]
        low, high = np.minimum(text[at], text[at + step]), np.maximum(text[at], text[at + step])
        found.append((low.astype(np.uint64) << np.uint64(32)) | high.astype(np.uint64))
        if not len(at):
            break
    return found


def _apart(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The halves of uint64 codes, as positions."""
    import numpy as np

    return (codes >> np.uint64(32)).astype(np.int64), (codes & np.uint64(0xFFFFFFFF)).astype(np.int64)
