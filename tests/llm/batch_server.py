"""A batch endpoint in a process of its own: files, batches, and single questions, scripted and counted.

Run: `python tests/llm/batch_server.py --log FILE [--script JSON]`. It prints {"url": ...} and ends when
its standard input does. What it is asked is one line of JSON in the log, written before the answer:
{"op": "upload" | "create" | "retrieve" | "list" | "cancel" | "content" | "delete" | "single", ...};
"create" lists the custom_ids that the batch asks. A custom_id asked in two batches, or in a batch and
singly while that batch was not over, is thus seen.

Script, JSON, all optional:
- "looks": how many retrievals show a batch at work before it ends (1);
- "ends": statuses, one for each batch in order of creation, then "completed" for all others;
  an expired or cancelled batch ran only the first "share" of its lines, a failed one none; "full" is one
  that failed since too much was out;
- "share": 0.5;
- "room": n, and a batch of more lines is "full" at the first look at it;
- "lines": {custom_id's first hex digit: fault}, a fault being a status code (400, 429, 500), "drop" (no
  line at all), "null" (no response, an error), "garbage" (a torn line), "hollow" (a body that says
  nothing), "twice", "length";
- "strangers": lines for custom_ids that no batch asked, in each output file;
- "faults": {op: [...]}: statuses given to the first requests of that op, [status, seconds] with a
  Retry-After, null being none; "lost" does the work and then drops the connection, "drop" drops it at
  once, "html" answers with a page, "echo" refuses and says the key that it was shown; of a file, "torn"
  gives half of it, and "cut" half of what its head announces;
- "uncounted": true, and no batch says how many of its lines are done;
- "list_late": batches do not appear in a list for the first N lists (0);
- "limits": {"requests": n, "bytes": n}: larger files are refused.

Good answers are those of scripted_server.py: a function of the question alone.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from pipelines.bench.child_server import ChildServer

CANCELLED = "cancelled"
FAILED = {
    "failed": {"code": "invalid", "message": "no such model"},
    "full": {"code": "token_limit_exceeded", "message": "Enqueued token limit reached"},
}


class BatchServer(ChildServer):
    """The server as a child process, for tests. It outlives its clients."""

    def __init__(self, script: dict[str, Any] | None = None, *, log: Path | None = None) -> None:
        super().__init__([__file__, "--script", json.dumps(script or {})], log)

    def events(self, op: str = "") -> list[dict[str, Any]]:
        """What it was asked so far, in order; of one kind, or all."""
        return [e for e in self.requests() if not op or e["op"] == op]

    def batched(self) -> Counter[str]:
        """How often each custom_id was submitted in a batch."""
        return Counter(key for e in self.events("create") for key in e["keys"])

    def single(self) -> Counter[str]:
        """How often each key was asked outside of batches."""
        return Counter(e["key"] for e in self.events("single"))


class Seller:
    """Files and batches in memory, and what happens to them by the script."""

    def __init__(self, script: dict[str, Any], log: int) -> None:
        self.script, self._log = script, log
        self.files: dict[str, tuple[str, bytes]] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self._looks: Counter[str] = Counter()
        self._lists = 0
        self._faults = {op: list(faults) for op, faults in script.get("faults", {}).items()}

    def note(self, op: str, **what: Any) -> None:
        os.write(self._log, (json.dumps({"op": op, **what}) + "\n").encode())

    def fault(self, op: str) -> Any:
        faults = self._faults.get(op)
        return faults.pop(0) if faults else None

    def keep(self, name: str, raw: bytes) -> str:
        file = f"file-{len(self.files) + 1}"
        self.files[file] = (name, raw)
        return file

    def create(self, asked: dict[str, Any]) -> dict[str, Any]:
        lines = self._lines(asked["input_file_id"])
        name = f"batch_{len(self.batches) + 1}"
        keys = [line["custom_id"] for line in lines]
        models = sorted({line["body"]["model"] for line in lines})
        urls = sorted({line["url"] for line in lines})
        size = len(self.files[asked["input_file_id"]][1])
        self.note("create", id=name, keys=keys, models=models, urls=urls, bytes=size, **asked)
        self.batches[name] = {
            "id": name,
            "object": "batch",
            "endpoint": asked["endpoint"],
            "input_file_id": asked["input_file_id"],
            "completion_window": asked["completion_window"],
            "created_at": int(time.time()),
            "metadata": asked.get("metadata"),
            "status": "validating",
            "request_counts": {"total": len(lines), "completed": 0, "failed": 0},
        }
        return self.batches[name]

    def look(self, name: str) -> dict[str, Any]:
        """The batch; the look after `looks` of them finds it ended."""
        batch = self.batches[name]
        self._looks[name] += 1
        if (batch["request_counts"] or {"total": 0})["total"] > self.script.get("room", 10**9):
            self.end(batch, "full")
        elif self._looks[name] > self.script.get("looks", 1) and "output_file_id" not in batch:
            ends = self.script.get("ends", [])
            place = int(name.removeprefix("batch_")) - 1
            self.end(batch, ends[place] if place < len(ends) else "completed")
        return batch

    def listed(self) -> list[dict[str, Any]]:
        self._lists += 1
        if self._lists <= self.script.get("list_late", 0):
            return []
        return list(reversed(self.batches.values()))

    def cancel(self, name: str) -> dict[str, Any]:
        batch = self.batches[name]
        if "output_file_id" not in batch:
            self.end(batch, CANCELLED)
        return batch

    def end(self, batch: dict[str, Any], status: str) -> None:
        """Run the lines, or a share of them, and write the files, out of order."""
        lines = self._lines(batch["input_file_id"])
        if status in FAILED:
            batch |= {"status": "failed", "output_file_id": None}
            batch["errors"] = {"object": "list", "data": [FAILED[status]]}
            return
        ran = lines if status == "completed" else lines[: int(len(lines) * self.script.get("share", 0.5))]
        good: list[bytes] = []
        bad: list[bytes] = []
        for line in ran:
            fault = self.script.get("lines", {}).get(line["custom_id"][0])
            (bad if fault in (400, 429, 500, "null") else good).extend(_written(line, fault))
        code = "batch_expired" if status == "expired" else "batch_cancelled"
        for line in lines[len(ran) :]:
            error = {"code": code, "message": "not run"}
            bad.append(_dump({"id": "r", "custom_id": line["custom_id"], "response": None, "error": error}))
        for i in range(self.script.get("strangers", 0)):
            stranger = {"custom_id": hashlib.sha256(b"%d" % i).hexdigest(), "body": {"prompt": "?"}}
            good += _written({**stranger, "url": "/v1/completions"}, None)
        good.sort(key=lambda raw: hashlib.md5(raw).digest())
        batch["output_file_id"] = self.keep("output", b"".join(good)) if good else None
        batch["error_file_id"] = self.keep("errors", b"".join(bad)) if bad else None
        batch["status"] = status
        counts = {"total": len(lines), "completed": len(good), "failed": len(bad)}
        batch["request_counts"] = None if self.script.get("uncounted") else counts

    def _lines(self, file: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.files[file][1].decode().splitlines()]


def _written(line: dict[str, Any], fault: Any) -> list[bytes]:
    """The lines that a question gets in the output or the error file."""
    said: dict[str, Any] = {"id": "r", "custom_id": line["custom_id"], "error": None}
    if fault == "drop":
        return []
    if fault == "null":
        return [_dump(said | {"response": None, "error": {"code": "server_error", "message": "broke"}})]
    if isinstance(fault, int):
        body: dict[str, Any] = {"error": {"message": f"scripted {fault}"}}
        return [_dump(said | {"response": {"status_code": fault, "request_id": "q", "body": body}})]
    body = good(line["url"], line["body"], {"finish": "length"} if fault == "length" else {})
    whole = _dump(said | {"response": {"status_code": 200, "request_id": "q", "body": body}})
    if fault == "hollow":
        return [_dump(said | {"response": {"status_code": 200, "request_id": "q", "body": {}}})]
    if fault == "garbage":
        return [whole[: len(whole) // 2] + b"\n"]
    return [whole] * (2 if fault == "twice" else 1)


def good(path: str, body: dict[str, Any], fault: dict[str, Any]) -> dict[str, Any]:
    """The answer that scripted_server.py gives. Only the server itself, a script here, needs it."""
    from scripted_server import _good, answer_to

    return _good(path, body, fault, answer_to)


def _dump(line: dict[str, Any]) -> bytes:
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", required=True)
    parser.add_argument("--script", default="{}")
    options = parser.parse_args(arguments)
    asyncio.run(_serve(options))


async def _serve(options: argparse.Namespace) -> None:
    from aiohttp import web

    log = os.open(options.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    seller = Seller(json.loads(options.script), log)

    async def upload(request: web.Request) -> web.Response:
        form = await request.post()
        file: Any = form["file"]
        raw = file.file.read()
        seller.note("upload", name=file.filename, bytes=len(raw), purpose=form["purpose"])
        limits = seller.script.get("limits", {})
        if raw.count(b"\n") > limits.get("requests", 10**9) or len(raw) > limits.get("bytes", 10**9):
            return web.json_response({"error": {"message": "the file is too large"}}, status=413)
        return web.json_response(_file(seller.keep(file.filename, raw), file.filename))

    async def files(request: web.Request) -> web.Response:
        data = [_file(i, name) for i, (name, _) in seller.files.items()]
        return web.json_response({"object": "list", "data": data, "has_more": False})

    async def content(request: web.Request) -> web.Response:
        seller.note("content", file=request.match_info["name"])
        if request.match_info["name"] not in seller.files:
            return _missing()
        return web.Response(body=seller.files[request.match_info["name"]][1])

    async def delete(request: web.Request) -> web.Response:
        seller.note("delete", file=request.match_info["name"])
        seller.files.pop(request.match_info["name"], None)
        return web.json_response({"id": request.match_info["name"], "object": "file", "deleted": True})

    async def create(request: web.Request) -> web.Response:
        return web.json_response(seller.create(await request.json()))

    async def listed(request: web.Request) -> web.Response:
        seller.note("list")
        return web.json_response({"object": "list", "data": seller.listed(), "has_more": False})

    async def retrieve(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        seller.note("retrieve", id=name)
        return web.json_response(seller.look(name)) if name in seller.batches else _missing()

    async def cancel(request: web.Request) -> web.Response:
        seller.note("cancel", id=request.match_info["name"])
        return web.json_response(seller.cancel(request.match_info["name"]))

    async def single(request: web.Request) -> web.Response:
        body, key = await request.json(), request.headers.get("X-Client-Request-Id", "")
        seller.note("single", key=key, body=body)
        return web.json_response(good(request.path, body, {}))

    app = web.Application(client_max_size=1 << 28)
    for method, path, op, handle in (
        ("POST", "/v1/files", "upload", upload),
        ("GET", "/v1/files", "files", files),
        ("GET", "/v1/files/{name}/content", "content", content),
        ("DELETE", "/v1/files/{name}", "delete", delete),
        ("POST", "/v1/batches", "create", create),
        ("GET", "/v1/batches", "list", listed),
        ("GET", "/v1/batches/{name}", "retrieve", retrieve),
        ("POST", "/v1/batches/{name}/cancel", "cancel", cancel),
        ("POST", "/v1/{path:.*}", "single", single),
    ):
        app.router.add_route(method, path, _faulty(seller, op, handle))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(json.dumps({"url": f"http://127.0.0.1:{runner.addresses[0][1]}"}), flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)
    os._exit(0)


def _faulty(seller: Seller, op: str, handle: Any) -> Any:
    """`handle`, or the fault that the script has next for its kind of request."""
    from aiohttp import web

    async def handled(request: web.Request) -> web.StreamResponse:
        fault = seller.fault(op)
        if fault is None or fault == "lost":
            done = await handle(request)
            if fault == "lost" and request.transport is not None:
                request.transport.close()
            return done
        seller.note(f"refused {op}", fault=fault)
        if fault in ("torn", "cut"):
            return await _half(request, seller.files[request.match_info["name"]][1], whole=fault == "torn")
        if fault == "drop" and request.transport is not None:
            request.transport.close()
        if fault == "html":
            return web.Response(text="<html>Bad gateway</html>", content_type="text/html")
        code, wait = fault if isinstance(fault, list) else (fault, None)
        status = code if isinstance(code, int) else 400 if code == "echo" else 500
        said = request.headers.get("Authorization") if code == "echo" else f"scripted {code}"
        headers = {} if wait is None else {"Retry-After": wait}
        return web.json_response({"error": {"message": said}}, status=status, headers=headers)

    return handled


async def _half(request: Any, raw: bytes, *, whole: bool) -> Any:
    """Half of a file, as if it were all of it, or with its true length in the head."""
    from aiohttp import web

    half = raw[: len(raw) // 2]
    if whole:
        return web.Response(body=half)
    response = web.StreamResponse(headers={"Content-Length": str(len(raw))})
    await response.prepare(request)
    await response.write(half)
    if request.transport is not None:
        request.transport.close()
    return response


def _file(name: str, filename: str) -> dict[str, Any]:
    about = {"object": "file", "purpose": "batch", "bytes": 1, "created_at": 1, "status": "processed"}
    return {"id": name, "filename": filename, **about}


def _missing() -> Any:
    from aiohttp import web

    return web.json_response({"error": {"message": "there is none"}}, status=404)


if __name__ == "__main__":
    main(sys.argv[1:])
