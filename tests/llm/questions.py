"""Questions and settings that the tests of model calls share."""

from __future__ import annotations

from pipelines.llm.request import Request, Sampling
from pipelines.llm.settings import Settings


def settings(url: str, **changes: object) -> Settings:
    """Settings for a scripted endpoint, quick to give up."""
    quick = {"first_byte_timeout_s": 1.0, "timeout_s": 5.0, "retries": 3, "patience_s": 20.0}
    return Settings(**({"backend": "openai", "model": "scripted", "base_url": url} | quick | changes))  # type: ignore[arg-type]


def question(number: int, *, sample: int = 0, kind: str = "completion") -> Request:
    """The n-th of many different questions."""
    return Request(
        kind=kind,  # type: ignore[arg-type]
        model="scripted",
        sampling=Sampling(16, temperature=0.7, stop=("\n",)),
        prompt=f"What is {number} + {number}?" if kind == "completion" else None,
        messages=(("user", f"What is {number} + {number}?"),) if kind == "chat" else (),
        sample=sample,
        seed=number * 100 + sample,
        row=f"row{number}",
        purpose="test",
    )
