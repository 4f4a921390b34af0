"""A model endpoint in a process of its own that does what it is told and logs what it is asked.

Run: `python tests/llm/scripted_server.py --log FILE [--script JSON] [--answers FILE.py] [--latency-ms N]`.
It prints {"url": ...} and ends when its standard input does. Each request is one line of JSON in
the log, written before anything is answered: path, key, attempt, fault, body.

Script, JSON: {"faults": [...], "poison": {...}, "shares": {"429": 0.3, ...}, "seed": 0}
- "faults" are given to the first requests, one each, in order of arrival; null is a good answer;
- "poison" is given to every request whose prompt (or texts to embed) has the text in it: {"text": fault};
- "models" are listed, to any key;
- "shares" make the same attempt at the same question meet the same fault, whatever the order.
A fault is a dict: {"status": 429, "headers": {...}, "body": "...", "code": "..."}, {"hang": true},
{"drop": true}, {"html": true}, {"garbage": true}, {"finish": "length"}, {"text": ""}, {"refusal": "no"},
{"error": "told within a 200"}, {"calls": [...]} of tools, and of a stream {"cut": true} half-way and
{"late_s": 1.5} until its first token; shares name "400", "429", "500", "503", "hang", "drop", "html",
"garbage", "length", "filter", "empty", "refusal", "cut". It streams what is asked as a stream, a word
at a time, and gives `n` choices, the k-th after the first ending in " k".

Good answers are a function of the question alone: `answer(body)` of FILE.py, else "answer <hash>".
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import importlib.util
import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))  # it also runs as a bare program, without the project
from pipelines.bench.child_server import ChildServer

NAMED: dict[str, dict[str, Any]] = {
    "400": {"status": 400, "body": "too long"},
    "429": {"status": 429, "headers": {"Retry-After": "0.05"}},
    "500": {"status": 500},
    "503": {"status": 503},
    "hang": {"hang": True},
    "drop": {"drop": True},
    "cut": {"cut": True},
    "html": {"html": True},
    "garbage": {"garbage": True},
    "length": {"finish": "length"},
    "empty": {"text": ""},
    "filter": {"finish": "content_filter"},
    "refusal": {"refusal": "I cannot help"},
}


def answer_to(body: dict[str, Any]) -> str:
    """The default answer: a hash of the whole body, so of prompt, seed and sampling."""
    return "answer " + _digest(body)[:12]


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


class ScriptedServer(ChildServer):
    """The server as a child process, for tests. Its requests: {path, key, attempt, fault, body, headers}."""

    def __init__(
        self,
        script: dict[str, Any] | None = None,
        *,
        answers: Path | None = None,
        latency_ms: float = 0,
        log: Path | None = None,
    ) -> None:
        command = [__file__, "--latency-ms", str(latency_ms), "--script", json.dumps(script or {})]
        super().__init__([*command, *(["--answers", str(answers)] if answers else [])], log)


class Script:
    """Which fault a request meets."""

    def __init__(self, script: dict[str, Any]) -> None:
        self._faults = list(script.get("faults", []))
        self._shares: dict[str, float] = script.get("shares", {})
        self._seed = script.get("seed", 0)
        self.models: list[str] = script.get("models", [])
        self._poison: dict[str, Any] = script.get("poison", {})
        self._attempts: Counter[str] = Counter()

    def next(self, question: str, text: str) -> tuple[int, dict[str, Any] | None]:
        """(attempt from 1, fault or None) of the question's next attempt."""
        self._attempts[question] += 1
        attempt = self._attempts[question]
        if self._faults:
            return attempt, self._faults.pop(0)
        for part, fault in self._poison.items():
            if part in text:
                return attempt, fault
        drawn = hashlib.sha256(f"{self._seed} {question} {attempt}".encode()).digest()
        left = int.from_bytes(drawn[:8], "big") / 2**64
        for name, share in sorted(self._shares.items()):
            if left < share:
                return attempt, NAMED[name]
            left -= share
        return attempt, None


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", required=True)
    parser.add_argument("--script", default="{}")
    parser.add_argument("--answers")
    parser.add_argument("--latency-ms", type=float, default=0)
    options = parser.parse_args(arguments)
    asyncio.run(_serve(options))


