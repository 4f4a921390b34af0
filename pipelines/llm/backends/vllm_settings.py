"""The section `llm.vllm` of params.yaml, and which of its arguments can change an answer.

Law: two runs share an answer only if vLLM was told the same in all that can change it. An argument
that is not in HARMLESS is part of the model's identity, so an unknown one asks anew.

| left out of the identity                     | why                                              |
|----------------------------------------------|--------------------------------------------------|
| batch sizes, cache sizes, parallelism        | they say how fast, not what                      |
| logging, ports, processes                    | likewise                                         |
| urls, replicas, devices, python              | where it runs                                    |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pipelines.errors import ConfigError

# fmt: off
HARMLESS = frozenset({
    "--max-num-seqs", "--max-num-batched-tokens", "--max-num-partial-prefills", "--enforce-eager",
    "--gpu-memory-utilization", "--kv-cache-memory-bytes", "--swap-space", "--cpu-offload-gb", "--block-size",
    "--enable-prefix-caching", "--no-enable-prefix-caching", "--prefix-caching-hash-algo",
    "--enable-chunked-prefill", "--no-enable-chunked-prefill", "--async-scheduling", "--no-async-scheduling",
    "--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp", "--data-parallel-size", "-dp",
    "--distributed-executor-backend", "--api-server-count", "--load-format", "--download-dir",
    "--max-parallel-loading-workers", "--disable-log-stats", "--uvicorn-log-level",
    "--disable-uvicorn-access-log", "--enable-log-requests", "--no-enable-log-requests",
})
# fmt: on
OURS = frozenset({"--host", "--port", "--model", "--served-model-name", "--uds", "--api-key", "--root-path"})


@dataclass(frozen=True)
class VLLM:
    """Servers that run already (`urls`), else how to start them."""

    urls: tuple[str, ...] = ()  # addresses of replicas that run already; nothing is started then
    replicas: int = 1  # servers to start for each model
    weights: dict[str, str] = field(default_factory=dict)  # model -> a folder, or a hub's NAME@REVISION
    args: tuple[str, ...] = ()  # further arguments of its api_server
    python: str = ""  # of an environment that has vLLM; empty: the one that `make vllm` builds
    devices: tuple[str, ...] = ()  # CUDA_VISIBLE_DEVICES of each replica, such as "0,1"
    start_s: float = 900.0  # for a server to load its model

    def checked(self) -> VLLM:
        """This, when it can be. Raises ConfigError."""
        where = "params.yaml: llm.vllm"
        if self.replicas < 1:
            raise ConfigError(f"must be at least 1, is {self.replicas}", where=f"{where}.replicas")
        if self.start_s <= 0:
            raise ConfigError(f"must be above 0, is {self.start_s}", where=f"{where}.start_s")
        if self.devices and len(self.devices) != self.replicas:
            what = f"names the devices of {len(self.devices)} replicas, there are {self.replicas}"
            raise ConfigError(what, where=f"{where}.devices")
        if len(set(self.urls)) < len(self.urls):
            raise ConfigError("names an address twice", where=f"{where}.urls")
        for option, _ in options(self.args):
            if option in OURS:
                raise ConfigError(
                    f"{option} is not yours to set: each server gets its own", where=f"{where}.args"
                )
        return self

    @property
    def telling(self) -> str:
        """The arguments that can change an answer, in an order of their own; empty if there are none."""
        told = sorted(o for o in options(self.args) if o[0] not in HARMLESS)
        return " ".join(word for option in told for word in option if word)


def options(args: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(option, its values in one string) of a command line; `--a=b` and `--a b` are one spelling."""
    option, values = "", list[str]()
    for word in args:
        if word.startswith("-") and not word[1:2].isdigit():
            if option or values:
                yield option, " ".join(values)
            option, _, value = word.partition("=")
            option = option.replace("_", "-")
            values = [value] if value else []
        else:
            values.append(word)
    if option or values:
        yield option, " ".join(values)
