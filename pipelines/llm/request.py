"""A model request and its key.

Law: the key is the SHA-256 of all that can change the answer, and of nothing else: `IN_KEY` and
`LEFT_OUT` say of every field which and why, for this `KEY_VERSION`. So growing the data by one row
asks one new question, and moving to another host, port, time-out or batch asks none. Equal values
have one spelling: keys in order, text in NFC, numbers by value (1, 1.0 and 1e0 are one number).

A field at its default of later days (tools, extra, penalties, ...) is absent from the canonical text,
so that answers stored before it was there keep their keys.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal

import orjson

from pipelines.errors import ConfigError

KEY_VERSION = 1
IN_KEY = {
    "identity": "the model: hash of the weights, or name and revision",
    "Request.kind": "a chat template changes the prompt",
    "Request.prompt": "the question",
    "Request.messages": "the question",
    "Request.schema": "it constrains the decoding",
    "Request.tools": "they stand in the prompt and constrain the decoding",
    "Request.sample": "the k-th answer to one question is its own",
    "Request.seed": "it draws the answer; a function of run seed, row key and sample index",
    "Request.extra": "parameters of one server: it may heed them",
    "Sampling": "every field of it changes what is drawn, or what is told of it (logprobs)",
    "Media.kind": "a model reads an image, a sound and a film differently",
    "Media.sha256": "the bytes that the model sees",
    "Media.mime": "a server decodes by it",
}
LEFT_OUT = {
    "Request.model": "a name; the identity stands for it",
    "Request.row": "who asks, not what",
    "Request.purpose": "who asks, not what",
    "Media.ref": "where the bytes lie; their digest stands for them",
    "n": "how many samples ride in one call; each has its own index",
    "stream": "how the answer travels, as do host, time-outs, retries, concurrency and batches",
}
Kind = Literal["completion", "chat", "embedding"]
MediaKind = Literal["image", "audio", "video"]

# What `extra` may not name: it has a field of its own, or only says how to ask.
_OWN = frozenset(
    "model prompt messages input tools seed n stream stream_options user max_tokens max_completion_tokens "
    "temperature top_p top_k min_p stop logprobs top_logprobs presence_penalty frequency_penalty "
    "repetition_penalty repeat_penalty response_format json_schema cache_prompt".split()
)


@dataclass(frozen=True)
class Sampling:
    """How to draw an answer. Every field is part of the key. Raises ConfigError for what no model can do.

    `logprobs` is how many alternatives a token is told with (0: the token's own alone), None for none.
    """

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logprobs: int | None = None

    @cached_property
    def canonical(self) -> str:
        """Its canonical JSON."""
        return _sampling(self)

    def __post_init__(self) -> None:
        for name, fits, range_ in (
            ("max_tokens", self.max_tokens >= 1, "at least 1"),
            ("temperature", 0 <= self.temperature <= 2, "in [0, 2]"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("min_p", 0 <= self.min_p <= 1, "in [0, 1]"),
            ("presence_penalty", -2 <= self.presence_penalty <= 2, "in [-2, 2]"),
            ("frequency_penalty", -2 <= self.frequency_penalty <= 2, "in [-2, 2]"),
            ("repetition_penalty", 0 < self.repetition_penalty < math.inf, "above 0"),
            ("logprobs", self.logprobs is None or 0 <= self.logprobs <= 20, "from 0 to 20"),
        ):
            if not fits:
                raise ConfigError(f"{name} must be {range_}, is {getattr(self, name)}", where="params.yaml")


@dataclass(frozen=True)
class Media:
    """A part of a message that is no text: known by the SHA-256 of its bytes, found at `ref`.

    `ref` is a path or an address; a clip that moved is the same clip. Raises ConfigError.
    """

    kind: MediaKind
    sha256: str
    mime: str
    ref: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        where = self.ref or "a message"
        if self.kind not in ("image", "audio", "video"):
            raise ConfigError(
                f"unknown kind of media {self.kind!r}", where=where, cure="image, audio or video"
            )
        if not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise ConfigError("media without a SHA-256", where=where, cure="give 64 hex digits, lower case")
        if not re.fullmatch(r"[\w.+-]+/[\w.+-]+", self.mime):
            raise ConfigError(f"no media type: {self.mime!r}", where=where, cure="such as image/png")


Content = str | tuple[str | Media, ...]


@dataclass(frozen=True)
class Request:
    """One question to one model, for one sample.

    `model` is a name of the registry (or of the endpoint's own models); the client
    resolves it to an identity. `messages` are (role, content) pairs for `chat`, a content being a
    text or a tuple of texts and Media; `prompt` is the raw text for `completion` and the text for
    `embedding`. `schema` is sent as its key is made, with the names of properties in alphabetical order,
    so models write the properties in that order. `extra` are further parameters of the server, by the names
    that it gives them.
    `row` and `purpose` name the asker in errors and traces and are not part of the key.
    """

    kind: Kind
    model: str
    sampling: Sampling | None = None
    prompt: str | None = None
    messages: tuple[tuple[str, Content], ...] = ()
    schema: Mapping[str, Any] | None = None
    sample: int = 0
    seed: int | None = None
    row: str = field(default="", compare=False)
    purpose: str = field(default="", compare=False)
    tools: tuple[Mapping[str, Any], ...] = ()
    extra: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.extra and (own := _OWN.intersection(self.extra)):
            what = f"a request's extra may not name {min(own)!r}"
            raise ConfigError(what, where=self.purpose or None, cure="use the request's own field, if any")


def seed_of(run_seed: int, row_key: str, sample: int) -> int:
    """Seed in [0, 2**31) of one sample of one row, whatever the order or the worker."""
    digest = hashlib.sha256(f"{run_seed}\x1f{row_key}\x1f{sample}".encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFFFFFF


def canonical(request: Request, identity: str) -> str:
    """The request as canonical JSON: sorted keys, NFC text, numbers by value. Raises ConfigError.

    A part of the media kind is {"media": kind, "mime": ..., "sha256": ...}.
    """
    named: dict[str, Any] = {}
    try:
        if request.extra:
            named["extra"] = orjson.Fragment(_shared(request.extra))
        named["kind"] = request.kind
        named["messages"] = request.messages
        named["model"] = identity
        named["prompt"] = request.prompt
        named["sample"] = int(request.sample)
        named["sampling"] = None if request.sampling is None else orjson.Fragment(request.sampling.canonical)
        named["schema"] = None if request.schema is None else orjson.Fragment(_shared(request.schema))
        named["seed"] = None if request.seed is None else int(request.seed)
        if request.tools:
            named["tools"] = orjson.Fragment(_shared(request.tools))
        named["v"] = KEY_VERSION
        text = orjson.dumps(named, option=orjson.OPT_PASSTHROUGH_DATACLASS).decode()
    except TypeError:  # media, a lone surrogate, a number beyond 64 bits
        return _piece_by_piece(request, identity)
    # A quotation mark composes with nothing: the whole is NFC only if each text in it is.
    sound = text.isascii() or unicodedata.is_normalized("NFC", text)
    return text if sound else _piece_by_piece(request, identity)


def request_key(request: Request, identity: str) -> str:
    """Key of a request: 64 hex digits, the id of its answer in the store."""
    return key_of(canonical(request, identity))


def key_of(canonical_text: str) -> str:
    """Key of a canonical request. Raises UnicodeEncodeError for text with a lone surrogate."""
    return hashlib.sha256(canonical_text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Named:
    """A request under its key, as one model's identity makes it."""

    request: Request
    key: str
    canonical: str
    identity: str
    model: str


def named_request(request: Request, model: str, identity: str) -> Named:
    """`request` as asked of `model`. Raises UnicodeEncodeError for text with a lone surrogate."""
    text = canonical(request, identity)
    return Named(request, key_of(text), text, identity, model)


def _piece_by_piece(request: Request, identity: str) -> str:
    """`canonical` for whatever has more than one spelling, and for what orjson does not take."""
    extra = f'"extra":{_shared(request.extra)},' if request.extra else ""
    tools = f'"tools":{_shared(request.tools)},' if request.tools else ""
    prompt = "null" if request.prompt is None else _quoted(request.prompt)
    messages = ",".join([f"[{_quoted(role)},{_content(said)}]" for role, said in request.messages])
    schema = "null" if request.schema is None else _shared(request.schema)
    sampling = "null" if request.sampling is None else request.sampling.canonical
    seed = "null" if request.seed is None else int(request.seed)
    return (
        f'{{{extra}"kind":{_quoted(request.kind)},"messages":[{messages}],"model":{_quoted(identity)},'
        f'"prompt":{prompt},"sample":{int(request.sample)},"sampling":{sampling},"schema":{schema},'
        f'"seed":{seed},{tools}"v":{KEY_VERSION}}}'
    )


def _content(content: Content) -> str:
    if isinstance(content, str):
        return _quoted(content)
    return f"[{','.join([_quoted(p) if isinstance(p, str) else _media(p) for p in content])}]"


@lru_cache(1024)
def _media(part: Media) -> str:
    return f'{{"media":"{part.kind}","mime":{_quoted(part.mime)},"sha256":"{part.sha256}"}}'


@lru_cache(256)
def _sampling(sampling: Sampling) -> str:
    """Remembered also for its equals: a stage asks thousands of questions by one of it."""
    named: dict[str, Any] = {
        "max_tokens": int(sampling.max_tokens),
        "temperature": float(sampling.temperature),
        "top_p": float(sampling.top_p),
        "top_k": None if sampling.top_k is None else int(sampling.top_k),
        "stop": sampling.stop,
    }
    for name, default in (
        ("min_p", 0.0),
        ("presence_penalty", 0.0),
        ("frequency_penalty", 0.0),
        ("repetition_penalty", 1.0),
    ):
        if (value := float(getattr(sampling, name))) != default:
            named[name] = value
    if sampling.logprobs is not None:
        named["logprobs"] = int(sampling.logprobs)
    return _text(named)


def _quoted(text: str) -> str:
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    try:
        return orjson.dumps(text).decode()
    except TypeError:  # a lone surrogate: whoever encodes the whole names it
        return json.dumps(text, ensure_ascii=False)


def _shared(value: Any) -> str:
    """Canonical JSON of what many requests share, remembered by its bytes (it may be mutable)."""
    try:
        raw = orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS)
    except TypeError:
        return _text(value)
    return _text(value) if b"null" in raw else _remembered(raw)  # orjson writes NaN as null


@lru_cache(256)
def _remembered(raw: bytes) -> str:
    return _text(orjson.loads(raw))


def _text(value: Any) -> str:
    try:
        return json.dumps(_plain(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    except TypeError as error:
        raise ConfigError(f"a request holds what JSON cannot say: {error}") from error


def _plain(value: Any) -> Any:
    """One spelling for equal values: 1.0 is 1, text is NFC, mappings have text keys."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ConfigError(f"a request holds the number {value}, which JSON cannot say")
        return int(value) if value.is_integer() else value
    if isinstance(value, str):
        return value if value.isascii() else unicodedata.normalize("NFC", value)
    if isinstance(value, Mapping):
        named = {_plain(str(k)): _plain(v) for k, v in value.items()}
        if len(named) < len(value):
            raise ConfigError("two names of one mapping in a request are the same text")
        return named
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value
