"""k answers of a model to each of some questions, gathered by question.

Law: a reply is one whatever became of it (cut off, empty, refused: no verdict, and counted); what failed for
another cause is no reply, and the question stays open until it is asked again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipelines.asking import AskingStep
from pipelines.evergreen.prompting import Turns
from pipelines.llm.answer import Answer, Failure
from pipelines.llm.request import Request, Sampling, seed_of

if TYPE_CHECKING:
    from pipelines.llm.client import Client

WORDLESS = (Failure.EMPTY, Failure.LENGTH, Failure.REFUSED, Failure.FILTERED)  # replies, if bad ones


@dataclass
class Opinion:
    """The replies to one question by sample, the answers' ids, and the failure that leaves it open."""

    replies: dict[int, str] = field(default_factory=dict)
    responses: list[str] = field(default_factory=list)
    failed: Answer | None = None

    @property
    def told(self) -> list[str]:
        """The replies in the order of the samples."""
        return [self.replies[k] for k in sorted(self.replies)]


@dataclass(frozen=True)
class Asking:
    """How to ask: the model, the style of prompt, the sampling, k. `about` tells apart what is asked."""

    model: str
    style: str
    sampling: Sampling
    samples: int
    about: str = ""

    def requests(self, step: AskingStep, asked: Mapping[str, Turns]) -> Iterator[Request]:
        """k requests a question, adjacent; `asked` by the question's id."""
        for key, turns in asked.items():
            form = turns.form(self.style)
            for k in range(self.samples):
                yield Request(
                    model=self.model,
                    sampling=self.sampling,
                    sample=k,
                    seed=seed_of(step.seed, f"{step.name}/{key}{self.about}", k),
                    row=key,
                    purpose=step.name,
                    **form,
                )


def opinions(step: AskingStep, client: Client, how: Asking, asked: Mapping[str, Turns]) -> dict[str, Opinion]:
    """The opinion on each question, by its id."""
    found = {key: Opinion() for key in asked}
    if not asked:
        return found
    for answer in step.ask(client, how.requests(step, asked), len(asked) * how.samples):
        opinion, sample = found[answer.request.row], answer.request.sample
        opinion.responses.append(answer.id)
        if answer.ok or answer.failure in WORDLESS:
            opinion.replies[sample] = answer.text
        elif opinion.failed is None or sample < opinion.failed.request.sample:
            opinion.failed = answer
    return found
