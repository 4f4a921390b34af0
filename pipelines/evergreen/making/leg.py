"""One way from language to language: asked, checked, compared by the encoder, settled.

Law: each wording asked for ends as a row or as a reject with the check's name. A translation stands only
when the free checks (`translations`) pass and the encoder finds it near its source; with `back` it is
translated back too, and that must be near as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipelines.asking import AskingStep
from pipelines.data.duplicates import question_key
from pipelines.evergreen.making.faults import Fault
from pipelines.evergreen.making.made import TRANSLATED, carried
from pipelines.evergreen.making.translating import KEYS, Asking, Job
from pipelines.evergreen.making.translations import Rules, fault_of_answer, fault_of_question, ratio_of
from pipelines.evergreen.prompting import Sheet, as_json
from pipelines.evergreen.schema import questions
from pipelines.llm.structured import Structured

if TYPE_CHECKING:
    import numpy as np

    from pipelines.llm.client import Client

SCHEMA = questions("evergreen.translate", TRANSLATED)
PIVOT = "en"
LEAST_SIMILARITY = 0.8  # of a language that params do not name

Embed = Callable[[Sequence[str]], "np.ndarray"]


@dataclass(frozen=True)
class Checks:
    """What a translation is held against; the parameters of `translate` of the same names."""

    languages: tuple[str, ...]
    length_ratio: Mapping[str, tuple[float, ...]]
    least_similarity: Mapping[str, float]
    least_back: float
    back: bool


@dataclass(frozen=True)
class Wording:
    """A translation that passed the free checks: the job, its language, the texts, the answers' ids."""

    job: Job
    language: str
    question: str
    answer: str | None
    responses: tuple[str, ...]


@dataclass(frozen=True)
class Back:
    """A translation translated back: the end of the request, the text, its cosine with the source."""

    end: Structured
    text: str
    cosine: float | None


