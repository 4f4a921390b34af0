"""The OpenAI-compatible protocol, without a network: bodies out, replies in.

Law: what is sent is what the key was made of. The body is built from the canonical request
(NFC text, sorted schema), so equal keys send equal questions. What comes back is an answer or
a failure of a named kind; nothing is guessed from a body that does not say it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from pipelines.llm.answer import Failure, Usage
from pipelines.llm.limits import SILENT, Limits
from pipelines.llm.media import content_part
from pipelines.llm.request import Request
from pipelines.llm.store import Kept

PATHS = {"completion": "/v1/completions", "chat": "/v1/chat/completions", "embedding": "/v1/embeddings"}
LIMIT = "max_tokens"
DETAIL_CHARS = 300
MOST = 1e12  # tokens, or USD, that one answer may be said to cost
BROKEN_OFF = {"abort", "error", "insufficient_system_resource"}  # finish reasons of half a text
FILTERS = {"content_filter", "content_policy_violation"}  # as a 400 names what refused the question


@dataclass(frozen=True, slots=True)
class Reply:
    """One attempt's end. `throttled` is a 429; `retry_after_s` what the server asked to wait.

    `limits` is all that its headers say of limits; `reached`: there was a connection that held;
    `left`: the request may have arrived, so it may be billed.
    """

    kept: Kept
    body: bytes = b""
    throttled: bool = False
    retry_after_s: float | None = None
    limits: Limits = SILENT
    reached: bool = True
    left: bool = True


@dataclass(frozen=True, slots=True)
class Token:
    """A token of an answer, its log probability, and those of the likeliest at its place."""

    text: str
    logprob: float
    top: dict[str, float]


def request_body(
    canonical: str,
    model: str,
    unsaid: Mapping[str, Any] | None = None,
    media: dict[str, str] | None = None,
    *,
    stream: bool = False,
    n: int = 1,
    max_tokens_as: str = LIMIT,
) -> bytes:
    """The JSON body of a canonical request; `unsaid` is said where the request leaves it open.

    media: base64 of its parts by their SHA-256 (`media.read_media`); n: choices asked for at once;
    max_tokens_as: the name under which a chat is told `max_tokens`.
    """
    asked = orjson.loads(canonical)
    body: dict[str, Any] = {"model": model}
    if asked["kind"] == "embedding":
        return orjson.dumps(body | {"input": asked["prompt"]})
    if asked["kind"] == "chat":
        body["messages"] = [
            {"role": role, "content": _content(said, media)} for role, said in asked["messages"]
        ]
    else:
        body["prompt"] = asked["prompt"]
    body |= _sampling(asked["sampling"] or {}, asked["kind"], unsaid or {}, max_tokens_as)
    if asked["seed"] is not None and n == 1:  # else it would be one sample's and act on all
        body["seed"] = asked["seed"]
    if asked.get("tools"):
        body["tools"] = asked["tools"]
    if asked["schema"] is not None:
        named = {"name": "answer", "schema": asked["schema"], "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": named}
        if asked["kind"] == "completion":  # llama.cpp overlooks response_format there
            body["json_schema"] = asked["schema"]
    if n > 1:
        body["n"] = n
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return orjson.dumps({**(unsaid or {}), **body, **(asked.get("extra") or {})})


def _content(said: Any, media: dict[str, str] | None) -> Any:
    return said if isinstance(said, str) else [content_part(part, media or {}) for part in said]


def _sampling(
    sampling: dict[str, Any], kind: str, unsaid: Mapping[str, Any], max_tokens_as: str
) -> dict[str, Any]:
    body = {k: v for k, v in sampling.items() if v not in (None, [])}
    if kind == "chat" and max_tokens_as != LIMIT and LIMIT in body:  # completions have no other name for it
        body[max_tokens_as] = body.pop(LIMIT)
    if kind == "chat" and (count := body.pop("logprobs", None)) is not None:
        body |= {"logprobs": True, "top_logprobs": count}
    if "repetition_penalty" in body and "repeat_penalty" in unsaid:  # llama.cpp's name for it
        body["repeat_penalty"] = body.pop("repetition_penalty")
    return body


def prompt_of(request: Request) -> str:
    """The text that a prefix cache sees; media by their digests."""
    if request.prompt is not None:
        return request.prompt
    return "\n".join(
        said if isinstance(said, str) else "\n".join(p if isinstance(p, str) else p.sha256 for p in said)
        for _, said in request.messages
    )


def read_reply(
    status: int, raw: bytes, kind: str, retry_after_s: float | None = None, limits: Limits = SILENT
) -> Reply:
    """What a response means; never raises for what a server may send."""
    if status != 200:
        failure = _failure_of(status, raw)
        kept = Kept("", failure=failure, detail=f"HTTP {status}: {_said(raw)}")
        return Reply(kept, raw, status == 429, retry_after_s, limits)
    try:
        body = orjson.loads(raw)
        if "error" in body and not body.get("choices"):  # some gateways wrap it in a 200
            kept = Kept("", failure=Failure.SERVER, detail=f"HTTP 200 with an error: {_said(raw)}")
        elif kind == "embedding":
            kept = Kept("", usage=_usage(body.get("usage") or {}))
        else:
            kept = _answer(body["choices"][0], kind, _usage(body.get("usage") or {}))
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        if raw.lstrip()[:1] == b"<":
            kept = Kept("", failure=Failure.HTML, detail=f"HTML in place of a {kind} reply: {_start(raw)}")
        else:
            what = f"not a {kind} reply ({type(error).__name__}): {_start(raw)}"
            kept = Kept("", failure=Failure.BROKEN_BODY, detail=what)
    return Reply(kept, raw, False, retry_after_s, limits)


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


def checked(reply: Reply, count: int) -> Reply:
    """A reply that lacks a vector is a broken body, to be asked again."""
    if reply.kept.failure is not None:
        return reply
    try:
        read_vectors(reply.body, count)
    except ValueError as error:
        return replace(reply, kept=Kept("", failure=Failure.BROKEN_BODY, detail=str(error)))
    return reply


def read_logprobs(raw: bytes, choice: int = 0) -> list[Token]:
    """The tokens of a reply's text with their log probabilities, as asked by `Sampling.logprobs`.

    `raw` is an answer's stored body (`Store.record(id).body`). Raises ValueError when it tells none.
    """
    try:
        told = orjson.loads(raw)["choices"][choice]["logprobs"]
        if "content" in told:  # as chats tell it, and llama.cpp always
            return [
                Token(
                    t["token"],
                    float(t["logprob"]),
                    {a["token"]: float(a["logprob"]) for a in t["top_logprobs"]},
                )
                for t in told["content"]
            ]
        tops = told.get("top_logprobs") or [None] * len(told["tokens"])
        return [
            Token(token, -math.inf if value is None else float(value), dict(top or {}))
            for token, value, top in zip(told["tokens"], told["token_logprobs"], tops, strict=True)
        ]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"no log probabilities: {_start(raw)}") from error


def _answer(choice: Any, kind: str, usage: Usage) -> Kept:
    message, name = (choice["message"], "content") if kind == "chat" else (choice, "text")
    refusal = message.get("refusal") if kind == "chat" else None
    finish = choice.get("finish_reason") or ""
    text = text_of(message.get(name) if finish else message[name])  # who has nothing to say may leave it out
    if not isinstance(finish, str):
        raise TypeError("finish_reason must be a string")
    if finish in BROKEN_OFF or choice.get("error"):
        detail = f"broken off ({finish or 'error'}): {_told(choice.get('error'))}"[:DETAIL_CHARS]
        return Kept("", finish, usage, Failure.BROKEN_BODY, detail)
    if refusal:
        return Kept("", finish, usage, Failure.REFUSED, str(refusal)[:DETAIL_CHARS])
    if finish.startswith("content_filter"):  # with the kind of filter behind a colon
        return Kept("", finish, usage, Failure.FILTERED, "stopped by the content filter")
    finish = "length" if finish == "model_length" else finish  # of the context
    if finish == "length":
        return Kept(text, finish, usage, Failure.LENGTH, "cut at max_tokens")
    if not text.strip() and kind == "chat" and message.get("tool_calls"):
        return Kept(_calls(message["tool_calls"]), finish, usage)
    if not text.strip():
        return Kept("", finish, usage, Failure.EMPTY, "the model wrote nothing")
    return Kept(text, finish, usage)


def text_of(content: Any) -> str:
    """The text of a message or of a stream's piece; where it comes in parts, without what was but thought."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    if not isinstance(content, str | None):
        raise TypeError("a content is a text, or a list of parts")
    return content or ""


