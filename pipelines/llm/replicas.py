"""Which replica takes a request: the one that has its prefix cached, as long as that is fair.

Law: a request goes to a live replica whenever there is one. Requests whose prompts share their
first PREFIX_CHARS go to the same replica (rendezvous hashing) while its load is within the bound;
beyond it, to the least loaded one. The death of a replica moves only the requests that were its
own, and its return only brings those back.

The prefix is longer than a prompt template and its examples, so that the questions of one stage
are spread over the replicas while the samples of one question stay together, and shorter than the
long documents and conversations about which several questions are asked.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

PREFIX_CHARS = 2048
BOUND = 1.25  # of the mean load of the live replicas
FREE = 4  # requests in flight that a replica takes whatever the mean: it answers them as one batch


class Replicas:
    """Replicas 0 .. count - 1, at first all down. Counts what each has in flight."""

    def __init__(self, count: int) -> None:
        self.loads = [0] * count  # requests in flight
        self._live: set[int] = set()

    @property
    def live(self) -> Sequence[int]:
        """The replicas that may be chosen, ascending."""
        return sorted(self._live)

    def up(self, replica: int) -> None:
        """It answers (again)."""
        self._live.add(replica)

    def down(self, replica: int) -> None:
        """It answers no more; what it has in flight is still to be told as left."""
        self._live.discard(replica)

    def take(self, prompt: str) -> int | None:
        """The replica for `prompt`, with its load raised by one; None while none lives."""
        if not self._live:
            return None
        chosen = max(self._live, key=lambda r: _weight(prompt[:PREFIX_CHARS], r))
        if self.loads[chosen] >= self.room():
            # Samples of one question stay together also here, as far as loads are equal.
            chosen = min(self._live, key=lambda r: (self.loads[r], _weight(prompt, r)))
        self.loads[chosen] += 1
        return chosen

    def left(self, replica: int) -> None:
        """A request that it took has ended, well or not."""
        if self.loads[replica] <= 0:
            raise ValueError(f"replica {replica} has nothing in flight")
        self.loads[replica] -= 1

    def room(self) -> int:
        """Requests that the next one's preferred replica may have in flight with it, at most."""
        total = sum(self.loads[r] for r in self._live) + 1
        return max(FREE, math.ceil(BOUND * total / len(self._live)))


def _weight(text: str, replica: int) -> bytes:
    """Rendezvous weight: which replica has the highest is drawn by the text alone."""
    return hashlib.blake2b(
        text.encode("utf-8", "surrogatepass"), digest_size=8, salt=str(replica).encode()
    ).digest()
