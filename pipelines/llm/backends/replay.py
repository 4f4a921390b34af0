"""The store alone: nothing is asked, a miss stops the run and says what is missing.

Law: a replay gives the stored bytes or an error; it never falls back on a model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pipelines.errors import HeadraceError
from pipelines.llm.models import REGISTRY
from pipelines.llm.request import Named, Request, canonical, named_request
from pipelines.llm.store import Store

UNSAID: Mapping[str, Any] = {}


class ReplayMiss(HeadraceError):
    """A request whose answer is not in the store."""


class Replay:
    """Identities as the recording backend gave them: weights' hash where the name is registered."""

    llama = False
    ours = True
    unsaid = UNSAID

    def identity(self, model: str) -> str:
        return REGISTRY[model].identity if model in REGISTRY else f"name:{model}"

    def other(self, named: Named) -> Named:
        """The same request under the identity that an endpoint's answers have."""
        return named_request(named.request, named.model, f"name:{named.model}")

    async def url(self, model: str, prompt: str = "") -> str:
        raise HeadraceError("a replay has no server")

    def left(self, url: str, alive: bool) -> None:
        return None

    async def close(self) -> None:
        return None


def miss(store: Store, request: Request, identity: str) -> ReplayMiss:
    """The error that names asker, model and the field that differs from the nearest stored request."""
    asked = json.loads(canonical(request, identity))
    stored = [json.loads(r.request) for r in store.asked_for(purpose=request.purpose, row=request.row)]
    nearest = min((_differing(asked, other) for other in stored), key=len, default=None)
    why = f"differs from the stored one in {', '.join(nearest)}" if nearest else "nothing is stored for it"
    who = f"{request.purpose or 'a request'} of row {request.row or '(unnamed)'}, sample {request.sample}"
    return ReplayMiss(
        f"replay: no stored answer of {request.model} to {who}: {why}",
        where=str(store.path),
        cure="run once with the backend that has the model, or replay the store of that run",
    )


def _differing(asked: dict[str, Any], stored: dict[str, Any]) -> list[str]:
    """Names of the fields that differ; those of the sampling one by one."""
    names = []
    for name in sorted(asked.keys() | stored.keys()):
        ours, theirs = asked.get(name), stored.get(name)
        if ours == theirs:
            continue
        if name == "sampling" and isinstance(ours, dict) and isinstance(theirs, dict):
            names += [
                f"sampling.{k}" for k in sorted(ours.keys() | theirs.keys()) if ours.get(k) != theirs.get(k)
            ]
        else:
            names.append(name)
    return names