def _calls(calls: Any) -> str:
    """The calls of tools as JSON text: [{"name": ..., "arguments": ...}], the arguments as written."""
    named = [(call["function"]["name"], call["function"]["arguments"]) for call in calls]
    return orjson.dumps([{"name": name, "arguments": said} for name, said in named]).decode()


def _usage(usage: Mapping[str, Any]) -> Usage:
    cost, details = usage.get("cost"), usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else 0
    billed = isinstance(cost, (int, float)) and not isinstance(cost, bool) and 0 <= cost <= MOST
    asked, whole = _count(usage.get("prompt_tokens")), _count(usage.get("total_tokens"))
    return Usage(
        asked,
        max(_count(usage.get("completion_tokens")), whole - asked),  # some count thoughts in the total alone
        float(cost or 0.0) if billed else 0.0,
        _count(cached),
        billed,
    )


def _count(tokens: Any) -> int:
    counted = float(tokens or 0)
    if not counted <= MOST:
        raise ValueError(f"{tokens} tokens")
    return max(0, int(counted))


def _failure_of(status: int, raw: bytes) -> Failure:
    if status in (429, 503, 529):
        return Failure.OVERLOADED
    if status in (408, 504):
        return Failure.TIMEOUT
    if status == 400 and codes_of(raw) & FILTERS:
        return Failure.FILTERED
    return Failure.SERVER if status >= 500 else Failure.BAD_REQUEST


def codes_of(raw: bytes) -> set[str]:
    """How an error body names its error; never by its message, which may quote the question."""
    try:
        error = orjson.loads(raw)["error"]
        return {said for name in ("code", "type") if isinstance(said := error.get(name), str)}
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return set()


def _said(raw: bytes) -> str:
    """The server's own words, shortened, from its error body."""
    try:
        return _told(orjson.loads(raw)["error"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return _start(raw)


def _told(error: Any) -> str:
    message = error["message"] if isinstance(error, dict) and "message" in error else error
    return "nothing said" if message is None else str(message)[:DETAIL_CHARS]


def _start(raw: bytes) -> str:
    return " ".join(raw[:DETAIL_CHARS].decode("utf-8", "replace").split()) or "(empty body)"
