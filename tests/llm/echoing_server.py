"""A model endpoint that shows in everything it sends which key it was given, in many spellings.

Run: `python tests/llm/echoing_server.py --answers FILE.py --log FILE [--refuse]`. It prints {"url": ...} and
ends when its standard input does. By a hash of the question an answer is good, a 400, a 429 once, a
500 once, HTML once; each says the key in headers and body. `--refuse` makes all of them a 401.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import html
import importlib.util
import json
import os
import sys
from collections import Counter
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from aiohttp import web


def spellings(authorization: str) -> str:
    """The header, and what it holds, as servers and their logs write it."""
    held = authorization.partition(" ")[2]
    said = [authorization, held]
    with suppress(ValueError):
        said.append(base64.b64decode(held, validate=True).decode())  # Basic
    said += [said[-1].partition(":")[2] or said[-1]]
    encoded = [base64.b64encode(s.encode()).decode() for s in said]
    return " | ".join([*said, *encoded, *(quote(s, safe="") for s in said), *(html.escape(s) for s in said)])


async def serve(options: argparse.Namespace) -> None:
    spec = importlib.util.spec_from_file_location("scripted_answers", options.answers)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    attempts: Counter[str] = Counter()

    async def handle(request: web.Request) -> web.Response:
        body = await request.json()
        said = spellings(request.headers.get("Authorization", ""))
        drawn = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).digest()
        attempts[drawn.hex()] += 1
        kind = "refused" if options.refuse else _kind(drawn[0], attempts[drawn.hex()])
        headers = {"X-Debug-Request": said, "Set-Cookie": f"key={quote(said)}"}
        with open(options.log, "a") as log:
            log.write(f"{kind} {said}\n")
        return _reply(kind, said, module.answer(body), headers)

    app = web.Application(client_max_size=1 << 28)
    app.router.add_post("/v1/completions", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(json.dumps({"url": f"http://127.0.0.1:{runner.addresses[0][1]}"}), flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)
    os._exit(0)


def _kind(drawn: int, attempt: int) -> str:
    if drawn < 32:
        return "bad request"
    if attempt > 1:
        return "good"
    return {1: "busy", 2: "broken", 3: "html"}.get(drawn // 32, "good")


def _reply(kind: str, said: str, answer: str, headers: dict[str, str]) -> web.Response:
    if kind == "html":
        text = f"<html><body>Gateway for {html.escape(said)}</body></html>"
        return web.Response(text=text, content_type="text/html", headers=headers)
    status = {"bad request": 400, "busy": 429, "broken": 500, "refused": 401}.get(kind)
    if status is not None:
        headers = headers | ({"Retry-After": "0.05"} if kind == "busy" else {"Retry-After": said})
        return web.json_response({"error": {"message": f"{kind}: {said}"}}, status=status, headers=headers)
    body: dict[str, Any] = {
        "choices": [{"index": 0, "finish_reason": "stop", "text": answer}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5},
        "request": {"headers": said},
    }
    return web.json_response(body, headers=headers)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--answers", required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--refuse", action="store_true")
    asyncio.run(serve(parser.parse_args()))
