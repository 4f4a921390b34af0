"""Short texts as arrays: character shingles, their MinHash, and which words a text may have.

Law: all of it is a function of each text alone. Texts are folded as by `question_key`; a shingle is a run
of `width` letters and digits with what stands between them left out.

A text becomes the set of the 32-bit hashes of its shingles; two shingles of one text in 10^6 fall together.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.data.duplicates import HEAD, LONG, UNSPACED_LANGUAGES, WORD_KINDS, fold, unspaced

Array = np.ndarray

WIDTH, UNSPACED_WIDTH = 3, 2  # an ideograph says as much as some letters
BLOCK, CELLS = 2048, 2**20  # texts hashed at a time, and their shingles: what a processor keeps at hand
_END = 10  # the code between two texts
_OTHER, _LETTER, _ALONE = 0, 1, 2
_ODD = np.uint32(0x9E3779B1)


@dataclass(frozen=True)
class Shingles:
    """Distinct texts in alphabetical order of their keys, n of them.

    `folded`: the texts. `position`: int [n], where each stood first. `runs`: uint32, the hashes of the
    shingles, those of text i at `begin[i] : begin[i] + size[i]`, perhaps some twice. `words`: uint64
    [2, 4, n], twice a bit of 256 for each word as far as it must recur.
    """

    keys: Sequence[str]
    folded: Sequence[str]
    position: Array
    runs: Array
    begin: Array
    size: Array
    words: Array

    def __len__(self) -> int:
        return len(self.keys)

    def minhash(self, count: int) -> Array:
        """uint32 [count, n]: for each of so many hash functions the least value of each text."""
        found = np.empty((count, len(self)), dtype=np.uint32)
        factors = [_factor(number) for number in range(count)]
        order = np.argsort(self.size, kind="stable")
        at = 0
        while at < len(order):
            longest = self.size[order[min(at + BLOCK, len(order)) - 1]]
            texts = order[at : at + max(1, min(BLOCK, CELLS // int(longest)))]
            last = self.size[texts] - 1
            steps = np.minimum(np.arange(last.max() + 1)[:, None], last)  # the last again where none is left
            block = self.runs[self.begin[texts] + steps]
            turned = np.empty_like(block)
            for number, factor in enumerate(factors):
                np.multiply(block, factor, out=turned)
                found[number, texts] = turned.min(axis=0)
            at += len(texts)
        return found

    def of(self, text: int) -> frozenset[int]:
        """The hashes of the distinct shingles of a text: two of a hundred fall together once in a million."""
        begin = self.begin[text]
        return frozenset(self.runs[begin : begin + self.size[text]].tolist())

    def may_share_words(self, first: Array, second: Array, look: int) -> Array:
        """False [m] for pairs that `near.same_words` cannot hold for; `look` 0 or 1 sees others."""
        parts = self.words[look]
        left = np.flatnonzero(_one_has_all([np.bitwise_or.reduce(parts)], first, second))  # few are
        may = np.zeros(len(first), dtype=bool)
        may[left] = _one_has_all(parts, first.take(left), second.take(left))
        return may


def shingles(texts: Sequence[str], language: str) -> tuple[Shingles, Array]:
    """The distinct texts, and for each text where its key stood first, int [len(texts)]; -1 without words."""
    folded = [fold(text) for text in texts]
    codes = _codes(folded)
    if np.count_nonzero(codes == _END) > len(folded):
        codes = _codes([text.replace("\n", " ") for text in folded])
    kinds = _kinds(codes)
    whole = codes[(kinds != _OTHER) | (codes == _END)].tobytes().decode("utf-32-le")
    keyed = whole.split("\n")[:-1]
    first = dict(zip(reversed(keyed), range(len(keyed) - 1, -1, -1), strict=True))
    stood = np.array([first[key] if key else -1 for key in keyed], dtype=np.int64)
    first.pop("", None)
    keys = sorted(first)
    position = np.array([first[key] for key in keys], dtype=np.int64)
    ours = [folded[at] for at in position.tolist()]
    width = UNSPACED_WIDTH if language in UNSPACED_LANGUAGES else WIDTH
    return Shingles(keys, ours, position, *_runs(keys, width), _word_bits(ours)), stood


def _codes(texts: Sequence[str]) -> Array:
    """Code points uint32 of all texts, each followed by `_END`."""
    joined = "\n".join([*texts, ""])
    return np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def _kinds(codes: Array) -> Array:
    """uint8: `_LETTER`, `_ALONE` for what is a word by itself, `_OTHER` for what is in no word."""
    there = np.zeros(0x110000, dtype=bool)
    there[codes] = True
    table = np.zeros(0x110000, dtype=np.uint8)
    for code in np.flatnonzero(there).tolist():
        if unicodedata.category(chr(code))[0] in WORD_KINDS:
            table[code] = _ALONE if unspaced(code) else _LETTER
    kinds: Array = table[codes]
    return kinds


def _runs(keys: Sequence[str], width: int) -> tuple[Array, Array, Array]:
    """Hashes of all runs of `width` code points, where those of each key begin, how many they are.

    A key that is shorter is one run.
    """
    codes = _codes(keys)
    ends = np.flatnonzero(codes == _END)
    lengths = np.diff(ends, prepend=-1) - 1
    letters = np.where(codes == _END, np.uint32(0), codes)
    runs = letters * _factor(0)
    for step in range(1, width):
        runs[:-step] += letters[step:] * _factor(step)
    short = np.flatnonzero(lengths < width)  # what follows such a key is not its own
    for step in range(1, width):
        own = lengths[short] > step
        at = (ends - lengths)[short]
        after = letters[np.minimum(at + step, len(letters) - 1)]
        runs[at[~own]] -= after[~own] * _factor(step)
    return _mixed(runs), ends - lengths, np.maximum(lengths - width + 1, 1)


def _one_has_all(parts: Iterable[Array], first: Array, second: Array) -> Array:
    """Whether [m] of each pair one has all bits of the other; `parts` are uint64 [n]."""
    ours_alone = theirs_alone = np.zeros(len(first), dtype=np.uint64)
    for part in parts:
        ours, theirs = part.take(first), part.take(second)
        common = ours & theirs
        ours_alone = ours_alone | (ours ^ common)
        theirs_alone = theirs_alone | (theirs ^ common)
    has: Array = (ours_alone == 0) | (theirs_alone == 0)
    return has


def _word_bits(folded: Sequence[str]) -> Array:
    """uint64 [2, 4, n]: two bits of 256 for each word, by its head if it is long, else by all of it."""
    codes = _codes([*(text.replace("\n", " ") for text in folded), " " * LONG])
    kinds = _kinds(codes)
    before = np.concatenate(([_OTHER], kinds[:-1]))
    start = np.flatnonzero((kinds == _ALONE) | ((kinds == _LETTER) & (before != _LETTER)))
    head = value = codes[start] * _factor(0)
    inside = kinds[start] == _LETTER
    for step in range(1, LONG):
        inside &= kinds[start + step] == _LETTER
        value = value + np.where(inside, codes[start + step] * _factor(step), np.uint32(0))
        head = value if step == HEAD - 1 else head
    mixed = _mixed(np.where(inside, head ^ _ODD, value))
    # Each text has a word, so the first word of each is where the texts' counts of words begin.
    ends = np.flatnonzero(codes == _END)[: len(folded)]
    begin = np.searchsorted(start, np.concatenate(([0], ends[:-1])))
    found = np.zeros((2, 4, len(folded)), dtype=np.uint64)
    for look in range(2):
        byte = (mixed >> np.uint32(24 - 8 * look)) & np.uint32(255)
        one = np.uint64(1) << (byte & np.uint32(63)).astype(np.uint64)
        for part in range(4 if len(folded) else 0):
            of_part = np.where(byte >> np.uint32(6) == part, one, np.uint64(0))
            found[look, part] = np.bitwise_or.reduceat(of_part, begin)
    return found


def _mixed(value: Array) -> Array:
    """A bijection of uint32 that lets each bit of the result depend on all (MurmurHash3's last step)."""
    value = (value ^ (value >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    value = (value ^ (value >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    mixed: Array = value ^ (value >> np.uint32(16))
    return mixed


def _factor(number: int) -> np.uint32:
    """An odd factor, the same for ever."""
    return np.uint32(_mixed(np.array([number + 1], dtype=np.uint32) * _ODD)[0] | np.uint32(1))
