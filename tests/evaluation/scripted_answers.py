"""A model whose answers and log probabilities a test writes, for stages that measure uncertainty."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.llm.answer import Answer, Failure, Usage
from pipelines.llm.request import Request
from pipelines.llm.store import Kept, Record
from tests.scripted_client import Scripted, ScriptedStep

__all__ = ["Said", "ScriptedModel", "ScriptedStep"]

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


class ScriptedModel(Scripted):
    """Answers by a script.

    reverse: the last asked is answered first; cut: max_tokens ends each answer; silent: no log
    probabilities are told.
    """

    def __init__(
        self, script: Script, *, reverse: bool = False, cut: bool = False, silent: bool = False
    ) -> None:
        super().__init__(reverse=reverse)
        self.script, self.cut, self.silent = script, cut, silent
        self.store = ScriptedStore({})

    def answer(self, request: Request, key: str) -> Answer:
        said = self.script(request)
        if isinstance(said, Failure):
            return Answer(request, key, "", "", Usage(9, 0), said, "as the script says")
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
        return Answer(request, key, text, end, Usage(9, len(said)), Failure.LENGTH if self.cut else None)
