"""A client to be killed: asks N questions and writes the answers, sorted, when it gets to the end.

Run: chaos_client.py URL STORE OUT COUNT [MOMENT:N], MOMENT in before_commit, in_commit, after_commit:
it kills itself with SIGKILL at that moment of the N-th group of answers.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from questions import question, settings

from pipelines.llm.client import open_client
from pipelines.llm.store import Kept, Record, Store


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(moment: str, number: int) -> None:
    """Put the kill at `moment` of the `number`-th commit."""
    put, write, groups = Store.put, Store._write, iter(range(1, 1_000_000))

    def armed_put(store: Store, records: Sequence[Record]) -> dict[str, Kept]:
        now = next(groups) == number
        if now and moment == "before_commit":
            die()
        if now and moment == "in_commit":
            Store._write = armed_write  # type: ignore[method-assign]
        kept = put(store, records)
        if now:
            die()
        return kept

    @contextmanager
    def armed_write(store: Store) -> Iterator[None]:
        with write(store):
            yield
            die()

    Store.put = armed_put  # type: ignore[method-assign]


def main(url: str, store: str, out: str, count: str, kill: str = "") -> None:
    if kill:
        moment, number = kill.split(":")
        arm(moment, int(number))
    with open_client(settings(url, concurrency=4, retries=2), Path(store)) as client:
        lines = sorted(f"{a.id} {a.text}\n" for a in client.answers(map(question, range(int(count)))))
    Path(out).write_text("".join(lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
