"""Hidden states of texts below the layers that are trained, kept in a folder outside the outs.

Law: a state is named by encoder, cut, prefix, length and text; what is kept is never computed again,
and whether it was kept changes nothing. A shard is whole or absent; a killed run keeps its shards.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.data.rows import digest
from pipelines.data.tables import replace
from pipelines.evergreen.eg_e5.encoder import Encoder

if TYPE_CHECKING:
    import numpy as np

SHARD = 2048  # texts
Count = Callable[[int], None]  # how many more were done


@dataclass(frozen=True)
class Below:
    """How texts come to the trained layers: the frozen layers below `cut`, after a prefix."""

    encoder: Encoder
    cut: int
    prefix: str = "query: "
    most: int = 48  # tokens of a text; longer ones are cut

    @property
    def identity(self) -> str:
        return digest("hidden", self.encoder.identity, self.cut, self.prefix, self.most)

    def compute(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Float16 [its tokens, H] of each text."""
        return self.encoder.lower(self.encoder.tokens(texts, self.prefix, self.most), self.cut)


@dataclass
class Hidden:
    """The states of texts, from `folder` where they are kept (None: nothing is), else computed."""

    below: Below
    folder: Path | None = None
    _known: dict[bytes, np.ndarray] = field(default_factory=dict)
    _read: bool = False

    def of(self, texts: Sequence[str], count: Count | None = None) -> list[np.ndarray]:
        """Float16 [its tokens, H] of each text, in their order. `count` is told what is computed."""
        fresh = self.missing(texts)
        names = [_name(t) for t in texts]
        computed: dict[bytes, np.ndarray] = {}
        missing = sorted(fresh)
        for start in range(0, len(missing), SHARD):
            part = missing[start : start + SHARD]
            states = self.below.compute([fresh[n] for n in part])
            computed.update(zip(part, states, strict=True))
            if self._folder is not None:
                _write(self._folder, part, states)
            if count is not None:
                count(len(part))
        if self._folder is not None:
            self._known |= computed
        return [self._known[n] if n in self._known else computed[n] for n in names]

    def missing(self, texts: Sequence[str]) -> dict[bytes, str]:
        """The different texts that are not kept, by name."""
        if self._folder is not None and not self._read:
            self._read = True
            for path in sorted(self._folder.glob("*.npz")):
                self._known.update(_shard(path))
        named = {_name(t): t for t in texts}
        return {n: t for n, t in named.items() if n not in self._known}

    @property
    def _folder(self) -> Path | None:
        return None if self.folder is None else self.folder / self.below.identity


def _name(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()[:12]


def _write(folder: Path, names: Sequence[bytes], states: Sequence[np.ndarray]) -> None:
    import numpy as np

    def put(beside: Path) -> None:
        with open(beside, "wb") as file:
            np.savez(
                file,
                names=np.frombuffer(b"".join(names), np.uint8).reshape(len(names), -1),
                lengths=np.array([len(s) for s in states], np.int64),
                states=np.concatenate(list(states)),
            )

    content = hashlib.sha256(b"".join(names)).hexdigest()[:24]
    replace(folder / f"{content}.npz", put)


def _shard(path: Path) -> Iterator[tuple[bytes, np.ndarray]]:
    """What a shard holds; one that cannot be read (of a dying disk) holds nothing."""
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as shard:
            names, lengths, states = shard["names"], shard["lengths"], shard["states"]
        if len(names) != len(lengths) or lengths.sum() != len(states):
            return
    except Exception:  # zip, npy and shape faults have no common class
        return
    ends = np.cumsum(lengths)
    for name, end, length in zip(names, ends.tolist(), lengths.tolist(), strict=True):
        yield name.tobytes(), states[end - length : end]
