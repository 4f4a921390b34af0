"""What a client is made of, by its settings. Raises ConfigError for what cannot be."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

from pipelines.llm.backends.embedded import Embedded
from pipelines.llm.backends.openai import OpenAI
from pipelines.llm.backends.replay import Replay
from pipelines.llm.settings import Settings

if TYPE_CHECKING:
    from pipelines.llm.budget import Budget
    from pipelines.llm.endpoint import Backend

BATCHED = ("batch", "vllm-batch")


@dataclass
class Life:
    """Whether a client is open, and where: a forked child has the object, and nothing behind it."""

    closed: bool = False
    starting: RLock = field(default_factory=RLock)
    ending: RLock = field(default_factory=RLock)
    process: int = field(default_factory=os.getpid)

    @property
    def is_here(self) -> bool:
        return os.getpid() == self.process


def budget_of(settings: Settings, store: Path, stage: str, *, ours: bool) -> Budget | None:
    """None where nothing is priced or capped."""
    if not (settings.prices or settings.caps):
        return None
    from pipelines.llm.budget import Budget
    from pipelines.llm.spending import ledger_path

    # A batch goes on without us: all that it holds may be billed.
    in_flight = None if settings.backend in BATCHED else settings.concurrency * settings.samples_per_call
    return Budget(settings.prices, settings.caps, ledger_path(store), stage, ours, in_flight=in_flight)


def backend_of(settings: Settings) -> Backend:
    if settings.backend in ("openai", "batch"):
        return OpenAI(settings.base_url)
    if settings.backend == "replay":
        from pipelines.llm.backends.vllm import Vllm

        return Replay(Vllm(settings).identity)
    if settings.backend in ("vllm", "vllm-batch"):
        from pipelines.llm.backends.vllm import Vllm

        return Vllm(settings)
    return Embedded()  # an unknown model is told with the first question: a stage may only embed
