"""A model endpoint in a process of its own, fast enough not to be what is measured.

Law: the same attempt at the same question meets the same fault and the same answer, whatever the
order and the number of clients. Each request is one line of JSON in the log before anything is
answered: {"key", "attempt", "fault", "path", "question"}; the server counts for itself, and tells
its counts at GET /stats.

Run: `python -m pipelines.bench.mock_server --log FILE [--latency-ms N] [--script JSON]`. It prints
{"url": ...} and ends when its standard input does. The script has the form of that of the tests'
server: {"shares": {"429": 0.3, "500": 0.1, "hang": 0.05}, "seed": 0, "retry_after_s": [0.05, 1]}.
A 429 is drawn a Retry-After of that range. An answer is JSON, {"answer": "<12 hex digits>"}, a hash
of the question; raw `asyncio.Protocol` on uvloop, some 20,000 requests/s on one core.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import sys
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from pipelines.bench.child_server import ChildServer

KEY_HEADER = b"\r\nx-client-request-id:"
LENGTH_HEADER = b"\r\ncontent-length:"
CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
START_S = 30.0


class MockServer(ChildServer):
    """The server as a child process. Use as a context manager; `url` is its address."""

    def __init__(
        self, script: dict[str, Any] | None = None, *, latency_ms: float = 50.0, log: Path | None = None
    ) -> None:
        command = ["-m", "pipelines.bench.mock_server", "--latency-ms", str(latency_ms)]
        super().__init__([*command, "--script", json.dumps(script or {})], log)

    def stats(self) -> dict[str, Any]:
        """The server's own counts: requests, questions, answers, most_in_flight, faults by name."""
        with urllib.request.urlopen(f"{self.url}/stats", timeout=START_S) as response:
            counted: dict[str, Any] = json.load(response)
        return counted


@dataclass
class Script:
    """Which fault an attempt meets: a pure function of seed, question and attempt."""

    shares: dict[str, float] = field(default_factory=dict)
    seed: int = 0
    retry_after_s: tuple[float, float] = (0.05, 1.0)

    def fault(self, question: str, attempt: int) -> tuple[str | None, float]:
        """(fault or None, seconds to wait when it is a 429)."""
        if not self.shares:
            return None, 0.0
        drawn = hashlib.sha256(f"{self.seed} {question} {attempt}".encode()).digest()
        left = int.from_bytes(drawn[:8], "big") / 2**64
        low, high = self.retry_after_s
        wait_s = low + (high - low) * int.from_bytes(drawn[8:16], "big") / 2**64
        for name, share in sorted(self.shares.items()):
            if left < share:
                return name, wait_s
            left -= share
        return None, 0.0


class Endpoint:
    """What all connections share: the script, the log, the counts."""

    def __init__(self, script: Script, log: int, latency_s: float) -> None:
        self.script, self.log, self.latency_s = script, log, latency_s
        self.attempts: dict[str, int] = {}
        self.faults: Counter[str] = Counter()
        self.requests = self.answers = self.in_flight = self.most_in_flight = 0

    def take(self, path: str, key: str, body: bytes) -> tuple[bytes | None, float]:
        """(response or None for none ever, seconds until it is due) to one request."""
        question = hashlib.sha256(path.encode() + body).hexdigest()[:24]
        attempt = self.attempts[question] = self.attempts.get(question, 0) + 1
        fault, wait_s = self.script.fault(question, attempt)
        self.requests += 1
        line = {"key": key, "attempt": attempt, "fault": fault, "path": path, "question": question}
        os.write(self.log, orjson.dumps(line) + b"\n")
        if fault is not None:
            self.faults[fault] += 1
        if fault == "hang":
            return None, 0.0
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        if fault == "429":
            return _error(429, f"\r\nRetry-After: {wait_s:.3f}"), self.latency_s
        if fault == "500":
            return _error(500), self.latency_s
        return _response(200, _answer(path, question, body)), self.latency_s

    def stats(self) -> bytes:
        counts = {"requests": self.requests, "questions": len(self.attempts), "answers": self.answers}
        return orjson.dumps(counts | {"most_in_flight": self.most_in_flight, "faults": dict(self.faults)})


class Connection(asyncio.Protocol):
    """One client's connection: HTTP/1.1, kept alive, bodies by Content-Length."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._buffer = b""
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end]
            lower = head.lower()
            length = int(_header(lower, lower, LENGTH_HEADER) or 0)
            if len(self._buffer) < end + 4 + length:
                return
            body = self._buffer[end + 4 : end + 4 + length]
            self._buffer = self._buffer[end + 4 + length :]
            method, path, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
            self._answer(method, path, _header(head, lower, KEY_HEADER).decode("latin-1"), body)

    def _answer(self, method: str, path: str, key: str, body: bytes) -> None:
        if method == "GET" and path == "/stats":
            self._transport.write(_response(200, self._endpoint.stats()))
        elif method == "POST" and path in (CHAT, COMPLETION):
            response, due_s = self._endpoint.take(path, key, body)
            if response is not None:
                self._loop.call_later(due_s, self._send, response)
        else:
            self._transport.write(_error(404))

    def _send(self, response: bytes) -> None:
        self._endpoint.in_flight -= 1
        self._endpoint.answers += response.startswith(b"HTTP/1.1 200")
        if not self._transport.is_closing():
            self._transport.write(response)


def _header(head: bytes, lower: bytes, name: bytes) -> bytes:
    """The header's value; empty when absent. `lower` is `head` in lower case."""
    at = lower.find(name)
    if at < 0:
        return b""
    end = head.find(b"\r\n", at + 2)
    return head[at + len(name) : end if end >= 0 else len(head)].strip()


_REASONS = {200: "OK", 404: "Not Found", 429: "Too Many Requests", 500: "Internal Server Error"}


def _response(status: int, body: bytes, more: str = "") -> bytes:
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json{more}"
    return f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def _error(status: int, more: str = "") -> bytes:
    return _response(status, orjson.dumps({"error": {"message": f"scripted {status}"}}), more)


def _answer(path: str, question: str, body: bytes) -> bytes:
    """A good reply, as many choices as `n` asks for."""
    asked = orjson.loads(body)
    choices = []
    for index in range(int(asked.get("n") or 1)):
        text = orjson.dumps({"answer": question[index : index + 12]}).decode()
        said = {"message": {"role": "assistant", "content": text}} if path == CHAT else {"text": text}
        choices.append({"index": index, "finish_reason": "stop"} | said)
    usage = {"prompt_tokens": 40, "completion_tokens": 12 * len(choices)}
    usage["total_tokens"] = sum(usage.values())
    kind = "chat.completion" if path == CHAT else "text_completion"
    reply = {"id": f"mock-{question}", "object": kind, "created": 0, "model": asked.get("model", "")}
    return orjson.dumps(reply | {"choices": choices, "usage": usage})


async def _serve(options: argparse.Namespace) -> None:
    script = Script(**json.loads(options.script))
    log = os.open(options.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    endpoint = Endpoint(script, log, options.latency_ms / 1000)
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(endpoint), "127.0.0.1", 0, backlog=4096
    )
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    print(json.dumps({"url": url}), flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)
    os._exit(0)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", required=True)
    parser.add_argument("--latency-ms", type=float, default=50.0)
    parser.add_argument("--script", default="{}")
    options = parser.parse_args(arguments)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(options))


if __name__ == "__main__":
    main(sys.argv[1:])
