"""C* ~ M(. | Q, C, Q*): T rollouts of the solver on each neighbor with each candidate in context.

Law: a rollout that was not seen to its end is no evidence. v is 1 or 0 only for a
whole answer that was compared; an error, a time-out or a comparison that could
not decide is left out of v and counted by its kind. A whole answer that marks no
final answer is v = 0, and said so. One cut by `max_tokens` is 0 as in the paper, or
left out with `cut: excluded`; its rate is reported by label either way.

The same neighbor without any candidate gives the baseline, T rollouts of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from pipelines.asking import AskingStep
from pipelines.data.answers import Verdict, Verifier, extract
from pipelines.data.config import MOST_SAMPLES, Share
from pipelines.data.outcomes import Outcome
from pipelines.data.prompts import Prompt, load_prompt
from pipelines.data.rows import Schema, digest
from pipelines.errors import ConfigError, nearest
from pipelines.llm.answer import Answer, Failure
from pipelines.llm.request import Request, Sampling, seed_of

SCHEMA = Schema(
    name="cbu.rollout",
    columns={
        "candidate": pl.String,  # row id in cbu.ingest, null in the baseline
        "neighbor": pl.String,  # key of its problem
        "sample": pl.Int64,
        "text": pl.String,
        "answer": pl.String,  # null: none was marked
        "v": pl.Int64,  # 1 right, 0 wrong
        "finish": pl.String,
        "prompt_hash": pl.String,
    },
    identity=("candidate", "neighbor", "sample"),
)
PROMPTS = {"completion": "solve", "chat": "solve_boxed"}
CUT = ("excluded", "wrong")


@dataclass(frozen=True)
class Params:
    """rollouts: T, of each candidate on each neighbor (paper: 64). baseline: T without any candidate.

    style: completion (a base model goes on after "Solution:") or chat (a boxed answer is asked for).
    cut: what a rollout cut by max_tokens counts as. max_prompt_chars: a longer prompt would not fit
    the model's context and is rejected unasked, 0 for no limit.
    """

    backend: str
    model: str
    rollouts: int = 4
    baseline: bool = True
    style: str = "completion"
    max_tokens: int = 24
    temperature: float = 0.8
    top_p: float = 1.0
    stop: tuple[str, ...] = ("\n",)
    cut: str = "wrong"
    max_prompt_chars: int = 0
    allow_failed: Share = 0.0


@dataclass(frozen=True)
class Group:
    """The T rollouts of one prompt: a candidate (None: the baseline) on a neighbor."""

    candidate: str | None
    neighbor: str
    gold: str
    prompt: str
    parents: tuple[str, ...]

    @property
    def key(self) -> str:
        return f"{self.candidate or 'baseline'}|{self.neighbor}"


def run(step: AskingStep, params: Params) -> None:
    """Plans every (candidate, neighbor, sample), asks, compares, settles."""
    _check(params)
    prompt = load_prompt(__file__, f"prompts/{PROMPTS[params.style]}.j2")
    groups = {g.key: g for g in _groups(step, params, prompt)}
    items = {f"{g.key}|{t}": (g, t) for g in groups.values() for t in range(params.rollouts)}
    step.plan(items)
    asked = {item: work for item, work in items.items() if _fits(step, params, item, work[0])}
    if not asked:
        return
    requests = (_request(step, params, item, g, t) for item, (g, t) in asked.items())
    with step.client(params.backend, params.model) as client, Verifier() as verifier:
        for answer in step.ask(client, requests, len(asked)):
            group, sample = asked[answer.request.row]
            _settle(step, params, prompt, verifier, group, sample, answer)


def _check(params: Params) -> None:
    where = "params.yaml: cbu.rollout"
    if not 1 <= params.rollouts <= MOST_SAMPLES:
        what = f"rollouts must be at least 1 and at most {MOST_SAMPLES}, is {params.rollouts}"
        raise ConfigError(what, where=where)
    for key, known in (("style", tuple(PROMPTS)), ("cut", CUT)):
        value = getattr(params, key)
        if value not in known:
            raise ConfigError(f"unknown {key} {value!r}", where=where, cure=nearest(value, known))


def _fits(step: AskingStep, params: Params, item: str, group: Group) -> bool:
    """Whether a prompt may be asked; one that is too long is rejected here."""
    if not params.max_prompt_chars or len(group.prompt) <= params.max_prompt_chars:
        return True
    detail = f"{len(group.prompt)} characters > {params.max_prompt_chars}"
    step.reject(item, "prompt_too_long", detail=detail, parents=group.parents)
    return False


def _groups(step: AskingStep, params: Params, prompt: Prompt) -> Iterator[Group]:
    """Candidates in order of their prompts' shared prefixes: all neighbors of a candidate together."""
    rows = step.read("cbu/ingest", count=False)
    links = step.read("cbu/neighbors").sort("problem", "place")
    own = {r["problem"]: r for r in rows.filter(pl.col("solution").is_null()).iter_rows(named=True)}
    near: dict[str, list[dict[str, Any]]] = {}
    for link in links.iter_rows(named=True):
        near.setdefault(link["problem"], []).append(link)
    candidates = rows.filter(pl.col("solution").is_not_null()).sort("problem", "row_id")
    for row in candidates.iter_rows(named=True):
        for link in near.get(row["problem"], []):
            target = own[link["neighbor"]]
            text = prompt.render(
                question=row["question"], solution=row["solution"], neighbor=target["question"]
            )
            parents = (row["row_id"], link["row_id"], target["row_id"])
            yield Group(row["row_id"], target["problem"], target["answer"], text, parents)
    if params.baseline:
        yield from _baseline(prompt, own, sorted(set(links["neighbor"])))


