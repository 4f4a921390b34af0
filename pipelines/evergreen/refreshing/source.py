"""What a source of answers is: it takes the questions that are due and ends each of them once.

Law: an end is an answer, no answer, or a failure with its reason; a failure of one question never fails
its neighbors. Ends come in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol, runtime_checkable

from pipelines.evergreen.refreshing.facts import Facts

NO_ANSWER = "no_answer"


@dataclass(frozen=True)
class Asked:
    """A question in a language, as of a day. `row_id` names the row that it is asked for."""

    row_id: str
    question_id: str
    language: str
    question: str
    day: date


@dataclass(frozen=True)
class Told:
    """The end of a question: an answer, or None and a `reason` (a short stable word) with a `detail`.

    `failed`: it may come another time; nothing is noted, and it is asked again. `response`: id of the
    model answer in the store.
    """

    asked: Asked
    answer: str | None = None
    reason: str = ""
    detail: str = ""
    failed: bool = False
    response: str = ""


@dataclass
class Requests:
    """What asking came to. `sent` now; `kept`: answered before the act was broken off, taken from there."""

    sent: int = 0
    kept: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0


@runtime_checkable
class AnswerSource(Protocol):
    """Who is asked. `origin` stands in the observations; `free`: asking costs nothing and tires nobody."""

    @property
    def origin(self) -> str: ...

    @property
    def free(self) -> bool: ...

    @property
    def requests(self) -> Requests: ...

    def ask(self, asked: Sequence[Asked]) -> Iterator[Told]:
        """The end of each question. Raises HeadraceError for what would meet every question alike."""
        ...

    def noted(self) -> None:
        """What was told is durable elsewhere now."""


class FactsSource:
    """A table of facts, looked up."""

    free = True

    def __init__(self, facts: Facts, origin: str) -> None:
        self._facts, self.origin = facts, origin
        self.requests = Requests()

    def ask(self, asked: Sequence[Asked]) -> Iterator[Told]:
        for a in asked:
            answer = self._facts.answer(a.question, a.language, a.day)
            yield Told(a, answer, "" if answer is not None else NO_ANSWER)

    def noted(self) -> None:
        return None
