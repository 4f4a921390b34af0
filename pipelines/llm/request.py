"""A model request and its key.

Law: the key is the SHA-256 of all that can change the answer, and of nothing
else. So growing the data by one row asks one new question, and moving to
another host, port, time-out or batch asks none.

| field                         | in the key | why                                           |
|-------------------------------|------------|-----------------------------------------------|
| model identity                | yes        | hash of the weights, or name and revision     |
| kind, prompt or messages      | yes        | the question                                  |
| every sampling parameter      | yes        | temperature, top_p, top_k, max_tokens, stop   |
| JSON schema                   | yes        | it constrains the decoding                    |
| seed                          | yes        | a function of run seed, row key, sample index |
| sample index                  | yes        | the k-th answer to one question is its own    |
| host, time-outs, row, purpose | no         | they say how to ask and for whom, not what    |
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pipelines.errors import ConfigError

KEY_VERSION = 1
Kind = Literal["completion", "chat", "embedding"]


@dataclass(frozen=True)
class Sampling:
    """How to draw an answer. Every field is part of the key. Raises ConfigError for what no model can do."""

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int | None = None
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, value, fits, range_ in (
            ("max_tokens", self.max_tokens, self.max_tokens >= 1, "at least 1"),
            ("temperature", self.temperature, 0 <= self.temperature <= 2, "in [0, 2]"),
            ("top_p", self.top_p, 0 < self.top_p <= 1, "above 0 and at most 1"),
        ):
            if not fits:
                raise ConfigError(f"{name} must be {range_}, is {value}", where="params.yaml")


@dataclass(frozen=True)
class Request:
    """One question to one model, for one sample.

    `model` is a name of the registry (or of the endpoint's own models); the client
    resolves it to an identity. `messages` are (role, text) pairs for `chat`, `prompt`
    is the raw text for `completion` and the text for `embedding`. `row` and `purpose`
    name the asker in errors and traces and are not part of the key.
    """

    kind: Kind
    model: str
    sampling: Sampling | None = None
    prompt: str | None = None
    messages: tuple[tuple[str, str], ...] = ()
    schema: Mapping[str, Any] | None = None
    sample: int = 0
    seed: int | None = None
    row: str = field(default="", compare=False)
    purpose: str = field(default="", compare=False)


def seed_of(run_seed: int, row_key: str, sample: int) -> int:
    """Seed in [0, 2**31) of one sample of one row, whatever the order or the worker."""
    digest = hashlib.sha256(f"{run_seed}\x1f{row_key}\x1f{sample}".encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFFFFFF


def canonical(request: Request, identity: str) -> str:
    """The request as canonical JSON: sorted keys, NFC text, numbers by value."""
    sampling = request.sampling
    body: dict[str, Any] = {
        "v": KEY_VERSION,
        "model": identity,
        "kind": request.kind,
        "prompt": request.prompt,
        "messages": [list(m) for m in request.messages],
        "schema": request.schema,
        "sample": request.sample,
        "seed": request.seed,
        "sampling": None
        if sampling is None
        else {
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "stop": list(sampling.stop),
        },
    }
    return json.dumps(_plain(body), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


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


def _plain(value: Any) -> Any:
    """One spelling for equal values: 1.0 is 1, text is NFC, mappings have text keys."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, str):
        return value if value.isascii() else unicodedata.normalize("NFC", value)
    if isinstance(value, Mapping):
        return {_plain(str(k)): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value
