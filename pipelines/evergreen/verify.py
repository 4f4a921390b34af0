"""evergreen.verify: a second opinion on each label that a model gave, k times, and what a person said of it.

Law: a label is gold when a rule made it (a template), `agreement` when enough of k verdicts say the same,
`human` when a person decided; a person outranks both. Whatever the verdicts leave open is a case for a
person (`review.jsonl`) and no row until it is decided. Verdicts are counted, never dropped: a reply that
says nothing is a wrong one.

Asked is one wording of a question; the verdict holds for all. The paper's classifier sees the question
alone, so does this one: an answer would give the label away.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelines.asking import AskingStep
from pipelines.data.config import MOST_SAMPLES, Share
from pipelines.data.duplicates import question_key
from pipelines.errors import ConfigError
from pipelines.evergreen.made import MODEL, VERIFIED, carried
from pipelines.evergreen.prompting import Sheet, Turns, sheet
from pipelines.evergreen.review import DROP, OUT, Decision, Decisions, case, decisions, write_cases
from pipelines.evergreen.schema import EVERGREEN, MUTABLE, NEVER, UNKNOWN, questions
from pipelines.evergreen.verdicts import UNPARSED, agreement, objection, verdict
from pipelines.llm.answer import Answer, Failure
from pipelines.llm.request import Request, Sampling, seed_of

SCHEMA = questions("evergreen.verify", VERIFIED)
SHEET = "prompts/verify.yaml"
WORDLESS = (Failure.EMPTY, Failure.LENGTH, Failure.REFUSED, Failure.FILTERED)  # replies, if bad ones


@dataclass(frozen=True)
class Params:
    """samples: k. agree: least share of the verdicts for a label by agreement. sources: whose rows are
    asked about; the others pass with the label they have. language: of the wording asked, where a question
    has it."""

    backend: str = "embedded"
    model: str = "smollm2-135m"
    style: str = "chat"
    samples: int = 3
    agree: Share = 0.66
    sources: tuple[str, ...] = (MODEL,)
    language: str = "en"
    temperature: float = 0.7
    top_p: float = 0.9
    max_tokens: int = 8
    allow_failed: Share = 0.0


@dataclass
class Opinion:
    """What was said of one question: a verdict a sample, the answers' ids, a failure that ends it."""

    verdicts: dict[int, str] = field(default_factory=dict)
    responses: list[str] = field(default_factory=list)
    failed: Answer | None = None

    @property
    def told(self) -> list[str]:
        """The verdicts in the order of the samples."""
        return [self.verdicts[k] for k in sorted(self.verdicts)]


def run(step: AskingStep, params: Params) -> None:
    """Looks what people decided, asks about the rest of the chosen sources, settles question by question."""
    if not 1 <= params.samples <= MOST_SAMPLES:
        raise ConfigError(f"must be from 1 to {MOST_SAMPLES}", where="params.yaml: evergreen.verify.samples")
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in step.read("evergreen/synthesize").sort("question_id", "language").iter_rows(named=True):
        groups[row["question_id"]].append(row)
    step.plan(row["row_id"] for rows in groups.values() for row in rows)
    people = decisions(step.root)
    decided = {
        i: people.on((r["language"], question_key(r["question"])) for r in rows) for i, rows in groups.items()
    }
    asked = {
        i: _wording(rows, params.language)
        for i, rows in groups.items()
        if rows[0]["source"] in params.sources and not decided[i]
    }
    told = sheet(SHEET)
    opinions = _opinions(step, params, told, asked)
    cases: list[dict[str, Any]] = []
    for i, rows in groups.items():
        if decided[i]:
            _by_people(step, rows, decided[i], people, cases)
        elif i in opinions:
            _by_agreement(step, rows, opinions[i], params.agree, told.hash, cases)
        else:
            for row in rows:
                step.accept(row["row_id"], _row(row), note=f"{row['label_origin']}, not asked")
    write_cases(step.out(OUT), cases)
    counted = Counter(v for o in opinions.values() for v in o.told)
    step.metrics = {
        "asked": len(asked),
        "cases": len(cases),
        "verdicts": {v: counted[v] for v in (EVERGREEN, MUTABLE, UNPARSED)},
    }


def _wording(rows: Sequence[Mapping[str, Any]], language: str) -> Mapping[str, Any]:
    return next((r for r in rows if r["language"] == language), rows[0])


