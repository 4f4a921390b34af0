"""What a model was asked to answer, and the uncertainty estimates of what it answered.

Law: one greedy answer and m samples of each question, each with the log probabilities of its tokens,
and nothing but these enters the estimates; an estimate that is undefined (one sample, a backend that
tells no log probabilities) is absent, never 0.

Similarity of texts is the cosine of their embeddings, of question and answer together (ours: the
papers use a cross-encoder); EigValLaplacian takes the word sets (evergreen-facts 2.2 allows both).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipelines.data.rows import digest
from pipelines.errors import StageError
from pipelines.evaluation import estimates as e
from pipelines.llm.answer import Answer, Failure
from pipelines.llm.request import Request, Sampling, seed_of

if TYPE_CHECKING:
    import numpy as np

    from pipelines.llm.protocol import Token
    from pipelines.llm.store import Store

Vectors = Mapping[str, "np.ndarray"]  # text -> unit vector
GREEDY = 0  # the greedy answer's sample index; samples follow from 1
STYLES = ("completion", "chat")
PURPOSE = "evaluation.uncertainty"


@dataclass(frozen=True)
class How:
    """How a question is asked. samples: m, beside the greedy answer (papers: 10)."""

    model: str
    style: str = "completion"  # chat: the bare question, as the papers do
    samples: int = 4
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 12
    alternatives: int = 20  # told at each place of the greedy answer, for the entropy
    stop: tuple[str, ...] = ("\n",)

    def requests(self, item: str, question: str, prompt: str, seed: int) -> Iterator[Request]:
        """The greedy request and m sampling ones; `row` of each is "item#sample"."""
        chat = self.style == "chat"
        for k in range(self.samples + 1):
            greedy = k == GREEDY
            yield Request(
                kind="chat" if chat else "completion",
                model=self.model,
                sampling=Sampling(
                    max_tokens=self.max_tokens,
                    temperature=0.0 if greedy else self.temperature,
                    top_p=1.0 if greedy else self.top_p,
                    stop=self.stop,
                    logprobs=self.alternatives if greedy else 1,
                ),
                prompt=None if chat else prompt,
                messages=(("user", question),) if chat else (),
                sample=k,
                seed=seed_of(seed, digest(PURPOSE, question), k),
                row=f"{item}#{k}",
                purpose=PURPOSE,
            )


@dataclass(frozen=True)
class Heard:
    """One answer: its tokens with their log probabilities. `cut`: max_tokens ended it."""

    text: str
    tokens: Sequence[Token]
    cut: bool = False

    @property
    def logprobs(self) -> list[float]:
        return [t.logprob for t in self.tokens]


@dataclass
class Replies:
    """All answers to one question, by sample."""

    answers: dict[int, Answer] = field(default_factory=dict)

    def failed(self) -> Answer | None:
        """The first answer that is none: a failed call, or an empty greedy answer."""
        for k in sorted(self.answers):
            failure = self.answers[k].failure
            empty = failure is Failure.EMPTY and k != GREEDY  # such a sample is left out and counted
            if failure is not None and failure is not Failure.LENGTH and not empty:
                return self.answers[k]
        return None

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(a.id for _, a in sorted(self.answers.items()))

    def heard(self, tokens: Callable[[str], Sequence[Token]]) -> dict[int, Heard]:
        """By sample, those that say something; `tokens` reads them from the stored body of an answer."""
        found = {}
        for k, answer in sorted(self.answers.items()):
            if answer.text.strip():
                cut = answer.failure is Failure.LENGTH
                found[k] = Heard(answer.text.strip(), tokens(answer.id), cut)
        return found


def listen(store: Store, replies: Mapping[str, Replies]) -> dict[str, dict[int, Heard]]:
    """By item, what was said; items with a failed answer are left out.

    Where the backend told no log probabilities an answer has no tokens. Raises StageError for an answer
    that the store does not give back.
    """
    from pipelines.llm.protocol import read_logprobs

    whole = {item: r for item, r in replies.items() if r.failed() is None}
    stored = store.full([i for r in whole.values() for i in r.ids])

    def tokens(answer: str) -> Sequence[Token]:
        if answer not in stored:
            cure = "headrace store verify, then run again"
            raise StageError(f"the stored answer {answer[:16]} cannot be read", where=PURPOSE, cure=cure)
        try:
            return read_logprobs(stored[answer].body)
        except ValueError:  # this backend tells none
            return ()

    return {item: r.heard(tokens) for item, r in whole.items()}


def texts(question: str, heard: Mapping[int, Heard]) -> Iterator[str]:
    """All texts whose embeddings `measure` needs."""
    for one in heard.values():
        if not one.tokens:
            continue
        yield _whole(question, one)
        if len(one.tokens) > 1:
            yield from _without_each(question, one)


def measure(question: str, language: str, heard: Mapping[int, Heard], vectors: Vectors) -> dict[str, float]:
    """The estimates by name, higher = less sure; those that are undefined or infinite are absent."""
    found: dict[str, float] = {}
    greedy = heard.get(GREEDY)
    if greedy is not None and greedy.tokens:
        entropies = e.token_entropies([t.top or {t.text: t.logprob} for t in greedy.tokens])
        found["perplexity"] = e.perplexity(greedy.logprobs)
        found["mean_entropy"] = e.mean_entropy(entropies)
        found["max_entropy"] = e.max_entropy(entropies)
        found["token_sar"] = _token_sar(question, greedy, vectors)
    samples = [one for k, one in heard.items() if k != GREEDY]
    if len(samples) > 1:
        said = [one.text for one in samples]
        found["lexical_similarity"] = e.lexical_similarity(said, language)
        found["eigval_laplacian"] = e.eigval_laplacian(e.jaccard(said))
    told = [one for one in samples if one.tokens]
    if len(told) > 1:
        sars = [_token_sar(question, one, vectors) for one in told]
        found["sar"] = e.sar(sars, _cosines(question, told, vectors))
    return {name: value for name, value in sorted(found.items()) if math.isfinite(value)}


def _token_sar(question: str, one: Heard, vectors: Vectors) -> float:
    if len(one.tokens) == 1:
        return e.token_sar(one.logprobs, [0.0])
    whole = vectors[_whole(question, one)]
    return e.token_sar(one.logprobs, [float(whole @ vectors[text]) for text in _without_each(question, one)])


def _cosines(question: str, samples: Sequence[Heard], vectors: Vectors) -> np.ndarray:
    import numpy as np

    stacked = np.stack([vectors[_whole(question, one)] for one in samples]).astype(np.float64)
    return np.asarray(stacked @ stacked.T)


def _whole(question: str, one: Heard) -> str:
    return f"{question} {one.text}"


def _without_each(question: str, one: Heard) -> Iterator[str]:
    """Question and answer without one token, for each token."""
    pieces = [t.text for t in one.tokens]
    for k in range(len(pieces)):
        rest = "".join(pieces[:k] + pieces[k + 1 :]).strip()
        yield f"{question} {rest}".strip()
