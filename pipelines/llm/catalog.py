"""Requests by their keys, and what the store has of them.

Law: the key of a request is that of the model in force: one for the model that params name is asked
of the model that the environment chose. Nothing is sent from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipelines.llm.answer import UNANSWERED, Answer, Failure
from pipelines.llm.backends.replay import Replay
from pipelines.llm.prices import unpriced
from pipelines.llm.request import Named, Request, named_request
from pipelines.llm.settings import Settings
from pipelines.llm.store import Kept, Store
from pipelines.llm.store_rows import NOTHING

if TYPE_CHECKING:
    from pipelines.llm.endpoint import Backend


class Catalog:
    """Names requests, looks them up, and makes answers of what is kept. `declared`: the model of params."""

    def __init__(self, settings: Settings, declared: str, backend: Backend, store: Store) -> None:
        self._settings, self._declared, self._backend, self._store = settings, declared, backend, store
        self._known: dict[tuple[str, str], bool] = {}  # of a request's model and identity: see _unpriced

    def model_of(self, request: Request) -> str:
        """The model that is asked."""
        return self._settings.model if request.model in ("", self._declared) else request.model

    def name(self, batch: Sequence[Request]) -> tuple[list[Named], list[Answer]]:
        """Keys of a batch. Text that is no Unicode (a lone surrogate) fails its own row only."""
        named: list[Named] = []
        unreadable: list[Answer] = []
        asked: dict[str, tuple[str, str]] = {}  # the model and its identity, by the name in the request
        for request in batch:
            if request.model not in asked:
                model = self.model_of(request)
                asked[request.model] = model, self._backend.identity(model)
            try:
                named.append(named_request(request, *asked[request.model]))
            except UnicodeEncodeError as error:
                detail = f"the prompt is not valid Unicode: {error.reason}"
                unreadable.append(Answer(request, "", failure=Failure.BAD_REQUEST, detail=detail))
        return named, unreadable

    def look_up(self, named: list[Named]) -> tuple[list[Named], dict[str, Kept]]:
        """What is stored. A replay also takes what an endpoint or vLLM said under a registered name."""
        kept = self._store.answers({n.key for n in named})
        if isinstance(self._backend, Replay) and len(kept) < len(named):
            for others in zip(*map(self._backend.others, named), strict=True):
                lacking = {o.key for n, o in zip(named, others, strict=True) if n.key not in kept}
                kept |= self._store.answers(lacking)
                named = [o if o.key in kept else n for n, o in zip(named, others, strict=True)]
        return named, kept

    def answer(self, request: Request, key: str, kept: Kept, *, stored: bool, identity: str = "") -> Answer:
        """What is kept as the answer to a request; `identity` is the model's, looked up if not told."""
        told = kept.usage.cost_usd or kept.failure in UNANSWERED
        unknown = not told and self._unpriced(request, identity)
        detail = kept.detail
        return Answer(request, key, kept.text, kept.finish, kept.usage, kept.failure, detail, stored, unknown)

    def _unpriced(self, request: Request, identity: str) -> bool:
        """Whether nobody knows what an answer costs of which no price is told."""
        asked = request.model, identity
        if asked not in self._known:
            model = self.model_of(request)
            price = self._settings.prices.get(model)
            self._known[asked] = unpriced(identity or self._backend.identity(model), NOTHING, price)
        return self._known[asked]
