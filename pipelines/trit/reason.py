"""G responses to each accepted translation, in its own language, each with its reward.

Law: a work item is (translation, sample). A response without an answer is
unparsable and keeps its text; one whose answer could not be compared is
unverified, never wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from pipelines.asking import AskingStep
from pipelines.data.answers import Verdict, Verifier, extract
from pipelines.data.config import MOST_SAMPLES, Share
from pipelines.data.outcomes import Outcome
from pipelines.data.prompts import Prompt
from pipelines.data.rows import Schema
from pipelines.errors import ConfigError, nearest
from pipelines.llm.answer import Answer
from pipelines.llm.request import Request, Sampling, seed_of
from pipelines.trit.prompting import item_of, one_line, parse_item, prompt_of
from pipelines.trit.repetition import PRESETS
from pipelines.trit.reward import FORMATS, in_language, not_repetitive, reward, split

SCHEMA = Schema(
    "trit.reason",
    {
        "translation": pl.String,  # row id of the translation that was answered
        "problem_key": pl.String,
        "language": pl.String,
        "sample": pl.Int64,  # 0 .. G-1
        "question": pl.String,
        "response": pl.String,
        "given": pl.String,  # the answer found in the response
        "gold": pl.String,
        "r_fmt": pl.Int64,
        "r_lang": pl.Int64,
        "r_rep": pl.Int64,
        "r_acc": pl.Int64,
        "reward": pl.Float64,
        "group_size": pl.Int64,  # G
        "prompt": pl.String,
        "prompt_hash": pl.String,
        "seed": pl.Int64,
    },
    identity=("translation", "sample"),
)


@dataclass(frozen=True)
class Params:
    """samples: G; format: think | plain; repetition: train | eval; require_box: boxed answers alone count."""

    backend: str
    model: str
    samples: int
    temperature: float
    top_p: float
    max_tokens: int
    format: str
    repetition: str
    require_box: bool
    candidates: tuple[str, ...]
    fewest_letters: int
    verify_s: float
    allow_failed: Share = 0.0


@dataclass(frozen=True)
class Bench:
    """What a response is judged with, the same for all of a run."""

    step: AskingStep
    params: Params
    prompt: Prompt
    translations: Mapping[str, Mapping[str, Any]]
    verifier: Verifier


def run(step: AskingStep, params: Params) -> None:
    """Asks G times for each accepted translation, finds and compares each answer, gives the reward."""
    check(params)
    prompt = prompt_of("reason", step.item)
    rows = step.read(f"trit/translate/{step.item}")
    translations = {row["row_id"]: row for row in rows.iter_rows(named=True)}
    items = [item_of(key, g) for key in translations for g in range(params.samples)]
    step.plan(items)
    with step.client(params.backend, params.model) as client, Verifier(cpu_s=params.verify_s) as verifier:
        bench = Bench(step, params, prompt, translations, verifier)
        for answer in step.ask(client, requests(bench), len(items)):
            settle(bench, answer)


def check(params: Params) -> None:
    """Raises ConfigError for a word that names nothing, before any model is asked."""
    if not 1 <= params.samples <= MOST_SAMPLES:
        raise ConfigError(
            f"must be at least 1 and at most {MOST_SAMPLES}", where="params.yaml: trit.reason.samples"
        )
    for name, value, known in (
        ("format", params.format, FORMATS),
        ("repetition", params.repetition, tuple(PRESETS)),
    ):
        if value not in known:
            cure = nearest(value, known)
            raise ConfigError(f"unknown value {value!r}", where=f"params.yaml: trit.reason.{name}", cure=cure)


def requests(bench: Bench) -> Iterator[Request]:
    """One request a sample, those of one translation adjacent: they share a prefix."""
    params, step = bench.params, bench.step
    stop = ("\n",) if params.format == "plain" else ()
    sampling = Sampling(params.max_tokens, params.temperature, params.top_p, stop=stop)
    for key, row in bench.translations.items():
        text = bench.prompt.render(question=one_line(row["translation"]))
        for g in range(params.samples):
            yield Request(
                "completion",
                params.model,
                sampling,
                prompt=text,
                sample=g,
                seed=seed_of(step.seed, f"{step.name}/{key}", g),
                row=item_of(key, g),
                purpose=step.name,
            )


def settle(bench: Bench, answer: Answer) -> None:
    """Ends the item of one answer."""
    step, params = bench.step, bench.params
    item = answer.request.row
    key, sample = parse_item(item)
    asked = bench.translations[key]
    if not answer.ok:
        step.settle_failure(item, answer, parents=(key,))
        return
    spans = split(answer.text, params.format)
    given = extract(spans.answer, language=str(step.item), require_box=params.require_box)
    if given is None:
        step.settle(
            item,
            Outcome.UNPARSABLE,
            "no_answer",
            raw=answer.text,
            parents=(key,),
            responses=(answer.id,),
        )
        return
    verdict = bench.verifier.compare(given, asked["answer"], language=str(step.item))
    if verdict is Verdict.UNVERIFIED:
        step.settle(
            item,
            Outcome.UNVERIFIED,
            "not_compared",
            detail=given,
            raw=answer.text,
            parents=(key,),
            responses=(answer.id,),
        )
        return
    step.accept(item, _row(bench, answer, asked, given, sample, verdict is Verdict.RIGHT))


def _row(
    bench: Bench, answer: Answer, asked: Mapping[str, Any], given: str, sample: int, acc: bool
) -> dict[str, Any]:
    params, language = bench.params, str(bench.step.item)
    spans = split(answer.text, params.format)
    candidates = tuple(sorted({*params.candidates, language, "en"}))
    lang = in_language(spans, language, candidates, params.fewest_letters)
    rep = not_repetitive(answer.text, PRESETS[params.repetition])
    return SCHEMA.row(
        translation=asked["row_id"],
        problem_key=asked["problem_key"],
        language=language,
        sample=sample,
        question=asked["translation"],
        response=answer.text.strip(),
        given=given,
        gold=asked["answer"],
        r_fmt=int(spans.ok),
        r_lang=int(lang),
        r_rep=int(rep),
        r_acc=int(acc),
        reward=reward(spans.ok, lang, rep, acc),
        group_size=params.samples,
        prompt=bench.prompt.name,
        prompt_hash=bench.prompt.hash,
        seed=answer.request.seed,
        parents=(asked["row_id"],),
        responses=(answer.id,),
    )
