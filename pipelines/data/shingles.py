"""Short texts as arrays: character shingles, their MinHash, and which words a text may have.

Law: all of it is a function of each text alone. Texts are folded as by `question_key`; a shingle is a run
of `width` letters and digits with what stands between them left out.

A text becomes the set of the 32-bit hashes of its shingles; two shingles of one text in 10^6 fall together.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.data.duplicates import LONG, WORD_KINDS, fold, unspaced

Array = np.ndarray

WIDTH, UNSPACED_WIDTH = 3, 2  # an ideograph says as much as some letters
UNSPACED_LANGUAGES = ("ja", "km", "lo", "my", "th", "zh")
_END = 10  # the code between two texts
_OTHER, _LETTER, _ALONE = 0, 1, 2
_ODD = np.uint32(0x9E3779B1)


@dataclass(frozen=True)
class Shingles:
    """Distinct texts in alphabetical order of their keys, n of them.

    `position`: int [n], where each stood first. `hashes`: uint32, sorted within each text, those of text i
    at `starts[i]:starts[i + 1]`. `words`: uint64 [2, n], a bit for each word as far as it must recur.
    """

    keys: Sequence[str]
    position: Array
    hashes: Array
    starts: Array
    words: Array

    def __len__(self) -> int:
        return len(self.keys)

    def minhash(self, count: int) -> Iterator[Array]:
        """`count` rows uint32 [n]: for each of so many hash functions the least value of each text."""
        low = self.starts[:-1]
        for number in range(count):
            a, b = _constants(number)
            yield np.minimum.reduceat((self.hashes ^ b) * a, low)

    def jaccard(self, first: Array, second: Array) -> Array:
        """Similarity float [m] of the shingle sets of m pairs, counted."""
        found = np.empty(len(first))
        for at in range(0, len(first), 100_000):  # bounds the memory
            here = slice(at, at + 100_000)
            found[here] = self._jaccard(first[here], second[here])
        return found

    def _jaccard(self, first: Array, second: Array) -> Array:
        size = np.diff(self.starts)
        which = np.concatenate((first, second))
        sizes = size[which]
        pair = np.repeat(np.tile(np.arange(len(first), dtype=np.uint64), 2), sizes)
        within = np.arange(len(pair)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        told = (pair << np.uint64(32)) | self.hashes[np.repeat(self.starts[which], sizes) + within]
        told.sort()
        twice = told[1:][told[1:] == told[:-1]] >> np.uint64(32)
        common = np.bincount(twice.astype(np.int64), minlength=len(first))
        similarity: Array = common / (size[first] + size[second] - common)
        return similarity

    def may_share_words(self, first: Array, second: Array) -> Array:
        """False [m] for pairs that `near.same_words` cannot hold for."""
        a, b = self.words[:, first], self.words[:, second]
        both_lack: Array = (a & ~b).any(axis=0) & (b & ~a).any(axis=0)
        return ~both_lack


def shingles(texts: Sequence[str], language: str) -> tuple[Shingles, list[tuple[int, int]]]:
    """The distinct texts, and (first, later) position of each text that has the key of an earlier one."""
    folded = [fold(t).replace("\n", " ") for t in texts]
    codes = _codes(folded)
    kinds = _kinds(codes)
    whole = codes[(kinds != _OTHER) | (codes == _END)].tobytes().decode("utf-32-le")
    first: dict[str, int] = {}
    alike = []
    for at, key in enumerate(whole.split("\n")[:-1]):
        if key and first.setdefault(key, at) != at:
            alike.append((first[key], at))
    keys = sorted(first)
    if not keys:
        none = np.zeros(0, dtype=np.uint32)
        return Shingles([], none, none, np.zeros(1, dtype=np.int64), np.zeros((2, 0), dtype=np.uint64)), alike
    position = np.array([first[k] for k in keys], dtype=np.int64)
    width = UNSPACED_WIDTH if language in UNSPACED_LANGUAGES else WIDTH
    hashes, starts = _windows(keys, width)
    words = _word_bits([folded[i] for i in position.tolist()])
    return Shingles(keys, position, hashes, starts, words), alike


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


def _windows(keys: Sequence[str], width: int) -> tuple[Array, Array]:
    """Hashes of each key's distinct shingles, and where each key's begin. A short key is one shingle."""
    codes = _codes(keys)
    ends = np.flatnonzero(codes == _END)
    lengths = np.diff(ends, prepend=-1) - 1
    letters = np.where(codes == _END, np.uint32(0), codes)
    value = letters * _constants(0)[0]
    for step in range(1, width):
        value[:-step] += letters[step:] * _constants(step)[0]
    counts = np.maximum(lengths - width + 1, 1)
    text = np.repeat(np.arange(len(keys), dtype=np.uint64), counts)
    begin = np.repeat(ends - lengths - np.cumsum(counts) + counts, counts)
    told = (text << np.uint64(32)) | _mixed(value[begin + np.arange(len(begin))])
    told.sort()
    told = told[np.concatenate(([True], told[1:] != told[:-1]))]
    owners = (told >> np.uint64(32)).astype(np.int64)
    starts = np.concatenate(([0], np.cumsum(np.bincount(owners, minlength=len(keys)))))
    return told.astype(np.uint32), starts  # the low half


def _word_bits(folded: Sequence[str]) -> Array:
    """uint64 [2, n]: a bit of 128 for each word, by its first letter if it is long, else by all of them."""
    codes = _codes([*folded, " " * LONG])
    kinds = _kinds(codes)
    before = np.concatenate(([_OTHER], kinds[:-1]))
    start = np.flatnonzero((kinds == _ALONE) | ((kinds == _LETTER) & (before != _LETTER)))
    value = codes[start] * _constants(0)[0]
    inside = kinds[start] == _LETTER
    for step in range(1, LONG):
        inside &= kinds[start + step] == _LETTER
        value += np.where(inside, codes[start + step] * _constants(step)[0], np.uint32(0))
    bit = _mixed(np.where(inside, codes[start] * _constants(LONG)[0], value)) >> np.uint32(25)
    one = np.uint64(1) << (bit & np.uint32(63)).astype(np.uint64)
    high = bit > 63
    # Each text has a word, so the first word of each is where the texts' counts of words begin.
    ends = np.flatnonzero(codes == _END)[: len(folded)]
    begin = np.searchsorted(start, np.concatenate(([0], ends[:-1])))
    halves = (np.where(high, np.uint64(0), one), np.where(high, one, np.uint64(0)))
    return np.stack([np.bitwise_or.reduceat(half, begin) for half in halves])


def _mixed(value: Array) -> Array:
    """A bijection of uint32 that lets each bit of the result depend on all (MurmurHash3's last step)."""
    value = (value ^ (value >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    value = (value ^ (value >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    mixed: Array = value ^ (value >> np.uint32(16))
    return mixed


def _constants(number: int) -> tuple[np.uint32, np.uint32]:
    """An odd factor and a mask, the same for ever."""
    a, b = _mixed(np.array([2 * number + 1, 2 * number + 2], dtype=np.uint32) * _ODD)
    return np.uint32(a | np.uint32(1)), np.uint32(b)
