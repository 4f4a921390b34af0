"""K translations of each English problem by the model; what a rule can refuse is refused at no cost.

Law: a work item is (problem, sample). A refused translation keeps its text and
its answer's id among the rejected rows: it stays in the translation set with
reward 0 (stage 2). References are never read here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from pipelines.asking import AskingStep
from pipelines.data.config import MOST_SAMPLES, Share
from pipelines.data.prompts import Prompt
from pipelines.data.rows import Schema
from pipelines.errors import ConfigError
from pipelines.llm.answer import Answer, Failure
from pipelines.llm.request import Request, Sampling, seed_of
from pipelines.trit.checks import Rules, fault, shots_of
from pipelines.trit.prompting import ENGLISH, LABELS, item_of, one_line, parse_item, prompt_of

SCHEMA = Schema(
    "trit.translate",
    {
        "problem_key": pl.String,
        "language": pl.String,
        "sample": pl.Int64,  # 0 .. K-1
        "english": pl.String,
        "translation": pl.String,
        "answer": pl.String,  # of the problem, canonical
        "group_size": pl.Int64,  # K
        "prompt": pl.String,
        "prompt_hash": pl.String,
        "seed": pl.Int64,
    },
    identity=("problem_key", "language", "sample"),
)


@dataclass(frozen=True)
class Params:
    """samples: K; candidates: languages told apart; length_ratio: characters per English character."""

    backend: str
    model: str
    samples: int
    temperature: float
    top_p: float
    max_tokens: int
    candidates: tuple[str, ...]
    fewest_letters: int
    length_ratio: dict[str, tuple[float, ...]] = field(default_factory=dict)
    allow_failed: Share = 0.0


def run(step: AskingStep, params: Params) -> None:
    """Asks K times for each source problem, checks each translation, accepts or rejects it."""
    prompt = prompt_of("translate", step.item)
    rules = rules_of(params, str(step.item), prompt)
    if not 1 <= params.samples <= MOST_SAMPLES:
        raise ConfigError(
            f"must be at least 1 and at most {MOST_SAMPLES}", where="params.yaml: trit.translate.samples"
        )
    problems = {
        row["problem_key"]: row
        for row in step.read("trit/ingest").filter(pl.col("role") == "source").iter_rows(named=True)
    }
    items = [item_of(key, k) for key in problems for k in range(params.samples)]
    step.plan(items)
    with step.client(params.backend, params.model) as client:
        for answer in step.ask(client, requests(step, params, prompt, problems), len(items)):
            settle(step, params, prompt, rules, problems, answer)


def rules_of(params: Params, language: str, prompt: Prompt) -> Rules:
    """The checks' knowledge. Raises ConfigError when a language has no length ratio or is no candidate."""
    ratio = params.length_ratio.get(language, ())
    if len(ratio) != 2 or ratio[0] > ratio[1]:
        raise ConfigError(
            f"needs [shortest, longest] for {language!r}", where="params.yaml: trit.translate.length_ratio"
        )
    label = LABELS[language]
    return Rules(
        language,
        tuple(sorted({*params.candidates, language, "en"})),
        params.fewest_letters,
        ratio[0],
        ratio[1],
        label,
        shots_of(prompt.text, (ENGLISH, label)),
    )


def requests(
    step: AskingStep, params: Params, prompt: Prompt, problems: Mapping[str, Mapping[str, Any]]
) -> Iterator[Request]:
    """One request a sample, those of one problem adjacent."""
    sampling = Sampling(params.max_tokens, params.temperature, params.top_p, stop=("\n",))
    for key, row in problems.items():
        text = prompt.render(question=one_line(row["question"]))
        for k in range(params.samples):
            yield Request(
                "completion",
                params.model,
                sampling,
                prompt=text,
                sample=k,
                seed=seed_of(step.seed, f"{step.name}/{key}", k),
                row=item_of(key, k),
                purpose=step.name,
            )


def settle(
    step: AskingStep,
    params: Params,
    prompt: Prompt,
    rules: Rules,
    problems: Mapping[str, Mapping[str, Any]],
    answer: Answer,
) -> None:
    """Ends the item of one answer."""
    item = answer.request.row
    key, sample = parse_item(item)
    problem = problems[key]
    parents = (problem["row_id"],)
    if not answer.ok and answer.failure is not Failure.EMPTY:
        step.settle_failure(item, answer, parents=parents)
        return
    translation = answer.text.strip()
    found = fault(problem["question"], translation, rules)
    if found is not None:
        step.reject(
            item,
            found[0],
            detail=found[1],
            raw=answer.text,
            responses=(answer.id,),
            parents=parents,
        )
        return
    row = SCHEMA.row(
        problem_key=key,
        language=step.item,
        sample=sample,
        english=problem["question"],
        translation=translation,
        answer=problem["answer"],
        group_size=params.samples,
        prompt=prompt.name,
        prompt_hash=prompt.hash,
        seed=answer.request.seed,
        responses=(answer.id,),
        parents=parents,
    )
    step.accept(item, row)