def _opinions(
    step: AskingStep, params: Params, told: Sheet, asked: Mapping[str, Mapping[str, Any]]
) -> dict[str, Opinion]:
    """The opinion on each question, by its id."""
    found: dict[str, Opinion] = {i: Opinion() for i in asked}
    if not asked:
        return found
    with step.client(params.backend, params.model) as client:
        for answer in step.ask(client, requests(step, params, told, asked), len(asked) * params.samples):
            opinion = found[answer.request.row]
            opinion.responses.append(answer.id)
            if answer.ok or answer.failure in WORDLESS:
                opinion.verdicts[answer.request.sample] = verdict(answer.text)
            elif opinion.failed is None or answer.request.sample < opinion.failed.request.sample:
                opinion.failed = answer
    return found


def requests(
    step: AskingStep, params: Params, told: Sheet, asked: Mapping[str, Mapping[str, Any]]
) -> Iterator[Request]:
    """k requests a question, adjacent."""
    sampling = Sampling(params.max_tokens, params.temperature, params.top_p, stop=("\n\n", "Question:"))
    for i, row in asked.items():
        form = turns_of(told, row["question"]).form(params.style)
        for k in range(params.samples):
            yield Request(
                model=params.model,
                sampling=sampling,
                sample=k,
                seed=seed_of(step.seed, f"{step.name}/{i}", k),
                row=i,
                purpose=step.name,
                **form,
            )


def turns_of(told: Sheet, question: str) -> Turns:
    """Five mutable and five evergreen examples, then the question."""
    shots = [(told.say("ask", question=shown), label) for shown, label in told.parts["shots"]]
    return Turns(told.say("instruction"), shots, told.say("ask", question=question), told.parts["cue"])


def _by_agreement(
    step: AskingStep,
    rows: Sequence[Mapping[str, Any]],
    opinion: Opinion,
    agree: float,
    prompt_hash: str,
    cases: list[dict[str, Any]],
) -> None:
    """Ends the wordings of a question that was asked about."""
    if opinion.failed is not None:
        for row in rows:
            step.settle_failure(row["row_id"], opinion.failed, parents=[row["row_id"]])
        return
    label, said = rows[0]["label"], opinion.told
    why, share = objection(label, said, agree), round(agreement(label, said), 6)
    for row in rows:
        if why is None:
            values = {"label_origin": "agreement", "agreement": share, "verdicts": said}
            step.accept(
                row["row_id"],
                _row(row, responses=opinion.responses, prompt_hash=prompt_hash, **values),
                note=f"{label} by agreement",
            )
            continue
        text = f"labelled {label}, and {len(said)} verdicts say {', '.join(said)}"
        cases.append(_case(row, why, text, agreement=share, answer=row["answer"]))
        step.reject(
            row["row_id"], why, detail=text, raw=row["question"], parents=[row["row_id"]],
            responses=opinion.responses,
        )  # fmt: skip


def _by_people(
    step: AskingStep,
    rows: Sequence[Mapping[str, Any]],
    said: Sequence[Decision],
    people: Decisions,
    cases: list[dict[str, Any]],
) -> None:
    """Ends the wordings of a question on which people decided; two different decisions decide nothing."""
    for row in rows:
        item = row["row_id"]
        if len(said) > 1:
            text = "; ".join(f"{d.who}: {d.verdict}" for d in said)
            cases.append(_case(row, "decisions_differ", f"its wordings were decided differently ({text})"))
            step.reject(item, "decisions_differ", detail=text, raw=row["question"], parents=[item])
        elif said[0].verdict == DROP:
            step.reject(item, "dropped_by_person", detail=said[0].who, raw=row["question"], parents=[item])
        else:
            own = people.of(row["question"], row["language"])
            step.accept(item, _row(row, **decision_values(row, said[0], own)), note="decided by a person")


def decision_values(row: Mapping[str, Any], said: Decision, own: Decision | None) -> dict[str, Any]:
    """The columns that a decision sets. `own` is the one on this very wording, whose answer is its own."""
    rate = said.change_rate
    if rate == UNKNOWN and said.verdict == row["label"]:
        rate = row["change_rate"]
    return {
        "label": said.verdict,
        "change_rate": NEVER if said.verdict == EVERGREEN else rate,
        "answer": own.answer if own is not None and own.answer else row["answer"],
        "label_origin": "human",
        "decided_by": said.who,
        "decided_on": said.when,
    }


def _case(row: Mapping[str, Any], kind: str, why: str, **more: Any) -> dict[str, Any]:
    told = {c: row[c] for c in ("question_id", "question", "language", "label", "change_rate")}
    return case(kind, **told, why=why, **more)


def _row(row: Mapping[str, Any], responses: Sequence[str] = (), **values: Any) -> dict[str, Any]:
    """The row as it passes: what is not said stays as it was, or null."""
    told = {"verdicts": [], "prompt_hash": None, **values}
    return SCHEMA.row(**carried(row, VERIFIED, **told), parents=[row["row_id"]], responses=responses)
