"""Short texts as arrays: character shingles, their MinHash, and which words a text may have.

Law: all of it is a function of each text alone. Texts are folded as by `question_key`; a shingle is a run
of `width` letters and digits with what stands between them left out.

A text becomes the set of the 32-bit hashes of its shingles; two shingles of one text in 10^6 fall together.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.data.duplicates import HEAD, LONG, UNSPACED_LANGUAGES, WORD_KINDS, fold, unspaced

Array = np.ndarray

WIDTH, UNSPACED_WIDTH = 3, 2  # an ideograph says as much as some letters
BLOCK = 2048  # texts hashed at a time, of much the same length: what a processor keeps at hand
_END = 10  # the code between two texts
_OTHER, _LETTER, _ALONE = 0, 1, 2
_ODD = np.uint32(0x9E3779B1)


@dataclass(frozen=True)
class Shingles:
    """Distinct texts in alphabetical order of their keys, n of them.

    `folded`: the texts. `position`: int [n], where each stood first. `hashes`: uint32, those of text i at
    `begin[i] : begin[i] + size[i]`, perhaps some twice. `words`: uint64 [2, 4, n], twice a bit of 256 for
    each word as far as it must recur.
    """

    width: int
    keys: Sequence[str]
    folded: Sequence[str]
    position: Array
    hashes: Array
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
        for at in range(0, len(order), BLOCK):
            texts = order[at : at + BLOCK]
            last = self.size[texts] - 1
            steps = np.arange(last.max() + 1)[:, None]
            block = self.hashes[
                self.begin[texts] + np.minimum(steps, last)
            ]  # the last again where none is left
            turned = np.empty_like(block)
            for number, factor in enumerate(factors):
                np.multiply(block, factor, out=turned)
                found[number, texts] = turned.min(axis=0)
        return found

    def of(self, text: int) -> frozenset[str]:
        """The distinct shingles of a text."""
        key, width = self.keys[text], self.width
        return frozenset([key[i : i + width] for i in range(max(1, len(key) - width + 1))])

    def may_share_words(self, first: Array, second: Array, look: int) -> Array:
        """False [m] for pairs that `near.same_words` cannot hold for; `look` 0 or 1 sees others."""
        ours_alone = theirs_alone = np.zeros(len(first), dtype=np.uint64)
        for part in self.words[look]:
            ours, theirs = part.take(first), part.take(second)
            common = ours & theirs
            ours_alone = ours_alone | (ours ^ common)
            theirs_alone = theirs_alone | (theirs ^ common)
        may: Array = (ours_alone == 0) | (theirs_alone == 0)
        return may


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
    position = np.array([first[k] for k in keys], dtype=np.int64)
    width = UNSPACED_WIDTH if language in UNSPACED_LANGUAGES else WIDTH
    ours = [folded[i] for i in position.tolist()]
    return Shingles(width, keys, ours, position, *_windows(keys, width), _word_bits(ours)), alike


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


def _windows(keys: Sequence[str], width: int) -> tuple[Array, Array, Array]:
    """Hashes of all runs of letters, where those of each key begin, how many they are. A short key is one."""
    codes = _codes(keys)
    ends = np.flatnonzero(codes == _END)
    lengths = np.diff(ends, prepend=-1) - 1
    letters = np.where(codes == _END, np.uint32(0), codes)
    value = letters * _factor(0)
    for step in range(1, width):
        value[:-step] += letters[step:] * _factor(step)
    return _mixed(value), ends - lengths, np.maximum(lengths - width + 1, 1)


def _word_bits(folded: Sequence[str]) -> Array:
    """uint64 [2, 4, n]: two bits of 256 for each word, by its head if it is long, else by all of it."""
    codes = _codes([*folded, " " * LONG])
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
