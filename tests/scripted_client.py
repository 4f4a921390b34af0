"""A client whose answers a test writes, in the order asked or in reverse; it embeds a text by its words."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from pipelines.asking import AskingStep
from pipelines.llm.answer import Answer
from pipelines.llm.client import Pulse
from pipelines.llm.request import Request, request_key


class Scripted:
    """What a stage takes from its client; `answer` is the test's."""

    def __init__(self, *, reverse: bool = False) -> None:
        self.reverse = reverse
        self.asked: list[Request] = []
        self.embedded: set[str] | None = None
        self.say: Callable[[str], None] = print

    def answer(self, request: Request, key: str) -> Answer:
        raise NotImplementedError

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        pass

    def pulse(self) -> Pulse:
        return Pulse(len(self.asked), 0, 0, 0, 0, len(self.asked), 0, 0.0)

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        listed = list(requests)
        self.asked += listed
        for request in reversed(listed) if self.reverse else listed:
            yield self.answer(request, request_key(request, "scripted"))

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
    """A step whose models are scripted."""

    scripted: Any

    def client(self, backend: str, model: str = "") -> Any:
        return self.scripted
