"""The files of a batch, without a network: lines out, lines in.

Law: a file asks one model at one endpoint and keeps both limits; a line says exactly what a single
request would, under the answer's key. What comes back belongs to a line only by that key, never by
its place; a line that cannot be read belongs to none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import orjson

from pipelines.llm.answer import Failure
from pipelines.llm.protocol import PATHS, Reply, read_reply
from pipelines.llm.store import Kept

T = TypeVar("T")

# Readers that cut a file by `str.splitlines` would cut inside a text at these.
_NO_LINE_ENDS = {"\x85": rb"\u0085", "\u2028": rb"\u2028", "\u2029": rb"\u2029"}

# What a seller says in place of a response, where it means something that a status would say.
_ENDED = {"batch_expired": "the batch expired", "batch_cancelled": "the batch was cancelled"}
_DETAIL_CHARS = 300


def line_of(key: str, kind: str, body: bytes) -> bytes:
    """One line of a file, its end included. `key`: 64 hex digits, the line's custom_id; `body`: JSON."""
    for character, escape in _NO_LINE_ENDS.items():
        body = body.replace(character.encode(), escape)
    head = f'{{"custom_id":"{key}","method":"POST","url":"{PATHS[kind]}","body":'
    return head.encode() + body + b"}\n"


def packed(
    lines: Iterable[tuple[T, bytes]], max_requests: int, max_bytes: float
) -> Iterator[list[tuple[T, bytes]]]:
    """The lines in order, as many to a file as the limits allow.

    Each fits a file of its own (`len(line) <= max_bytes`), which the caller has seen to.
    """
    file: list[tuple[T, bytes]] = []
    size = 0
    for item, line in lines:
        if file and (len(file) >= max_requests or size + len(line) > max_bytes):
            yield file
            file, size = [], 0
        file.append((item, line))
        size += len(line)
    if file:
        yield file


def cut(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a file that comes in pieces, split at the newline only; a torn last line too."""
    torn = b""
    for chunk in chunks:
        *whole, torn = (torn + chunk).split(b"\n")
        yield from whole
    if torn:
        yield torn


def read_line(raw: bytes, kind: str) -> tuple[str, Reply] | None:
    """(custom_id, reply) of a line of an output or error file; None when it is neither."""
    try:
        line = orjson.loads(raw)
        key, response, error = line["custom_id"], line.get("response"), line.get("error")
        if not isinstance(key, str):
            return None
        if not isinstance(response, dict):
            return key, _without_response(error, raw)
        status, body = int(response.get("status_code") or 200), response.get("body")
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
        return None
    if body is None:
        body = error if isinstance(error, dict) and "error" in error else {"error": error}
    return key, read_reply(status, orjson.dumps(body), kind)


def _without_response(error: Any, raw: bytes) -> Reply:
    """The line was never run to its end: a passing failure, named by the seller's code."""
    code = error.get("code") if isinstance(error, dict) else None
    if code in _ENDED:
        return Reply(Kept("", failure=Failure.TIMEOUT, detail=f"{_ENDED[code]} before this line was run"))
    said = error.get("message") if isinstance(error, dict) else error
    detail = f"the batch gave no response: {said or code or 'nothing said'}"[:_DETAIL_CHARS]
    throttled = code in ("rate_limit_exceeded", "token_limit_exceeded")
    return Reply(Kept("", failure=Failure.OVERLOADED if throttled else Failure.SERVER, detail=detail), raw)
