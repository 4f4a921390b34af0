"""Asks a language model for the label of test questions, beside the classifier on the same questions.

Law: one denominator. Every question asked counts in every figure; a reply without a verdict (cut, empty,
refused, or saying neither) stands as the wrong label and is counted as unparsed. Each answer costs what the
store says that it cost, whoever asked it first; so the cost of a thousand questions is a figure of the data.

Through any backend: a model of 135M parameters shows that the path works and says nothing of what language
models can do; the page and the figures call it so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from pipelines import tracking
from pipelines.asking import AskingStep
from pipelines.data.config import Share
from pipelines.data.duplicates import question_key
from pipelines.data.rows import Schema, digest
from pipelines.data.tables import write_json
from pipelines.data.told import Data, Record
from pipelines.errors import ConfigError, StageError, nearest
from pipelines.evaluation.verbal_figures import figures_of
from pipelines.evaluation.verbal_prompts import SHEETS, Method, method
from pipelines.evergreen.prompting import STYLES
from pipelines.llm.answer import Answer, Failure
from pipelines.llm.models import REGISTRY
from pipelines.llm.request import Request, Sampling, seed_of

SCHEMA = Schema(
    "evaluation.verbal",
    {
        "question_id": pl.String,
        "language": pl.String,
        "question": pl.String,
        "method": pl.String,  # verbal | uar | mulan
        "label": pl.String,  # evergreen | mutable
        "verdict": pl.String,  # evergreen | mutable | unparsed
        "reply": pl.String,
        "finish": pl.String,
        "prompt_tokens": pl.Int64,
        "completion_tokens": pl.Int64,
        "cost_usd": pl.Float64,
        "prompt_hash": pl.String,
        "p_evergreen": pl.Float64,  # of the classifier, for the same row
    },
    ("question_id", "language", "method"),
)
REPLIES = (Failure.EMPTY, Failure.LENGTH, Failure.REFUSED, Failure.FILTERED)  # replies, if bad ones


@dataclass(frozen=True)
class Params:
    """questions: drawn by the seed, 0 for all; languages: none for all that the questions have."""

    backend: str = "embedded"
    model: str = "smollm2-135m"
    methods: tuple[str, ...] = ("verbal", "uar", "mulan")
    questions: int = 0
    languages: tuple[str, ...] = ()
    style: str = "chat"
    temperature: float = 0.6
    top_p: float = 0.9
    top_k: int = 0  # 0: no bound
    min_p: float = 0.0
    max_tokens: int = 512
    threshold: float = 0.5  # of the classifier beside
    bootstrap: int = 2000
    confidence: float = 0.95
    small: int = 200  # fewer questions than this: no statement on quality
    allow_failed: Share = 0.0

    def __post_init__(self) -> None:
        where = "params.yaml: evaluation.verbal"
        for given, known in ((self.methods, SHEETS), ((self.style,), STYLES)):
            for name in given:
                if name not in known:
                    raise ConfigError(f"unknown {name!r}", where=where, cure=nearest(name, known))
        if not self.methods or len(set(self.methods)) < len(self.methods) or self.questions < 0:
            raise ConfigError("needs methods, each once, and questions of 0 or more", where=where)
        if self.bootstrap < 1 or not (0.0 < self.threshold < 1.0 and 0.0 < self.confidence < 1.0):
            what = "threshold and confidence lie in (0, 1), bootstrap is 1 or more"
            raise ConfigError(what, where=where)


def run(step: AskingStep, params: Params) -> None:
    """Reads evaluation/evergreen; writes a row a wording and method, and metrics.json."""
    started = tracking.now()
    rows = {r["row_id"]: r for r in chosen(step, params).iter_rows(named=True)}
    held = {question_key(q) for q in step.read("evergreen/ingest", count=False)["question"]}
    methods = {name: method(name, held) for name in params.methods}
    asked = {f"{row_id}|{name}": (row, m) for name, m in methods.items() for row_id, row in rows.items()}
    step.plan(asked)
    told: list[dict[str, Any]] = []
    with step.client(params.backend, params.model) as client:
        requests = (request(step, params, item, *work) for item, work in asked.items())
        for answer in step.ask(client, requests, len(asked)):
            row, how = asked[answer.request.row]
            if settle(step, answer, row, how):
                told.append({**row, **replied(answer, how)})
    if not told:
        raise StageError("no question was answered", where=step.name)
    named = step.llm.get("model") or params.model
    figures = figures_of(pl.DataFrame(told), params, step.seed, named, tiny=named in REGISTRY)
    figures["shots_left_out"] = {m.name: list(m.left_out) for m in methods.values() if m.left_out}
    step.metrics = {
        "sample": figures["sample"]["what"],
        "unparsed": {name: figures["methods"][name]["unparsed"] for name in figures["methods"]},
    }
    write_json(figures, step.out("metrics.json"))
    track(step, params, figures, started)


def chosen(step: AskingStep, params: Params) -> pl.DataFrame:
    """The scored test rows that are asked about: so many questions by a hash of (seed, question)."""
    rows = step.read("evaluation/evergreen")
    if params.languages:
        rows = rows.filter(pl.col("language").is_in(params.languages))
    if rows.is_empty():
        what = f"no test question in {', '.join(params.languages) or 'any language'}"
        raise StageError(what, where=step.name, cure="see params.yaml: evaluation.verbal.languages")
    questions = sorted(set(rows["question_id"]), key=lambda q: digest("verbal", step.seed, q))
    kept = questions[: params.questions] if params.questions else questions
    return rows.filter(pl.col("question_id").is_in(kept)).sort("question_id", "language")


def request(step: AskingStep, params: Params, item: str, row: Mapping[str, Any], how: Method) -> Request:
    """One question by one method. Temperature, top-p and budget of the paper stand in params.yaml."""
    key = digest("evaluation.verbal", row["question_id"], row["language"], how.name)
    return Request(
        model=params.model,
        sampling=Sampling(
            params.max_tokens,
            params.temperature,
            params.top_p,
            params.top_k or None,
            stop=("\nQuestion:",),
            min_p=params.min_p,
        ),
        seed=seed_of(step.seed, key, 0),
        row=item,
        purpose=step.name,
        **how.turns(row["question"]).form(params.style),
    )


def settle(step: AskingStep, answer: Answer, row: Mapping[str, Any], how: Method) -> bool:
    """Ends one item; whether its reply counts in the figures (all do but those that never came)."""
    item = answer.request.row
    if not answer.ok and answer.failure not in REPLIES:
        step.settle_failure(item, answer, parents=[row["row_id"]])
        return False
    values = replied(answer, how)
    columns = {c: row[c] for c in ("question_id", "language", "question", "label", "p_evergreen")}
    why = str(answer.failure) if answer.failure else "said neither"
    step.accept(
        item,
        SCHEMA.row(parents=[row["row_id"]], responses=[answer.id], **columns, **values),
        note=f"unparsed: {why}" if values["verdict"] == "unparsed" else "",
    )
    return True


def replied(answer: Answer, how: Method) -> dict[str, Any]:
    """What a reply says and cost, as columns."""
    use = answer.usage
    return {
        "method": how.name,
        "verdict": how.read(answer.text),
        "reply": answer.text,
        "finish": answer.finish,
        "prompt_tokens": use.prompt_tokens,
        "completion_tokens": use.completion_tokens,
        "cost_usd": use.cost_usd,
        "prompt_hash": how.sheet.hash,
    }


def track(step: AskingStep, params: Params, figures: Mapping[str, Any], started: int) -> None:
    """One MLflow run."""
    rows = step.artifact("evaluation/evergreen") / "rows.parquet"
    told = Record(
        step.name,
        started,
        {"seed": step.seed, **asdict(params)},
        figures,
        [Data("evaluation/evergreen", rows, "test")],
        tags={"headrace.sample": figures["sample"]["what"]},
    )
    tracking.record(step.root, told)