def _answers_of(path: str | None) -> Callable[[dict[str, Any]], str]:
    if path is None:
        return answer_to
    spec = importlib.util.spec_from_file_location("scripted_answers", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[[dict[str, Any]], str] = module.answer
    return function


async def _serve(options: argparse.Namespace) -> None:
    from aiohttp import web

    script, answers = Script(json.loads(options.script)), _answers_of(options.answers)
    log = os.open(options.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    async def handle(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        text = str(body.get("prompt") or body.get("messages") or body.get("input"))
        attempt, fault = script.next(_digest(body), text)
        key = request.headers.get("X-Client-Request-Id", "")
        line = {"path": request.path, "key": key, "attempt": attempt, "fault": fault, "body": body}
        line["headers"] = {k: v for k, v in request.headers.items() if k.lower() == "authorization"}
        os.write(log, (json.dumps(line) + "\n").encode())
        await asyncio.sleep(options.latency_ms / 1000)
        return await _respond(request, body, fault or {}, answers)

    app = web.Application(client_max_size=1 << 28)

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": name} for name in script.models]})

    app.router.add_post("/v1/{path:.*}", handle)
    if script.models:
        app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(json.dumps({"url": f"http://127.0.0.1:{runner.addresses[0][1]}"}), flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)
    os._exit(0)


async def _respond(
    request: Any, body: dict[str, Any], fault: dict[str, Any], answers: Callable[[dict[str, Any]], str]
) -> Any:
    from aiohttp import web

    if fault.get("hang"):
        await asyncio.sleep(3600)
    if fault.get("drop"):
        request.transport.close()
        return web.Response()
    if fault.get("html"):
        return web.Response(text="<html><body>Bad gateway</body></html>", content_type="text/html")
    if fault.get("garbage"):
        return web.Response(text='{"choices": [{"text": "cut off in the mid', content_type="application/json")
    if "status" in fault:
        said = fault.get("body", f"scripted {fault['status']}")
        error = fault.get("raw") or {"error": {"message": said, "code": fault.get("code")}}
        return web.json_response(error, status=fault["status"], headers=fault.get("headers", {}))
    if "error" in fault:
        told = fault["error"]
        return web.json_response({"error": told if isinstance(told, dict) else {"message": told}})
    good = _good(request.path, body, fault, answers)
    return await _stream(request, good, fault) if body.get("stream") else web.json_response(good)


async def _stream(request: Any, good: dict[str, Any], fault: dict[str, Any]) -> Any:
    """The reply word by word; `cut` ends it half-way, `late_s` comes between head and first token.

    `undone` says no [DONE] after it: "ended" ends the stream in good order, "dropped" by its connection, and
    "open" does not end it.
    """
    from aiohttp import web

    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await asyncio.sleep(fault.get("late_s", 0))
    events = _events(good)
    for event in events[: len(events) // 2] if fault.get("cut") else events:
        await response.write(f"data: {json.dumps(event)}\n\n".encode())
    if fault.get("cut") or fault.get("undone") == "dropped":
        request.transport.close()
        return response
    if fault.get("undone") == "open":
        await asyncio.sleep(3600)
    if not fault.get("undone"):
        await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


def _events(good: dict[str, Any]) -> list[dict[str, Any]]:
    """The reply as a server of the protocol streams it: usage last, without choices."""
    head = {"id": "scripted", "object": "chat.completion.chunk"}
    events = []
    for choice in good["choices"]:
        index, chat = choice["index"], "message" in choice
        text = choice["message"]["content"] if chat else choice["text"]
        for place, word in enumerate(text.split(" ")):
            said = (" " if place else "") + word
            piece = {"delta": {"content": said}} if chat else {"text": said}
            events.append(head | {"choices": [{"index": index, "finish_reason": None} | piece]})
        end: dict[str, Any] = {"delta": {}} if chat else {"text": ""}
        if chat and choice["message"]["refusal"]:
            end = {"delta": {"refusal": choice["message"]["refusal"]}}
        events.append(head | {"choices": [{"index": index, "finish_reason": choice["finish_reason"]} | end]})
    return [*events, head | {"choices": [], "usage": good["usage"]}]


def _good(
    path: str, body: dict[str, Any], fault: dict[str, Any], answers: Callable[[dict[str, Any]], str]
) -> dict[str, Any]:
    if path.endswith("/embeddings"):
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        vectors = [[float(b) for b in _digest({"t": t}).encode()[:8]] for t in texts]
        data = [{"index": i, "embedding": v} for i, v in enumerate(vectors)]
        return {"data": data[::-1], "usage": {"prompt_tokens": len(texts)}}
    text = fault["text"] if "text" in fault else answers(body)
    choices = []
    for index in range(int(body.get("n") or 1)):
        said = f"{text} {index}" if index else text
        choice: dict[str, Any] = {"index": index, "finish_reason": fault.get("finish", "stop")}
        if path.endswith("/chat/completions"):
            choice["message"] = {"role": "assistant", "content": said, "refusal": fault.get("refusal")}
            if "calls" in fault:
                choice["message"] |= {"content": None, "tool_calls": fault["calls"]}
        else:
            choice["text"] = said
        choices.append(choice)
    written = sum(len(text.split()) + (index > 0) for index in range(len(choices)))
    return {"choices": choices, "usage": {"prompt_tokens": 10, "completion_tokens": written}}


if __name__ == "__main__":
    main(sys.argv[1:])
