"""The most that may be spent: the part `caps` of the section `llm` of params.yaml."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cap:
    """The most that may be spent; None for no cap. Tokens are those of prompts and completions."""

    usd: float | None = None
    tokens: int | None = None


@dataclass(frozen=True)
class Caps:
    """Of one stage in one run, of all stages of a run, of a month (UTC) over one store."""

    stage: Cap = Cap()
    run: Cap = Cap()
    month: Cap = Cap()

    @property
    def named(self) -> dict[str, Cap]:
        return {"stage": self.stage, "run": self.run, "month": self.month}

    @property
    def money(self) -> bool:
        """Whether any of them is in USD."""
        return any(c.usd is not None for c in self.named.values())

    def __bool__(self) -> bool:
        return any(c != Cap() for c in self.named.values())
