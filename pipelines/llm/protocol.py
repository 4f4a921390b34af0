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

from pipelines.errors import HeadraceError
from pipelines.llm.answer import Failure, Usage
from pipelines.llm.error_body import DETAIL_CHARS, failure_of, start_of, status_within, words, words_of
from pipelines.llm.limits import SILENT, Limits
from pipelines.llm.media import content_part
from pipelines.llm.request import Request
from pipelines.llm.store import Kept

PATHS = {"completion": "/v1/completions", "chat": "/v1/chat/completions", "embedding": "/v1/embeddings"}
LIMIT = "max_tokens"
MOST = 1e12  # tokens, or USD, that one answer may be said to cost
# Finish reasons that are no success, in all spellings; a colon may follow, and what more there is to say.
ENDS = {
    **dict.fromkeys(("length", "max_tokens", "model_length"), Failure.LENGTH),
    **dict.fromkeys(("content_filter", "safety", "recitation", "blocklist"), Failure.FILTERED),
    **dict.fromkeys(("prohibited_content", "spii"), Failure.FILTERED),
    "refusal": Failure.REFUSED,
    **dict.fromkeys(("abort", "error", "insufficient_system_resource"), Failure.BROKEN_BODY),
}


@dataclass(frozen=True, slots=True)
class Reply:
    """One attempt's end. `throttled` is a 429; `retry_after_s` what the server asked to wait.

    `limits` is all that its headers say of limits; `reached`: there was a connection that held;
    `left`: the request may have arrived, so it may be billed; `status` is what the response says, 0 without
    one; `stop`: what ends the run if it concerns not this request alone.
    """

    kept: Kept
    body: bytes = b""
    throttled: bool = False
    retry_after_s: float | None = None
    limits: Limits = SILENT
    reached: bool = True
    left: bool = True
    status: int = 0
    stop: HeadraceError | None = None


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
    if not 200 <= status < 300:
        throttled = status == 429 or (status == 402 and retry_after_s is not None)
        failure = failure_of(status, raw, throttled=throttled)
        kept = Kept("", failure=failure, detail=f"HTTP {status}: {words_of(raw)}")
        return Reply(kept, raw, throttled, retry_after_s, limits, status=status)
    try:
        body = orjson.loads(raw)
        if body.get("error") is not None and not body.get("choices"):  # some gateways wrap it in a 200
            if within := status_within(body["error"]):
                return read_reply(within, raw, kind, retry_after_s, limits)
            kept = Kept("", failure=Failure.SERVER, detail=f"HTTP 200 with an error: {words_of(raw)}")
        elif kind == "embedding":
            kept = Kept("", usage=_usage(body.get("usage") or {}))
        else:
            kept = _answer(body["choices"][0], kind, _usage(body.get("usage") or {}))
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        if raw.lstrip()[:1] == b"<":
            kept = Kept("", failure=Failure.HTML, detail=f"HTML in place of a {kind} reply: {start_of(raw)}")
        else:
            what = f"not a {kind} reply ({type(error).__name__}): {start_of(raw)}"
            kept = Kept("", usage=_counted(raw), failure=Failure.BROKEN_BODY, detail=what)
    return Reply(kept, raw, False, retry_after_s, limits, status=status)


def read_vectors(raw: bytes, count: int) -> list[list[float]]:
    """The vectors of an embeddings reply, in the order asked. Raises ValueError for any other body."""
    try:
        data = sorted(orjson.loads(raw)["data"], key=lambda item: item["index"])
        vectors = [[float(x) for x in item["embedding"]] for item in data]
    except (KeyError, TypeError) as error:
        raise ValueError(f"no list of embeddings: {start_of(raw)}") from error
    if len(vectors) != count or not all(vectors):
        raise ValueError(f"{len(vectors)} embeddings for {count} texts")
    if len({len(vector) for vector in vectors}) > 1:
        raise ValueError("embeddings of several sizes")
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
        raise ValueError(f"no log probabilities: {start_of(raw)}") from error


def _answer(choice: Any, kind: str, usage: Usage) -> Kept:
    finish = choice.get("finish_reason") or ""
    end = ENDS.get(finish.partition(":")[0].lower())
    if end is Failure.BROKEN_BODY or choice.get("error"):
        detail = f"broken off ({finish or 'error'}): {words(choice.get('error'))}"[:DETAIL_CHARS]
        return Kept("", finish, usage, Failure.BROKEN_BODY, detail)
    message, text = _said(choice, kind, ended=bool(finish))
    refusal = message.get("refusal") if kind == "chat" else None
    if refusal or end is Failure.REFUSED:
        return Kept("", finish, usage, Failure.REFUSED, str(refusal or text)[:DETAIL_CHARS])
    if end is Failure.FILTERED:
        return Kept("", finish, usage, Failure.FILTERED, "stopped by the content filter")
    if end is Failure.LENGTH:
        return Kept(text, "length", usage, Failure.LENGTH, "cut at max_tokens")
    if not text.strip() and kind == "chat" and message.get("tool_calls"):
        return Kept(_calls(message["tool_calls"]), finish, usage)
    if not text.strip():
        return Kept("", finish, usage, Failure.EMPTY, "the model wrote nothing")
    return Kept(text, finish, usage)


def _said(choice: Any, kind: str, *, ended: bool) -> tuple[Any, str]:
    """A choice's message and text; one that says why it ended may leave out what it does not have."""
    if kind != "chat":
        return choice, text_of(choice.get("text") if ended else choice["text"])
    message = (choice.get("message") or {}) if ended else choice["message"]
    return message, text_of(message.get("content") if ended else message["content"])


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


def usage_of(body: Any) -> Usage:
    """What a body says of tokens and money; nothing where that cannot be."""
    try:
        return _usage(body["usage"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return Usage()


def _counted(raw: bytes) -> Usage:
    try:
        return usage_of(orjson.loads(raw))
    except orjson.JSONDecodeError:
        return Usage()


def _usage(usage: Mapping[str, Any]) -> Usage:
    cost, details = _billed(usage), usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    asked, whole = _count(usage.get("prompt_tokens")), _count(usage.get("total_tokens"))
    return Usage(
        asked,
        max(_count(usage.get("completion_tokens")), whole - asked),  # some count thoughts in the total alone
        cost or 0.0,
        _count(usage.get("prompt_cache_hit_tokens") if cached is None else cached),
        cost is not None,
    )


def _billed(usage: Mapping[str, Any]) -> float | None:
    """USD that the seller says he charges, and lets others charge to a key of ours; None where unsaid."""
    cost, details = _usd(usage.get("cost")), usage.get("cost_details")
    if cost is None or usage.get("is_byok") is not True or not isinstance(details, Mapping):
        return cost
    return cost + (_usd(details.get("upstream_inference_cost")) or 0.0)


def _usd(told: Any) -> float | None:
    sound = isinstance(told, int | float) and not isinstance(told, bool) and 0 <= told <= MOST
    return float(told) if sound else None


def _count(tokens: Any) -> int:
    counted = float(tokens or 0)
    if not counted <= MOST:
        raise ValueError(f"{tokens} tokens")
    return max(0, int(counted))