@dataclass
class Leg:
    """One way from language to language: asks, checks, settles. `english`: rows accepted in English by id."""

    step: AskingStep
    client: Client
    told: Sheet
    how: Asking
    checks: Checks
    embed: Embed
    english: dict[str, dict[str, Any]] = field(default_factory=dict)
    accepted: int = 0

    def run(self, jobs: Sequence[Job]) -> None:
        """Ends the item of each language of each job."""
        passed = [wording for job, end in self._ends(jobs) for wording in _checked(self, job, end)]
        cosines = self._cosines([(w.job.source["question"], w.question) for w in passed])
        near = [(w, c) for w, c in zip(passed, cosines, strict=True) if self._alike(w, c)]
        backs = self._backs([w for w, _ in near]) if self.checks.back else [None] * len(near)
        for (wording, cosine), back in zip(near, backs, strict=True):
            if back is None or self._returned(wording, cosine, back):
                self._accept(wording, cosine, back)

    def _ends(self, jobs: Sequence[Job]) -> list[tuple[Job, Structured]]:
        """What was answered to each job, in the order of the jobs."""
        told = self.step.values(self.client, self.how.requests(self.told, jobs), len(jobs))
        by_key = {end.request.row: end for end in told}
        return [(job, by_key[job.key]) for job in jobs]

    def _cosines(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Cosine of the two texts of each pair, by the multilingual encoder."""
        texts = list(dict.fromkeys(t for pair in pairs for t in pair))
        if not texts:
            return []
        vectors = dict(zip(texts, self.embed(texts), strict=True))
        return [round(float(vectors[a] @ vectors[b]), 6) for a, b in pairs]

    def _alike(self, wording: Wording, cosine: float) -> bool:
        foreign = wording.language if wording.language != PIVOT else wording.job.source["language"]
        near = cosine >= self.checks.least_similarity.get(foreign, LEAST_SIMILARITY)
        if not near:
            self._reject(wording, "not_alike", f"cosine {cosine:.3f} with its source", wording.responses)
        return near

    def _backs(self, wordings: Sequence[Wording]) -> list[Back]:
        """Each wording translated back, and its cosine with the source; no cosine where none came back."""
        jobs = [
            Job(
                {
                    "question_id": w.job.source["question_id"],
                    "language": w.language,
                    "question": w.question,
                    "answer": None,
                },
                (w.job.source["language"],),
                back=True,
            )
            for w in wordings
        ]
        ends = [end for _, end in self._ends(jobs)]
        texts = [
            end.value[job.targets[0]][KEYS["question"]] if end.ok else ""
            for job, end in zip(jobs, ends, strict=True)
        ]
        cosines = self._cosines([(w.job.source["question"], t) for w, t in zip(wordings, texts, strict=True)])
        return [
            Back(end, text, cosine if end.ok else None)
            for end, text, cosine in zip(ends, texts, cosines, strict=True)
        ]

    def _returned(self, wording: Wording, cosine: float, back: Back) -> bool:
        """Whether what came back is near the source; ends the item when not."""
        if back.cosine is None:
            self.step.settle_unread(
                wording.job.item(wording.language), back.end, parents=[wording.job.source["row_id"]]
            )
            return False
        near = back.cosine >= self.checks.least_back
        if not near:
            detail = f"back: {back.text!r}, cosine {back.cosine:.3f}"
            self._reject(wording, "not_alike_back", detail, (*wording.responses, *back.end.ids))
        return near

    def _reject(self, wording: Wording, reason: str, detail: str, responses: Sequence[str]) -> None:
        self.step.reject(
            wording.job.item(wording.language), reason, detail=detail, raw=wording.question,
            parents=[wording.job.source["row_id"]], responses=responses,
        )  # fmt: skip

    def _accept(self, wording: Wording, cosine: float, back: Back | None) -> None:
        row = _row(wording, self.told.hash, cosine, back)
        self.step.accept(wording.job.item(wording.language), row, note=f"translated into {wording.language}")
        self.accepted += 1
        if wording.language == PIVOT:
            self.english[row["question_id"]] = row


def _checked(leg: Leg, job: Job, end: Structured) -> Iterator[Wording]:
    """Ends what the free checks refuse; yields the rest."""
    parents = [job.source["row_id"]]
    for target in job.targets:
        if not end.ok:
            leg.step.settle_unread(job.item(target), end, parents=parents)
            continue
        said = {part: " ".join(end.value[target][KEYS[part]].split()) for part in job.parts}
        rules = rules_of(leg.checks, leg.told, job, target)
        found: Fault | None = fault_of_question(job.source["question"], said["question"], rules)
        if found is None and "answer" in said:
            found = fault_of_answer(job.source["answer"], said["answer"], rules)
        if found is None:
            yield Wording(job, target, said["question"], said.get("answer"), end.ids)
            continue
        leg.step.reject(
            job.item(target), found.reason, detail=found.detail, raw=as_json(said), parents=parents,
            responses=end.ids,
        )  # fmt: skip


def rules_of(checks: Checks, told: Sheet, job: Job, target: str) -> Rules:
    source = job.source["language"]
    return Rules(
        source=source,
        target=target,
        ratio=ratio_of(checks.length_ratio, source, target),
        candidates=tuple(sorted({source, target, PIVOT, *checks.languages})),
        prompt=told.say("instruction"),
        shown=frozenset(question_key(t) for t in told.parts["example"]["question"].values()),
    )


def _row(wording: Wording, prompt_hash: str, cosine: float, back: Back | None) -> dict[str, Any]:
    source = wording.job.source
    values = {
        "language": wording.language,
        "question": wording.question,
        "answer": wording.answer,
        "aliases": [],
        "prompt_hash": prompt_hash,
        "translated_from": source["language"],
        "similarity": cosine,
        "back_similarity": None if back is None else back.cosine,
    }
    ids = [*wording.responses, *(() if back is None else back.end.ids)]
    return SCHEMA.row(**carried(source, TRANSLATED, **values), parents=[source["row_id"]], responses=ids)
