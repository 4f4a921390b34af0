"""A batching client to be killed: asks N questions and writes the answers, sorted, when it gets to the end.

Run: chaos_batches.py URL STORE OUT COUNT [INSTANT:N]: it kills itself with SIGKILL when it comes to the
INSTANT for the N-th time. Instants: see INSTANTS.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from questions import question, settings

from pipelines.llm.backends import batch_taking
from pipelines.llm.backends.batch_ledger import Ledger
from pipelines.llm.backends.batch_office import Office
from pipelines.llm.backends.batch_openai import OpenAIDesk
from pipelines.llm.backends.batch_settings import BatchSettings
from pipelines.llm.client import open_client
from pipelines.llm.store import Store

FILE = 8  # questions in a batch
GROUP = 3  # answers in a commit

# name: (class, method, whether the kill comes before the method or after it)
INSTANTS: dict[str, tuple[type, str, bool]] = {
    "before the intent": (Ledger, "plan", True),
    "before the upload": (OpenAIDesk, "upload", True),
    "after the upload": (OpenAIDesk, "upload", False),
    "before the creation": (OpenAIDesk, "create", True),
    "after the creation": (OpenAIDesk, "create", False),
    "after the id": (Office, "_made", False),
    "while polling": (OpenAIDesk, "look", False),
    "before a commit of answers": (Store, "put", True),
    "after a commit of answers": (Store, "put", False),
    "before the end": (Ledger, "end", True),
    "after the end": (Ledger, "end", False),
}


def arm(instant: str, number: int) -> None:
    """Put the kill at the `number`-th time of `instant`."""
    owner, name, before = INSTANTS[instant]
    method: Callable[..., Any] = getattr(owner, name)
    times = iter(range(1, 1_000_000))

    def armed(*args: Any, **named: Any) -> Any:
        now = next(times) == number
        if now and before:
            os.kill(os.getpid(), signal.SIGKILL)
        result = method(*args, **named)
        if now:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, armed)


def main(url: str, store: str, out: str, count: str, kill: str = "") -> None:
    if kill:
        instant, number = kill.split(":")
        arm(instant, int(number))
    batch_taking.GROUP = GROUP
    batch = BatchSettings(poll_s=0.1, poll_max_s=0.2, settle_s=0.3, max_requests=FILE)
    with open_client(settings(url, backend="batch", batch=batch), Path(store)) as client:
        lines = sorted(f"{a.id} {a.text}\n" for a in client.answers(map(question, range(int(count)))))
    Path(out).write_text("".join(lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
