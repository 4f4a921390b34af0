"""What `evergreen.translate` asks: one JSON object a wording, with a key for each language asked for.

Law: the example shown is between the same languages as the question, and has an answer only when the
question has one. Translating back is the same request the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.evergreen.prompting import Sheet, Turns, as_json, language_name
from pipelines.llm.request import Request, Sampling, seed_of

BACK = "back"
KEYS = {"question": "question", "answer": "reply"}  # in alphabetical order, as decoding writes them


@dataclass(frozen=True)
class Job:
    """One request: a wording (its row, or the English that this run made) into some languages."""

    source: Mapping[str, Any]
    targets: tuple[str, ...]
    back: bool = False  # a translation on its way back, of the question alone

    @property
    def key(self) -> str:
        way = f"{BACK}/{self.source['language']}" if self.back else "+".join(self.targets)
        return f"{self.source['question_id']}:{way}"

    @property
    def parts(self) -> tuple[str, ...]:
        """What is translated: the question, and the answer where there is one."""
        return ("question", "answer") if self.source["answer"] and not self.back else ("question",)

    def item(self, target: str) -> str:
        """The work item of one language."""
        return f"{self.source['question_id']}:{target}"


@dataclass(frozen=True)
class Asking:
    """How to ask: the model, the style of prompt, the sampling; `max_tokens` for each language."""

    model: str
    style: str
    temperature: float
    top_p: float
    max_tokens: int
    seed: int
    purpose: str

    def requests(self, told: Sheet, jobs: Sequence[Job]) -> Iterator[Request]:
        """One request a job, its `row` being the job's key."""
        for job in jobs:
            yield Request(
                model=self.model,
                sampling=Sampling(self.max_tokens * len(job.targets), self.temperature, self.top_p),
                schema=answer_schema(job.targets, job.parts),
                seed=seed_of(self.seed, f"{self.purpose}/{job.key}", 0),
                row=job.key,
                purpose=self.purpose,
                **turns_of(told, job).form(self.style),
            )


def turns_of(told: Sheet, job: Job) -> Turns:
    """The instruction, one example between the same languages, the wording with its answer if it has one."""
    shown, source = told.parts["example"], job.source["language"]
    names = {
        "source": language_name(source),
        "targets": ", ".join(f"{language_name(t)} ({t})" for t in job.targets),
    }
    example = as_json({KEYS[part]: shown[part][source] for part in job.parts})
    reply = as_json({t: {KEYS[part]: shown[part][t] for part in job.parts} for t in job.targets})
    given = as_json({KEYS[part]: job.source[part] for part in job.parts})
    return Turns(
        told.say("instruction"),
        [(told.say("ask", **names, told=example), reply)],
        told.say("ask", **names, told=given),
    )


def answer_schema(targets: Sequence[str], parts: Sequence[str]) -> dict[str, Any]:
    """{"fr": {"question": "...", "reply": "..."}, ...}, nothing else."""
    keys = [KEYS[part] for part in parts]
    one = {
        "type": "object",
        "properties": {key: {"type": "string"} for key in keys},
        "required": keys,
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": dict.fromkeys(targets, one),
        "required": list(targets),
        "additionalProperties": False,
    }
