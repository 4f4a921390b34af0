"""A pass-through in front of the embedded server that logs each request, for tests and audits.

Law: a request is in the log before it reaches the model. One line of JSON each: path, the answer's
key as the client sent it, the body.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from concurrent.futures import Future

import aiohttp
from aiohttp import web

from pipelines.llm.transport import KEY_HEADER


def serve_logged(target: str, log: str) -> str:
    """Serve `target` on another loopback port, logging to the file `log`; returns its address."""
    address: Future[str] = Future()
    threading.Thread(target=lambda: asyncio.run(_serve(target, log, address)), daemon=True).start()
    return address.result()


async def _serve(target: str, log: str, address: Future[str]) -> None:
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
            app = web.Application(client_max_size=1 << 30)
            app.router.add_route("*", "/{path:.*}", _forward(session, target, log))
            runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            address.set_result(f"http://127.0.0.1:{runner.addresses[0][1]}")
            await asyncio.Event().wait()
    except OSError as error:
        address.set_exception(error)


def _forward(session: aiohttp.ClientSession, target: str, log: str):  # type: ignore[no-untyped-def]
    async def handle(request: web.Request) -> web.Response:
        raw = await request.read()
        if request.method == "POST":
            _append(log, request.path, request.headers.get(KEY_HEADER, ""), raw)
        headers = {"Content-Type": "application/json"}
        async with session.request(request.method, target + request.path, data=raw, headers=headers) as reply:
            return web.Response(status=reply.status, body=await reply.read(), content_type=reply.content_type)

    return handle


def _append(log: str, path: str, key: str, raw: bytes) -> None:
    line = json.dumps({"path": path, "key": key, "pid": os.getpid(), "body": json.loads(raw)}) + "\n"
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode())  # one write: lines of several servers do not mix
    finally:
        os.close(handle)
