"""Which half a video belongs to, and where the right option stands.

Law: a split is decided by its key alone (wearer, else video), never by its neighbours;
positions are dealt out in the order of hashes, so each letter is right for a quarter of
the questions to within one, in every split, modality and kind, whatever the input's order.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.data.rows import digest

LETTERS = "ABCD"


def split_of(key: str, seed: int, bench_share: float) -> str:
    """ "bench" for a share of all keys, else "train"."""
    at = int(digest("split", seed, key), 16) / 16**24
    return "bench" if at < bench_share else "train"


def deal(questions: Sequence[tuple[tuple[str, ...], str]], seed: int, places: int = 4) -> dict[str, int]:
    """Place of the right option for each question, given as (group, key): key -> 0 .. places - 1.

    Sorted by group, then by hash, the places go round: over all, and in each group, counts differ by
    at most one. Keys must differ.
    """
    order = sorted(questions, key=lambda q: (q[0], digest("place", seed, q[1]), q[1]))
    return {key: n % places for n, (_, key) in enumerate(order)}


def by_hash(keys: Sequence[str], seed: int, *context: str) -> list[str]:
    """Keys in an order that only they, the seed and the context decide."""
    return sorted(keys, key=lambda k: (digest("order", seed, *context, k), k))
