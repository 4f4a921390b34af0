"""A model whose answers and log probabilities a test writes, for stages that measure uncertainty."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from pipelines.asking import AskingStep
from pipelines.llm.answer import Answer, Failure, Usage
from pipelines.llm.client import Pulse
from pipelines.llm.request import Request, request_key
from pipelines.llm.store import Kept, Record

# Tokens, each with its log probability and the alternatives told at its place.
Said = Sequence[tuple[str, float, Mapping[str, float]]]
Script = Callable[[Request], Said | Failure]


@dataclass
class ScriptedStore:
    """What `Client.store` gives of stored answers."""

    bodies: dict[str, bytes]

    def full(self, keys: Iterable[str]) -> dict[str, Record]:
        found = {k: self.bodies[k] for k in keys if k in self.bodies}
        return {k: Record(k, "completion", "m", "i", "{}", Kept(""), body) for k, body in found.items()}


class ScriptedModel:
    """Answers by a script; embeds a text by its words.

    reverse: the last asked is answered first; cut: max_tokens ends each answer; silent: no log
    probabilities are told.
    """

    def __init__(
        self, script: Script, *, reverse: bool = False, cut: bool = False, silent: bool = False
    ) -> None:
        self.script, self.reverse, self.cut, self.silent = script, reverse, cut, silent
        self.asked: list[Request] = []
        self.store = ScriptedStore({})
        self.embedded: set[str] | None = None

    def __enter__(self) -> ScriptedModel:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        pass

    def pulse(self) -> Pulse:
        return Pulse(len(self.asked), 0, 0, 0, 0, len(self.asked), 0, 0.0)

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        self.asked = list(requests)
        for request in reversed(self.asked) if self.reverse else self.asked:
            said, key = self.script(request), request_key(request, "scripted")
            if isinstance(said, Failure):
                yield Answer(request, key, "", "", Usage(9, 0), said, "as the script says")
                continue
            content = [
                {
                    "token": token,
                    "logprob": logprob,
                    "top_logprobs": [{"token": t, "logprob": p} for t, p in top.items()],
                }
                for token, logprob, top in said
            ]
            body: dict[str, Any] = {"choices": [{} if self.silent else {"logprobs": {"content": content}}]}
            self.store.bodies[key] = json.dumps(body).encode()
            text, end = "".join(token for token, _, _ in said), ("length" if self.cut else "stop")
            yield Answer(request, key, text, end, Usage(9, len(said)), Failure.LENGTH if self.cut else None)

    def embed(
        self, texts: Sequence[str], *, model: str = "", prefix: str = "", progress: Any = None
    ) -> np.ndarray:
        self.embedded = (self.embedded or set()) | set(texts)
        vectors = np.zeros((len(texts), 64), dtype=np.float32)
        for i, text in enumerate(texts):
            for word in text.lower().split():
                vectors[i, int(hashlib.md5(word.encode()).hexdigest(), 16) % 64] += 1
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


class ScriptedStep(AskingStep):
    """A step whose model is scripted."""

    scripted: ScriptedModel

    def client(self, backend: str, model: str = "") -> Any:
        return self.scripted
