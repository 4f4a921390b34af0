"""How batches are cut, watched and finished: the section `llm.batch` of params.yaml.

Law: none of it changes an answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.errors import ConfigError, nearest

RESTS = ("single", "fail")


@dataclass(frozen=True)
class BatchSettings:
    """Limits of one file, the watch, and who asks what a batch left over.

    rest: `single` asks it one by one, of the endpoint itself or of a vLLM server; `fail` ends those
    rows as failed for a passing cause, so that the next run puts them into a new batch.
    """

    rest: str = "single"
    deadline_s: float = 0.0  # after it a batch is cancelled and the rest goes on; 0: the seller's own
    price_share: float = 0.5  # of the price of a single question; what runs here has no such discount
    poll_s: float = 5.0  # to the first look at a batch; grows by half with each further look
    poll_max_s: float = 120.0
    settle_s: float = 10.0  # a batch whose making was cut off may appear in the seller's list this late
    window: int = 100_000  # requests gathered before the first file is sent
    max_requests: int = 50_000  # of one file
    max_mb: float = 200.0  # of one file, in 10^6 bytes
    local_requests: int = 5_000  # of one start of `vllm run-batch`, which may write only at its end

    def __post_init__(self) -> None:
        if self.rest not in RESTS:
            raise ConfigError(
                f"unknown value {self.rest!r}",
                where="params.yaml: llm.batch.rest",
                cure=nearest(self.rest, RESTS),
            )
        if not 0 <= self.price_share <= 1:
            raise ConfigError("must lie in [0, 1]", where="params.yaml: llm.batch.price_share")
        for name in ("poll_s", "poll_max_s", "window", "max_requests", "max_mb", "local_requests"):
            if getattr(self, name) <= 0:
                raise ConfigError("must be above 0", where=f"params.yaml: llm.batch.{name}")
