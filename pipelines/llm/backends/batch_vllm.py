"""`vllm run-batch` as a desk: one process after the other, each over a folder of its own.

Law: no process outlives its owner (`keeper.py`), and what it wrote until then is taken by the next
run, whole lines only; some versions of vLLM write as they go, others (0.32) at a file's end, so a
file is the most that a kill can lose. A folder names its owner before its process is started; a
batch whose owner is gone has been interrupted. Answers are those of a server started by the same
settings: model, identity and arguments are the `vllm` backend's.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.errors import ConfigError, EnvironmentFault
from pipelines.llm import keeper
from pipelines.llm.backends.batch_file import cut
from pipelines.llm.backends.batch_watch import Seen
from pipelines.llm.backends.vllm import UNSAID
from pipelines.llm.backends.vllm_model import source
from pipelines.llm.backends.vllm_replica import Prepared

if TYPE_CHECKING:
    from pipelines.llm.backends.batch_ledger import Batch
    from pipelines.llm.settings import Settings

ADDRESS = "vllm run-batch"
SERVER, RUNNER = "vllm.entrypoints.openai.api_server", "vllm.entrypoints.openai.run_batch"
STOP_S = 20.0
TAIL_CHARS = 600
CHUNK = 1 << 20


@dataclass
class _Run:
    """A batch of this process: its command, and its keeper once it is its turn."""

    token: str
    command: list[str]
    variables: dict[str, str]
    process: subprocess.Popen[bytes] | None = None
    cancelled: bool = False


class LocalDesk:
    """Runs batches here. `folder` keeps the files of those that are not taken yet."""

    address = ADDRESS
    kinds = frozenset({"chat"})  # run-batch has no /v1/completions
    unsaid = UNSAID
    look_s = 1.0
    alone = True

    def __init__(self, settings: Settings, folder: Path) -> None:
        if settings.vllm.urls:
            cure = "take llm.vllm.urls out, or choose the backend vllm"
            raise ConfigError("a server that runs already takes no batches", where="llm.vllm.urls", cure=cure)
        self._settings, self._folder = settings, folder.absolute()
        self.max_requests = settings.batch.local_requests
        self._runs: dict[str, _Run] = {}

    def find(self, batch: Batch) -> Seen | None:
        return self.look(batch) if self._owner(batch.uid) else None

    def upload(self, uid: str, lines: Sequence[bytes]) -> str:
        folder = self._folder / uid
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / "in.new").open("wb") as file:
                file.writelines(lines)
            (folder / "in.new").rename(folder / "in.jsonl")
        except OSError as error:
            raise self._disk(error) from error
        return "in.jsonl"

    def create(self, batch: Batch) -> Seen:
        folder, token = self._folder / batch.uid, secrets.token_hex(8)
        prepared = Prepared(source(batch.model, self._settings.vllm.checked()), self._settings)
        server, variables = asyncio.run(prepared.command())
        command = [RUNNER if word == SERVER else word for word in server]
        command += ["--served-model-name", batch.model]
        command += ["-i", str(folder / "in.jsonl"), "-o", str(folder / "out.jsonl")]
        owner = {"token": token, "pid": os.getpid(), "started": keeper.started(os.getpid())}
        try:
            (folder / "owner.new").write_text(json.dumps(owner))
            (folder / "owner.new").rename(folder / "owner.json")
        except OSError as error:
            raise self._disk(error) from error
        self._runs[batch.uid] = _Run(token, command, variables)
        self._start_next()
        return self._seen(batch.uid, "validating")

    def look(self, batch: Batch) -> Seen:
        run = self._runs.get(batch.uid)
        if run is None:
            owner = self._owner(batch.uid)
            if owner and keeper.started(owner["pid"]) == owner["started"]:
                return self._seen(batch.uid, "in_progress")
            if owner:
                keeper.end(owner["token"])
            return self._seen(batch.uid, "interrupted")
        self._start_next()
        if run.cancelled:
            return self._seen(batch.uid, "cancelled")
        if run.process is None:
            return self._seen(batch.uid, "validating")
        code = run.process.poll()
        if code is None:
            return self._seen(batch.uid, "in_progress")
        if code == 0:
            return self._seen(batch.uid, "completed")
        return self._seen(batch.uid, "failed", f"exit {code}: {self._tail(batch.uid)}")

    def lines(self, seen: Seen) -> Iterator[bytes]:
        for path in map(Path, seen.files):
            if path.is_file():
                with path.open("rb") as file:
                    yield from cut(iter(lambda f=file: f.read(CHUNK), b""))  # type: ignore[misc]

    def cancel(self, batch: Batch) -> None:
        if (run := self._runs.get(batch.uid)) is not None:
            run.cancelled = True
            _stop(run)
        elif owner := self._owner(batch.uid):
            keeper.end(owner["token"])

    def taken(self, batch: Batch) -> None:
        self._runs.pop(batch.uid, None)
        self.discard(batch)

    def discard(self, batch: Batch) -> None:
        shutil.rmtree(self._folder / batch.uid, ignore_errors=True)

    def sweep(self, uids: Collection[str]) -> None:
        """A kill after a batch was recorded as taken leaves its files."""
        for folder in self._folder.glob("*"):
            if folder.name not in uids:
                shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        for run in self._runs.values():
            _stop(run)

    def _start_next(self) -> None:
        """Start the first run that waits, unless one is under way."""
        runs = [(uid, run) for uid, run in self._runs.items() if not run.cancelled]
        if any(run.process is not None and run.process.poll() is None for _, run in runs):
            return
        for uid, run in runs:
            if run.process is None:
                log = str(self._folder / uid / "log")
                run.process = subprocess.Popen(
                    [sys.executable, "-I", keeper.__file__, run.token, log, *run.command],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    env=run.variables,
                )
                return

    def _seen(self, uid: str, status: str, said: str = "") -> Seen:
        return Seen(uid, status, (str(self._folder / uid / "out.jsonl"),), said=said)

    def _owner(self, uid: str) -> dict[str, Any]:
        """Who made the batch; empty when nobody did."""
        try:
            owner = json.loads((self._folder / uid / "owner.json").read_text())
            return {"token": str(owner["token"]), "pid": int(owner["pid"]), "started": owner["started"]}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def _tail(self, uid: str) -> str:
        try:
            raw = (self._folder / uid / "log").read_bytes()[-8 * TAIL_CHARS :]
        except OSError:
            raw = b""
        return " ".join(raw.decode("utf-8", "replace").split())[-TAIL_CHARS:] or "(its log is empty)"

    def _disk(self, error: OSError) -> EnvironmentFault:
        what = f"a batch cannot be written: {error.strerror}"
        return EnvironmentFault(what, where=str(self._folder), cure="free some space and run again")


def _stop(run: _Run) -> None:
    """End a run and all that it started."""
    if run.process is None:
        return
    if run.process.stdin is not None:
        run.process.stdin.close()
    try:
        run.process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        run.process.kill()
        run.process.wait()
        keeper.end(run.token)
