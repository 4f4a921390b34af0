"""What the backends `batch` and `vllm-batch` are made of, by the settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.llm.backends.batch import BatchCarrier

if TYPE_CHECKING:
    from pipelines.llm.backends.batch_desk import Desk
    from pipelines.llm.budget import Budget
    from pipelines.llm.claims import Claims
    from pipelines.llm.endpoint import Backend
    from pipelines.llm.settings import Settings
    from pipelines.llm.store import Store
    from pipelines.llm.tally import Spent


def open_carrier(
    settings: Settings,
    backend: Backend,
    store: Store,
    spent: Spent,
    budget: Budget | None,
    claims: Claims,
) -> BatchCarrier:
    """The carrier of the backends `batch` and `vllm-batch`."""
    from pipelines.llm.courier import Courier

    single = settings.batch.rest == "single"
    rest = Courier(backend, settings, store, spent, budget, claims) if single else None
    beat = claims.beat
    if settings.backend == "vllm-batch":
        return BatchCarrier(
            settings, store, spent, lambda: local_desk(settings, store.path), rest, beat, budget
        )
    return BatchCarrier(settings, store, spent, lambda: openai_desk(settings), rest, beat, budget)


def openai_desk(settings: Settings) -> Desk:
    """The Batch API at `llm.base_url`."""
    from pipelines.llm.backends.batch_openai import OpenAIDesk

    return OpenAIDesk(settings.base_url, settings)


def local_desk(settings: Settings, store: Path) -> Desk:
    """`vllm run-batch`, with its files beside the store."""
    from pipelines.llm.backends.batch_vllm import LocalDesk

    return LocalDesk(settings, store.with_name(f"{store.stem}.batches"))
