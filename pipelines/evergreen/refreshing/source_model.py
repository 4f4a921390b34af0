"""An OpenAI-compatible model as a source of answers, with or without a search tool.

Law: the day stands in what is asked, so in the key of each answer: asked again for the same day, or
after a crash, the response store answers. A search that runs here is durable before the model reads it.

A tool of the server's own rides in `tools` or `extra`. One that runs here is a callable, of a query and a
day, to text; the model calls it, reads what was found, and answers: a turn each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from pipelines.asking import AskingStep
from pipelines.data.prompts import Prompt, load_prompt
from pipelines.data.rows import digest
from pipelines.evergreen.refresh import AskedModel
from pipelines.evergreen.refreshing.foreign import Fault, called
from pipelines.evergreen.refreshing.journal import Journal
from pipelines.evergreen.refreshing.observations import cannot_be_noted
from pipelines.evergreen.refreshing.source import NO_ANSWER, Asked, Requests, Told
from pipelines.llm.answer import TRANSIENT, Answer, Failure
from pipelines.llm.client import Client
from pipelines.llm.coercion import Form
from pipelines.llm.request import Request, Sampling, seed_of
from pipelines.llm.structured import Reading, Structured, reading, structured

FORM: Mapping[str, Any] = {
    "type": "object",
    "properties": {"answer": {"type": ["string", "null"]}},
    "required": ["answer"],
    "additionalProperties": False,
}
SEARCH = "search"
UNKNOWN = ("", "null", "unknown", "n/a")  # how models spell that they do not know
MOST_FOUND = 6000  # characters of what one search found that a model reads
AGAIN = TRANSIENT | {Failure.BAD_REQUEST, Failure.OVER_BUDGET}

Search = Callable[[str, date], Any]


@dataclass(frozen=True)
class Calls:
    """Tools that a model called: (name, arguments as it wrote them)."""

    calls: tuple[tuple[str, str], ...]


@dataclass
class _Talk:
    """One question on its way: what was asked last, and the ids of the answers so far."""

    asked: Asked
    request: Request
    responses: list[str] = field(default_factory=list)


class SearchFault(Exception):
    """The search tool failed."""


class ModelSource:
    """Asks by a client over the workspace's response store. `search` is the tool that runs here, if any.

    limit_s: seconds that a search may take; 0 for any.
    """

    free = False

    def __init__(
        self,
        root: Path,
        params: AskedModel,
        llm: Mapping[str, Any],
        seed: int,
        search: Search | None = None,
        limit_s: float = 0.0,
    ) -> None:
        self._params, self._search, self._seed, self._limit_s = params, search, seed, limit_s
        self._step = AskingStep("evergreen.refresh", None, root, seed, llm)
        self._journal = Journal(root / ".headrace" / "refresh" / "searches.jsonl")
        self._sheet = load_prompt(__file__, "prompts/refresh.yaml")
        self.origin = f"model:{self._step.settings(params.backend, params.model).model}"
        self.requests = Requests()

    def ask(self, asked: Sequence[Asked]) -> Iterator[Told]:
        if not asked:
            return
        talks = {a.row_id: _Talk(a, self._first(a)) for a in asked}
        with self._step.client(self._params.backend, self._params.model) as client:
            self.origin = f"model:{client.model}"
            for left in range(self._params.searches if self._search else 0, -1, -1):
                pending = [t.request for t in talks.values()]
                for end in self._ends(client, pending):
                    talk = talks[end.request.row]
                    talk.responses += end.ids
                    told = self._next(talk, end, left)
                    if told is not None:
                        del talks[end.request.row]
                        yield told
                if not talks:
                    break
        self._journal.close()

    def noted(self) -> None:
        self._journal.forget()

    def _first(self, a: Asked) -> Request:
        params, day = self._params, a.day.isoformat()
        asks = self._say("ask", day=day, language=a.language, question=" ".join(a.question.split()))
        return Request(
            "chat",
            params.model,
            Sampling(params.max_tokens, params.temperature),
            messages=(("system", self._say("instruction")), ("user", asks)),
            schema=FORM,
            seed=seed_of(self._seed, f"{a.row_id}/{day}", 0),
            row=a.row_id,
            purpose="evergreen.refresh",
            tools=(*params.tools, *((self._tool(),) if self._search and params.searches else ())),
            extra=params.extra or None,
        )

    def _say(self, part: str, **values: object) -> str:
        """A text of the prompts, rendered strictly."""
        import yaml

        text = yaml.safe_load(self._sheet.text)[part]
        return Prompt(f"{self._sheet.name}: {part}", text, self._sheet.hash).render(**values).strip()

    def _tool(self) -> dict[str, Any]:
        query = {"type": "string", "description": self._say("query")}
        takes = {"type": "object", "properties": {"query": query}, "required": ["query"]}
        function = {"name": SEARCH, "description": self._say("tool"), "parameters": takes}
        return {"type": "function", "function": function}

    def _ends(self, client: Client, pending: Sequence[Request]) -> Iterator[Structured]:
        """The end of each request: a value of the form, the calls of tools, or a failure."""

        def ask(requests: Iterable[Request]) -> Iterator[Answer]:
            for answer in self._step.ask(client, requests, len(pending)):
                self._count(answer)
                yield answer

        constrained = self._params.constrained and self._step.constrained
        return structured(ask, pending, read=_read, constrained=constrained)

    def _next(self, talk: _Talk, end: Structured, left: int) -> Told | None:
        """The end of a question, or None when it was asked once more. `left`: turns that may follow."""
        if not end.ok:
            return _unread(talk, end)
        if not isinstance(end.value, Calls):
            said = end.value["answer"]
            answer = " ".join(said.split()) if isinstance(said, str) else ""
            response = talk.responses[-1]
            if answer.casefold().rstrip(".") in UNKNOWN:
                return Told(talk.asked, None, NO_ANSWER, response=response)
            reason, detail = cannot_be_noted(answer)
            return Told(talk.asked, None if reason else answer, reason, detail, response=response)
        if left == 0:
            detail = f"called {end.value.calls[0][0]!r} in place of an answer"
            return Told(talk.asked, reason="called_a_tool", detail=detail, response=talk.responses[-1])
        try:
            found = [self._found(talk.asked.day, call, left > 1) for call in end.value.calls]
        except SearchFault as e:
            return Told(talk.asked, reason="search_failed", detail=str(e), failed=True)
        more = (("assistant", end.answers[-1].text), ("user", "\n\n".join(found)))
        tools = talk.request.tools if left > 1 else self._params.tools
        talk.request = replace(talk.request, messages=(*talk.request.messages, *more), tools=tools)
        return None

    def _found(self, day: date, call: tuple[str, str], more: bool) -> str:
        """What the model is told of its call. Raises SearchFault."""
        name, arguments = call
        try:
            query = json.loads(arguments)["query"] if name == SEARCH else None
        except (ValueError, KeyError, TypeError):
            query = None
        if not isinstance(query, str):
            known = f"there is one tool, {SEARCH}, and it takes a query"
            return self._say("found", query=repr(name), day=day.isoformat(), results=known, more=more)
        results = self._results(query, day)
        return self._say("found", query=repr(query), day=day.isoformat(), results=results, more=more)

    def _results(self, query: str, day: date) -> str:
        key = digest("search", self._params.search, query, day.isoformat())
        kept = self._journal.get(key)
        if kept is None:
            try:
                kept = called(self._searched, query, day, limit_s=self._limit_s)
            except Fault as e:
                raise SearchFault(str(e)) from e
            self._journal.put(key, kept)
        return kept

    def _searched(self, query: str, day: date) -> str:
        assert self._search is not None
        return str(self._search(query, day))[:MOST_FOUND].encode("utf-8", "replace").decode()

    def _count(self, answer: Answer) -> None:
        spent = self.requests
        if answer.stored:
            spent.kept += 1
            return
        spent.sent += 1
        spent.prompt_tokens += answer.usage.prompt_tokens
        spent.completion_tokens += answer.usage.completion_tokens
        spent.cost_usd += answer.usage.cost_usd


def _read(text: str, form: Form) -> Reading:
    """A value of the form, or the calls of tools, as the client tells them."""
    if text.startswith('[{"name":'):
        try:
            told = [(c["name"], c["arguments"]) for c in json.loads(text)]
            if told and all(isinstance(n, str) and isinstance(a, str) for n, a in told):
                return Reading(Calls(tuple(told)))
        except (ValueError, KeyError, TypeError):
            pass
    return reading(text, form)


def _unread(talk: _Talk, end: Structured) -> Told:
    """A question whose answer gave no value: a failure if it may pass, else no answer."""
    last = end.answers[-1]
    passing = end.ending == "failed" and last.failure in AGAIN
    reason = str(last.failure) if last.failure is not None else "no_value"
    response = talk.responses[-1] if talk.responses else ""
    return Told(talk.asked, None, reason, end.fault or last.detail, failed=passing, response=response)
