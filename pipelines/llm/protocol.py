"""The OpenAI-compatible protocol, without a network: bodies out, replies in.

Law: what is sent is what the key was made of. The body is built from the canonical request
(NFC text, sorted schema), so equal keys send equal questions. What comes back is an answer or
a failure of a named kind; nothing is guessed from a body that does not say it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from pipelines.llm.answer import Failure, Usage
from pipelines.llm.store import Kept

PATHS = {"completion": "/v1/completions", "chat": "/v1/chat/completions", "embedding": "/v1/embeddings"}
DETAIL_CHARS = 300


@dataclass(frozen=True, slots=True)
class Reply:
    """One attempt's end. `throttled` is a 429; `retry_after_s` what the server asked to wait."""

    kept: Kept
    body: bytes = b""
    throttled: bool = False
    retry_after_s: float | None = None


def request_body(canonical: str, model: str, unsaid: Mapping[str, Any] | None = None) -> bytes:
    """The JSON body of a canonical request; `unsaid` is said where the request leaves it open."""
    asked = orjson.loads(canonical)
    body: dict[str, Any] = {"model": model}
    if asked["kind"] == "embedding":
        return orjson.dumps(body | {"input": asked["prompt"]})
    if asked["kind"] == "chat":
        body["messages"] = [{"role": role, "content": text} for role, text in asked["messages"]]
    else:
        body["prompt"] = asked["prompt"]
    sampling = asked["sampling"] or {}
    body |= {k: v for k, v in sampling.items() if v not in (None, [])}
    if asked["seed"] is not None:
        body["seed"] = asked["seed"]
    if asked["schema"] is not None:
        named = {"name": "answer", "schema": asked["schema"], "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": named}
        if asked["kind"] == "completion":  # llama.cpp overlooks response_format there
            body["json_schema"] = asked["schema"]
    return orjson.dumps({**(unsaid or {}), **body})


def read_reply(status: int, raw: bytes, kind: str, retry_after_s: float | None = None) -> Reply:
    """What a response means; never raises for what a server may send."""
    if status != 200:
        failure = _failure_of(status)
        kept = Kept("", failure=failure, detail=f"HTTP {status}: {_said(raw)}")
        return Reply(kept, raw, throttled=status == 429, retry_after_s=retry_after_s)
    try:
        body = orjson.loads(raw)
        kept = Kept("", usage=_usage(body.get("usage") or {})) if kind == "embedding" else _answer(body, kind)
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        what = "HTML" if raw.lstrip()[:1] == b"<" else f"{type(error).__name__}"
        kept = Kept("", failure=Failure.BROKEN_BODY, detail=f"not a {kind} reply ({what}): {_start(raw)}")
    return Reply(kept, raw)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds to wait by Retry-After (seconds or an HTTP date), at least 0; None if unsaid."""
    said = headers.get("retry-after-ms")
    try:
        if said is not None:
            return max(0.0, float(said) / 1000)
        said = headers.get("Retry-After")
        return None if said is None else max(0.0, float(said))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(str(said)).timestamp() - now)
    except ValueError:
        return None


def read_vectors(raw: bytes, count: int) -> list[list[float]]:
    """The vectors of an embeddings reply, in the order asked. Raises ValueError for any other body."""
    try:
        data = sorted(orjson.loads(raw)["data"], key=lambda item: item["index"])
        vectors = [[float(x) for x in item["embedding"]] for item in data]
    except (KeyError, TypeError) as error:
        raise ValueError(f"no list of embeddings: {_start(raw)}") from error
    if len(vectors) != count or not all(vectors):
        raise ValueError(f"{len(vectors)} embeddings for {count} texts")
    return vectors


def out_of_funds(raw: bytes) -> bool:
    """Whether a 429 says that the account is empty: waiting cures nothing."""
    return b"insufficient_quota" in raw


def _answer(body: Any, kind: str) -> Kept:
    choice = body["choices"][0]
    message = choice["message"] if kind == "chat" else choice
    refusal = message.get("refusal") if kind == "chat" else None
    text = (message["content"] if kind == "chat" else message["text"]) or ""
    finish = choice.get("finish_reason") or ""
    if not isinstance(text, str) or not isinstance(finish, str):
        raise TypeError("text and finish_reason must be strings")
    usage = _usage(body.get("usage") or {})
    if refusal:
        return Kept("", finish, usage, Failure.REFUSED, str(refusal)[:DETAIL_CHARS])
    if finish == "content_filter":
        return Kept("", finish, usage, Failure.FILTERED, "stopped by the content filter")
    if finish == "length":
        return Kept(text, finish, usage, Failure.LENGTH, "cut at max_tokens")
    if not text.strip():
        return Kept("", finish, usage, Failure.EMPTY, "the model wrote nothing")
    return Kept(text, finish, usage)


def _usage(usage: Mapping[str, Any]) -> Usage:
    cost, details = usage.get("cost"), usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else 0
    billed = isinstance(cost, (int, float)) and not isinstance(cost, bool) and 0 <= cost < math.inf
    return Usage(
        _count(usage.get("prompt_tokens")),
        _count(usage.get("completion_tokens")),
        float(cost or 0.0) if billed else 0.0,
        _count(cached),
        billed,
    )


def _count(tokens: Any) -> int:
    return max(0, int(tokens or 0))


def _failure_of(status: int) -> Failure:
    if status in (429, 503):
        return Failure.OVERLOADED
    if status in (408, 504):
        return Failure.TIMEOUT
    return Failure.SERVER if status >= 500 else Failure.BAD_REQUEST


def _said(raw: bytes) -> str:
    """The server's own words, shortened, from its error body."""
    try:
        error = orjson.loads(raw)["error"]
        message = error["message"] if isinstance(error, dict) else error
        return str(message)[:DETAIL_CHARS]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return _start(raw)


def _start(raw: bytes) -> str:
    return " ".join(raw[:DETAIL_CHARS].decode("utf-8", "replace").split()) or "(empty body)"
