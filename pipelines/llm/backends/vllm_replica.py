"""One replica of a model: started here, or running already.

Law: `ready` returns only when it answers as itself, and raises only when it is given up for this
run: a server of ours after MAX_STARTS starts, a joined one that stays away for `llm.patience_s`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pipelines.errors import ConfigError, EnvironmentFault
from pipelines.llm.backends import vllm_server
from pipelines.llm.backends.openai import address
from pipelines.llm.backends.vllm_model import Source, child_environment, converted, environment
from pipelines.llm.backends.vllm_server import Server

if TYPE_CHECKING:
    import aiohttp

    from pipelines.llm.settings import Settings

MAX_STARTS = 3  # of one replica in one run
MAX_PORTS = 5  # tried for one start
HUNG_S = 30.0  # for a live server, with which a connection failed, to say that it is well
JOIN_POLL_S = 1.0
STATE = Path(".headrace") / "vllm"  # records and logs of the servers that run


class Member(Protocol):
    """One replica of a model."""

    url: str

    @property
    def alive(self) -> bool:
        """Whether it may be asked; cheap."""
        ...

    async def ready(self) -> None:
        """Wait until it answers, having started it if it is ours. Raises HeadraceError for good."""
        ...

    async def stop(self) -> None: ...


class Started:
    """A replica that runs here. `prepared` gives its command, once, for all replicas of the model."""

    def __init__(self, name: str, number: int, prepared: Prepared, settings: Settings) -> None:
        self.url = ""
        self._name, self._number, self._prepared = name, number, prepared
        self._limit_s = settings.vllm.start_s
        self._devices = settings.vllm.devices[number] if settings.vllm.devices else None
        self._server: Server | None = None
        self._starts = 0

    @property
    def alive(self) -> bool:
        return self._server is not None and self._server.alive

    async def ready(self) -> None:
        command, told = await self._prepared.command()
        if self._server is not None:
            if await vllm_server.wait_ready(self._server, HUNG_S):
                return  # the connection failed, not the server
            await self._end(f"the server of {self._name} died or hung {self._starts} times")
        variables = told if self._devices is None else told | {"CUDA_VISIBLE_DEVICES": self._devices}
        self._starts += 1
        for _ in range(MAX_PORTS):
            port = vllm_server.free_port()
            self._server = vllm_server.start(command, self._name, self._prepared.state, variables, port)
            if await vllm_server.wait_ready(self._server, self._limit_s):
                self.url = self._server.url
                return
            if self._server.alive or not self._server.port_was_taken:
                break
            await self.stop()
        late = "" if self._server is None or not self._server.alive else f" in {self._limit_s:g} s"
        await self._end(f"the server of {self._name} did not start{late}", final=True)

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(server.stop)

    async def _end(self, what: str, final: bool = False) -> None:
        """End the server; raises, with its log, if it is not to be started again."""
        server = self._server
        if final or self._starts >= MAX_STARTS:
            code, tail, kept = "", "no free port was found", self._prepared.state / "failed.log"
            if server is not None:
                code, tail = f" (exit {server.process.poll()})", server.tail()
                with contextlib.suppress(OSError):
                    server.log.replace(kept)
            await self.stop()
            cure = "see that log; then free memory, or change llm.vllm.args or the model"
            raise EnvironmentFault(f"{what}{code}: {tail}", where=str(kept), cure=cure)
        await self.stop()


class Prepared:
    """What all replicas of one model share: its weights made ready, and how to start a server."""

    def __init__(self, model: Source, settings: Settings) -> None:
        self.state = STATE.absolute()
        self._model, self._settings = model, settings
        self._made: asyncio.Task[tuple[list[str], dict[str, str]]] | None = None

    async def command(self) -> tuple[list[str], dict[str, str]]:
        """The command without address and names, and its environment. Raises EnvironmentFault."""
        if self._made is None:
            self._made = asyncio.create_task(asyncio.to_thread(self._make))
        return await asyncio.shield(self._made)

    def _make(self) -> tuple[list[str], dict[str, str]]:
        told = self._settings.vllm
        python = environment(told)
        for model in vllm_server.end_orphans(self.state):
            print(f"  vllm: ended a server of {model} that an earlier run left", file=sys.stderr)
        variables = child_environment() | {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "SPT_NOENV": "1"}
        weights = self._model.folder
        if self._model.registered is not None:
            weights = converted(self._model.registered, python)
        command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--generation-config", "vllm"]
        command += ["--model", str(weights or self._model.hub)]
        if weights is None:  # the hub may be reached, or its cache is enough
            variables.pop("HF_HUB_OFFLINE")
            variables.pop("TRANSFORMERS_OFFLINE")
            command += ["--revision", self._model.revision] if self._model.revision else []
        if not told.python:  # the environment of `make vllm` is vLLM for CPU
            command += ["--enforce-eager"] if "--enforce-eager" not in told.args else []
            variables = cpu_variables(told.replicas) | variables
        return [*command, *told.args], variables


class Joined:
    """A replica that runs already, anywhere."""

    def __init__(self, url: str, model: str, settings: Settings) -> None:
        self.url = address(url, "llm.vllm.urls")
        self.alive = True  # nothing is known but by asking
        self._model, self._settings = model, settings
        self._seen = False

    async def ready(self) -> None:
        import aiohttp

        from pipelines.llm.secret import Secret
        from pipelines.llm.transport import safe

        key = Secret.from_environment().value
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limit = aiohttp.ClientTimeout(total=vllm_server.PROBE_S)
        patience_s = self._settings.patience_s if self._seen else self._settings.connect_timeout_s
        async with aiohttp.ClientSession(timeout=limit, headers=headers, trust_env=True) as session:
            if not await self._comes(session, patience_s):
                cure = "start it, or take it out of llm.vllm.urls"
                what = f"the vLLM server does not answer in {patience_s:g} s"
                raise EnvironmentFault(what, where=safe(self.url), cure=cure)
            names = await vllm_server.served(session, self.url)
        if names and self._model not in names:
            what = f"serves {', '.join(names)}, not {self._model}"
            raise ConfigError(
                what, where=safe(self.url), cure="set llm.model, or take it out of llm.vllm.urls"
            )
        self._seen = True

    async def _comes(self, session: aiohttp.ClientSession, patience_s: float) -> bool:
        loop = asyncio.get_running_loop()
        until = loop.time() + patience_s
        while not await vllm_server.healthy(session, self.url):
            if loop.time() > until:
                return False
            await asyncio.sleep(min(JOIN_POLL_S, patience_s))
        return True

    async def stop(self) -> None:
        """It is not ours to stop."""


def cpu_variables(replicas: int) -> dict[str, str]:
    """What vLLM on CPU needs unless the environment says otherwise: a share of the cores, a small cache."""
    threads = max(1, (len(os.sched_getaffinity(0)) - 1) // replicas)  # a busy core stalls all of them
    return {
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GB
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(threads),
    }
