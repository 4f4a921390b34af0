"""How to reach models: the section `llm` of params.yaml, as the environment overrides it.

Law: a key is never a setting; it comes from the environment alone.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Literal

from pipelines.errors import ConfigError, nearest
from pipelines.llm.backends.batch_settings import BatchSettings
from pipelines.llm.backends.vllm_settings import VLLM
from pipelines.llm.caps import Caps
from pipelines.llm.prices import Price

BACKENDS = ("batch", "embedded", "openai", "replay", "vllm", "vllm-batch")


@dataclass(frozen=True)
class Settings:
    """Where the answers come from. `backend`, `model` and `constrained` change answers, the rest does not.

    backend: embedded | openai | vllm | batch | vllm-batch | replay. The environment wins over params:
    HEADRACE_LLM_BACKEND, HEADRACE_LLM_BASE_URL, HEADRACE_LLM_MODEL; the key of an
    endpoint only ever comes from HEADRACE_LLM_API_KEY (else OPENAI_API_KEY).
    """

    backend: str = "embedded"
    model: str = "smollm2-135m"
    base_url: str = ""
    concurrency: int = 8  # requests in flight; an embedded server takes as many as it has slots
    connect_timeout_s: float = 10.0
    first_byte_timeout_s: float = 120.0
    timeout_s: float = 300.0  # an embedded server, watched as a process, has 15 minutes at least
    retries: int = 4  # of 5xx and time-outs; a 429 never spends it
    patience_s: float = 600.0  # of waiting as 429s tell, per request, then OVERLOADED
    outage_s: float = 60.0  # an endpoint that answered nothing for so long stops the run
    stalled_s: float = 1800.0  # another run that holds a question and gets nowhere is waited for so long
    stream: bool = False  # the first-byte time-out is then of the first token
    samples_per_call: int = 1  # more where the seller charges the prompt each time and honours no seed
    max_tokens_as: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"  # its name in a sold chat
    constrained: bool = True  # decode under a JSON schema; false where the server refuses one
    batch: BatchSettings = field(default_factory=BatchSettings)
    vllm: VLLM = field(default_factory=VLLM)  # for backend vllm
    prices: dict[str, Price] = field(default_factory=dict)  # of each model, USD per million tokens
    caps: Caps = field(default_factory=Caps)  # what a stage, a run, a month may spend


def effective(settings: Settings) -> Settings:
    """`settings` as the environment overrides them. Raises ConfigError for what cannot be."""
    settings = replace(
        settings,
        backend=os.environ.get("HEADRACE_LLM_BACKEND") or settings.backend,
        base_url=os.environ.get("HEADRACE_LLM_BASE_URL") or settings.base_url,
        model=os.environ.get("HEADRACE_LLM_MODEL") or settings.model,
    )
    if settings.backend not in BACKENDS:
        what = f"unknown model backend {settings.backend!r}"
        raise ConfigError(what, where="llm.backend", cure=nearest(settings.backend, BACKENDS))
    for name in (
        "concurrency",
        "samples_per_call",
        "connect_timeout_s",
        "first_byte_timeout_s",
        "timeout_s",
        "stalled_s",
    ):
        value = getattr(settings, name)
        if value <= 0:
            raise ConfigError(f"must be above 0, is {value}", where=f"params.yaml: llm.{name}")
    return settings
