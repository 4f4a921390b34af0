"""A stand-in for vLLM's api_server, in a process of its own: `fake_vllm.py -m MODULE --port N ...`.

It binds its port when it has started, as vLLM does, speaks /health, /v1/models and
/v1/completions, and logs, one line of JSON each: its start (pid, its worker's pid, names of its
environment), and every request when it comes and when it is answered. Options beyond vLLM's:
--fake-log FILE, --fake-latency-ms N, --fake-fail TEXT (say so and exit), --fake-deadly (die of
every question), --fake-stubborn (it and its worker ignore SIGTERM, as what hangs does).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("-m", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--served-model-name", nargs="+", required=True)
    parser.add_argument("--generation-config")
    parser.add_argument("--fake-log", required=True)
    parser.add_argument("--fake-latency-ms", type=float, default=0)
    parser.add_argument("--fake-fail")
    parser.add_argument("--fake-deadly", action="store_true")
    parser.add_argument("--fake-stubborn", action="store_true")
    return parser.parse_args(words)


def answer_to(prompt: str) -> str:
    return "answer " + hashlib.sha256(prompt.encode()).hexdigest()[:12]


def main(words: list[str]) -> None:
    told = arguments(words)
    log = os.open(told.fake_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(**line: Any) -> None:
        os.write(log, (json.dumps({"pid": os.getpid(), "port": told.port} | line) + "\n").encode())

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            models = [{"id": name} for name in told.served_model_name]
            self.say({"data": models} if self.path == "/v1/models" else {})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            key, prompt = self.headers.get("X-Client-Request-Id", ""), body["prompt"]
            note(event="asked", key=key, body=body, authorization=self.headers.get("Authorization"))
            if told.fake_deadly:
                os._exit(3)
            time.sleep(told.fake_latency_ms / 1000)
            choice = {"index": 0, "text": answer_to(prompt), "finish_reason": "stop"}
            self.say({"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})
            note(event="answered", key=key, prompt=prompt)

        def say(self, body: dict[str, Any]) -> None:
            raw = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: Any) -> None: ...

    if told.fake_fail:
        print(f"loading {told.model}\nValueError: {told.fake_fail}\n" + "at the end of a long log\n" * 99)
        sys.exit(1)
    if told.fake_stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    server = ThreadingHTTPServer((told.host, told.port), Handler)
    server.daemon_threads = True
    deaf = "signal.signal(15, signal.SIG_IGN); " if told.fake_stubborn else ""
    worker = subprocess.Popen([sys.executable, "-c", f"import signal, time; {deaf}time.sleep(600)"])
    note(event="started", worker=worker.pid, variables=dict(os.environ), model=told.model)
    server.serve_forever()


def interpreter(folder: Path) -> Path:
    """An executable that takes the arguments of `python` and is this server."""
    script = folder / "python"
    script.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{__file__}' \"$@\"\n")
    script.chmod(0o755)
    return script


def lines(log: Path, event: str = "") -> list[dict[str, Any]]:
    """What the servers of one log noted, in the order in which it happened."""
    text = log.read_text() if log.exists() else ""
    noted = [json.loads(line) for line in text.split("\n") if line]
    return [line for line in noted if event in ("", line["event"])]


if __name__ == "__main__":
    main(sys.argv[1:])