def _baseline(prompt: Prompt, own: Mapping[str, dict[str, Any]], keys: Sequence[str]) -> Iterator[Group]:
    for key in keys:
        target = own[key]
        text = prompt.render(question=None, solution=None, neighbor=target["question"])
        yield Group(None, key, target["answer"], text, (target["row_id"],))


def _request(step: AskingStep, params: Params, item: str, group: Group, sample: int) -> Request:
    chat = params.style == "chat"
    return Request(
        kind="chat" if chat else "completion",
        model=params.model,
        sampling=Sampling(
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            top_p=params.top_p,
            stop=params.stop,
        ),
        prompt=None if chat else group.prompt,
        messages=(("user", group.prompt),) if chat else (),
        sample=sample,
        seed=seed_of(step.seed, digest("cbu.rollout", group.candidate, group.neighbor), sample),
        row=item,
        purpose="cbu.rollout",
    )


def _settle(
    step: AskingStep,
    params: Params,
    prompt: Prompt,
    verifier: Verifier,
    group: Group,
    sample: int,
    answer: Answer,
) -> None:
    item = answer.request.row
    cut = answer.failure is Failure.LENGTH
    counted = answer.ok or answer.failure is Failure.EMPTY or (cut and params.cut == "wrong")
    if not counted:
        return step.settle_failure(item, answer, parents=group.parents)
    found = None if cut else extract(answer.text)
    verdict = Verdict.WRONG if found is None else verifier.compare(found, group.gold)
    if verdict is Verdict.UNVERIFIED:
        return step.settle(
            item,
            Outcome.UNVERIFIED,
            "comparison",
            detail=f"{found!r} against {group.gold!r}",
            raw=answer.text,
            parents=group.parents,
            responses=[answer.id],
        )
    row = SCHEMA.row(
        parents=group.parents,
        responses=[answer.id],
        candidate=group.candidate,
        neighbor=group.neighbor,
        sample=sample,
        text=answer.text,
        answer=found,
        v=int(verdict is Verdict.RIGHT),
        finish=answer.finish,
        prompt_hash=prompt.hash,
    )
    return step.accept(item, row, note="cut" if cut else "no_answer" if found is None else "")
