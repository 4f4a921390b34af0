"""One vLLM server: started, known to be ours, ready, ended; and what a crash left behind.

Law: a server is used only when it lists a name that was drawn for it, so whoever else answers at
its port is never taken for it. Each is on record, by a file that names its owner (process and
start time), before it is started; a server whose owner is gone is ended by the next start.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.llm import keeper
from pipelines.llm.backends.openai import at

if TYPE_CHECKING:
    import aiohttp

TAKEN = re.compile(r"address already in use|errno 98", re.IGNORECASE)
ERROR = re.compile(r"\b\w*(?:Error|Exception)\b: .+")
TAIL_CHARS = 600
LOG_READ = 1 << 18  # bytes from the end of a log
POLL_S = 0.2
PROBE_S = 10.0  # for one answer about its state
STOP_S = 20.0  # for the keeper; it asks, then kills


@dataclass
class Server:
    """A server under its keeper. `token` names it at its address and in its processes."""

    process: subprocess.Popen[bytes]
    url: str
    token: str
    log: Path
    record: Path

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        """End it and all that it started; its log goes with it."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            keeper.end(self.token)
        self.record.unlink(missing_ok=True)
        self.log.unlink(missing_ok=True)

    def tail(self) -> str:
        """What its log says last: the first error named in it, then its end."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_READ))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            text = ""
        end = " ".join(text.split())[-TAIL_CHARS:] or "(its log is empty)"
        cause = ERROR.search(text)
        return end if cause is None or cause.group() in end else f"{cause.group()[:TAIL_CHARS]} ... {end}"

    @property
    def port_was_taken(self) -> bool:
        return TAKEN.search(self.tail()) is not None


def free_port() -> int:
    """A port of loopback that nobody listens on just now."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


def start(
    command: Sequence[str], name: str, folder: Path, environment: Mapping[str, str], port: int
) -> Server:
    """Start `command`, an api_server that lacks its address and names. `folder` keeps records and logs."""
    token = secrets.token_hex(8)
    folder.mkdir(parents=True, exist_ok=True)
    record, log = folder / f"{token}.json", folder / f"{token}.log"
    owner = {"pid": os.getpid(), "started": keeper.started(os.getpid())}
    partial = record.with_suffix(".new")
    partial.write_text(json.dumps({"token": token, "owner": owner, "model": name, "port": port}))
    partial.rename(record)
    told = ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", name, _own(token)]
    process = subprocess.Popen(
        [sys.executable, "-I", keeper.__file__, token, str(log), *command, *told],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=dict(environment),
    )
    return Server(process, f"http://127.0.0.1:{port}", token, log, record)


def end_orphans(folder: Path) -> list[str]:
    """End the servers on record whose owners are gone; the names of their models."""
    ended = []
    for record in sorted(folder.glob("*.json")):
        try:
            told = json.loads(record.read_text())
            token, owner, model = str(told["token"]), told["owner"], str(told["model"])
            gone = keeper.started(int(owner["pid"])) != owner["started"]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # another run's, gone or not yet whole
        if gone:
            if keeper.end(token):
                ended.append(model)
            record.unlink(missing_ok=True)
            record.with_suffix(".log").unlink(missing_ok=True)
    return ended


async def wait_ready(server: Server, limit_s: float) -> bool:
    """Whether the server came to answer, and as itself, within the limit; False also if it died."""
    import aiohttp

    loop = asyncio.get_running_loop()
    until = loop.time() + limit_s
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PROBE_S)) as session:
        while server.alive and loop.time() < until:
            if await healthy(session, server.url) and _own(server.token) in await served(session, server.url):
                return True
            await asyncio.sleep(POLL_S)
    return False


async def healthy(session: aiohttp.ClientSession, url: str) -> bool:
    """Whether `url` says that it is well."""
    import aiohttp

    try:
        async with session.get(f"{url}/health") as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False


async def served(session: aiohttp.ClientSession, url: str) -> list[str]:
    """Names of the models that `url` lists; none if it does not answer so."""
    import aiohttp

    try:
        async with session.get(at(url, "/v1/models")) as response:
            listed: Any = await response.json(content_type=None)
            return [str(entry["id"]) for entry in listed["data"]]
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, TypeError):
        return []


def _own(token: str) -> str:
    return f"headrace-{token}"
