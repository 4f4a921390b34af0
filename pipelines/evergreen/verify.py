"""evergreen.verify: a second opinion on the labels and answers of a model, and what a person said of them.

Law: a label is gold when a rule made it (a template), `agreement` when enough of k verdicts say the same,
`human` when a person decided; a person outranks both. Whatever the verdicts leave open is a case for a
person (`review.jsonl`) and no row until it is decided. Verdicts are counted, never dropped: a reply that
says nothing is a wrong one.

Asked is one wording of a question; the verdict holds for all. The paper's classifier sees the question
alone, so does this one: an answer would give the label away. The answer of a question that never changes is
asked for on its own (`answers`), and must come back often enough.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.asking import AskingStep
from pipelines.data.config import MOST_SAMPLES, Share
from pipelines.data.duplicates import question_key
from pipelines.errors import ConfigError
from pipelines.evergreen.making.made import MODEL, VERIFIED, carried
from pipelines.evergreen.making.opinions import Asking, Opinion, opinions
from pipelines.evergreen.making.verdicts import UNPARSED, agreement, objection, same_share, verdict
from pipelines.evergreen.prompting import Sheet, Turns, sheet
from pipelines.evergreen.reviewing.review import DROP, OUT, Decision, Decisions, case, decisions, write_cases
from pipelines.evergreen.schema import EVERGREEN, MUTABLE, NEVER, UNKNOWN, questions
from pipelines.llm.answer import Answer
from pipelines.llm.request import Sampling

SCHEMA = questions("evergreen.verify", VERIFIED)
SHEET = "prompts/verify.yaml"
ANSWERS = "prompts/answer.yaml"


@dataclass(frozen=True)
class Params:
    """samples: k. agree: least share of the verdicts for a label by agreement. sources: whose rows are
    asked about; the others pass with the label they have. language: of the wording asked, where a question
    has it. answers: how often the answer of an evergreen question is asked for, 0 for never; agree_answer:
    least share of these that say the same."""

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
    answers: int = 0
    agree_answer: Share = 0.5
    answer_tokens: int = 24
    allow_failed: Share = 0.0


@dataclass(frozen=True)
class Second:
    """The second opinion on one question: on its label, and on its answer where that was asked for."""

    label: Opinion
    answer: Opinion | None
    prompt_hash: str

    @property
    def verdicts(self) -> list[str]:
        """evergreen | mutable | unparsed, a sample each."""
        return [verdict(reply) for reply in self.label.told]

    @property
    def responses(self) -> list[str]:
        return self.label.responses + (self.answer.responses if self.answer else [])

    @property
    def failed(self) -> Answer | None:
        """The failure that leaves the question open, None where there is none."""
        return self.label.failed or (self.answer.failed if self.answer else None)


def run(step: AskingStep, params: Params) -> None:
    """Looks what people decided, asks about the rest of the chosen sources, settles question by question."""
    if not 1 <= params.samples <= MOST_SAMPLES or params.answers > MOST_SAMPLES:
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
    second = _asked(step, params, asked)
    cases: list[dict[str, Any]] = []
    for i, rows in groups.items():
        if decided[i]:
            _by_people(step, rows, decided[i], people, cases)
        elif i in second:
            _by_agreement(step, params, rows, second[i], cases)
        else:
            for row in rows:
                step.accept(row["row_id"], _row(row), note=f"{row['label_origin']}, not asked")
    write_cases(step.out(OUT), cases)
    counted = Counter(v for o in second.values() for v in o.verdicts)
    step.metrics = {
        "asked": len(asked),
        "cases": len(cases),
        "verdicts": {v: counted[v] for v in (EVERGREEN, MUTABLE, UNPARSED)},
    }


def _wording(rows: Sequence[Mapping[str, Any]], language: str) -> Mapping[str, Any]:
    return next((r for r in rows if r["language"] == language), rows[0])


def _asked(step: AskingStep, params: Params, asked: Mapping[str, Mapping[str, Any]]) -> dict[str, Second]:
    """The second opinion on each question, by its id."""
    if not asked:
        return {}
    told, short = sheet(SHEET), sheet(ANSWERS)
    stop = ("\n\n", "Question:")
    labels = Sampling(params.max_tokens, params.temperature, params.top_p, stop=stop)
    answers = Sampling(params.answer_tokens, params.temperature, params.top_p, stop=stop)
    settled = {
        i: turns_of(short, row["question"])
        for i, row in asked.items()
        if params.answers and row["label"] == EVERGREEN and row["answer"]
    }
    with step.client(params.backend, params.model) as client:
        how = Asking(params.model, params.style, labels, params.samples)
        said = opinions(step, client, how, {i: turns_of(told, r["question"]) for i, r in asked.items()})
        how = Asking(params.model, params.style, answers, params.answers, about="/answer")
        answered = opinions(step, client, how, settled)
    return {i: Second(said[i], answered.get(i), told.hash) for i in asked}


def turns_of(told: Sheet, question: str) -> Turns:
    """The examples of the sheet (of the label: five mutable and five evergreen), then the question."""
    shots = [(told.say("ask", question=shown), said) for shown, said in told.parts["shots"]]
    return Turns(told.say("instruction"), shots, told.say("ask", question=question), told.parts["cue"])


def _by_agreement(
    step: AskingStep,
    params: Params,
    rows: Sequence[Mapping[str, Any]],
    second: Second,
    cases: list[dict[str, Any]],
) -> None:
    """Ends the wordings of a question that was asked about."""
    if second.failed is not None:
        for row in rows:
            step.settle_failure(row["row_id"], second.failed, parents=[row["row_id"]])
        return
    label, said = rows[0]["label"], second.verdicts
    why, text = objection(label, said, params.agree), f"{len(said)} verdicts say {', '.join(said)}"
    values = {"agreement": round(agreement(label, said), 6), "verdicts": said}
    if second.answer is not None:
        share = same_share(rows[0]["answer"], second.answer.told)
        values["answer_agreement"] = round(share, 6)
        if why is None and share < params.agree_answer:
            why = "answer_disagreement"
            text = f"its answer is {rows[0]['answer']!r}, and others say {', '.join(second.answer.told)}"
    for row in rows:
        item = row["row_id"]
        if why is None:
            own = _row(
                row, second.responses, label_origin="agreement", prompt_hash=second.prompt_hash, **values
            )
            step.accept(item, own, note=f"{label} by agreement")
            continue
        cases.append(_case(row, why, f"labelled {label}, and {text}", answer=row["answer"], **values))
        step.reject(item, why, detail=text, raw=row["question"], parents=[item], responses=second.responses)


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
