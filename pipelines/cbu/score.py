"""U of each candidate from its rollouts, with interval, lift over no context, leak flag and rank.

Law: a score carries all that it was made of, so that the gate can count it again.
A candidate of which a neighbor has no counted rollout gets no score: unverified.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from pipelines.cbu.figures import Attempt, Attempts, by_label, ranking_figures
from pipelines.cbu.utility import Candidate, Neighbor, Utility, utility
from pipelines.data.answers import Verdict, mentions
from pipelines.data.outcomes import Outcome
from pipelines.data.rows import Schema
from pipelines.data.tables import read_parquet
from pipelines.gates.cbu import SCORE_GATE
from pipelines.llm.answer import Failure
from pipelines.step import Step

SCHEMA = Schema(
    name="cbu.score",
    columns={
        "candidate": pl.String,  # row id in cbu.ingest
        "problem": pl.String,
        "name": pl.String,
        "question": pl.String,
        "answer": pl.String,
        "solution": pl.String,
        "label": pl.String,
        "author": pl.String,
        "neighbors": pl.List(pl.String),
        "neighbor_questions": pl.List(pl.String),
        "neighbor_answers": pl.List(pl.String),
        "values": pl.List(pl.List(pl.Int64)),  # v by neighbor
        "planned": pl.List(pl.Int64),  # rollouts by neighbor
        "excluded": pl.List(pl.Int64),  # of them left out of U
        "reasons": pl.List(pl.String),  # why, one a rollout left out
        "n": pl.Int64,
        "utility": pl.Float64,
        "low": pl.Float64,
        "high": pl.Float64,
        "baseline": pl.Float64,
        "lift": pl.Float64,
        "leaks": pl.List(pl.Boolean),  # the candidate states this neighbor's answer
        "leak": pl.Boolean,
        "rank": pl.Int64,
    },
    identity=("candidate",),
)
GATE = SCORE_GATE


@dataclass(frozen=True)
class Params:
    """Nothing to choose: the score is a function of the rollouts."""


def run(step: Step, params: Params) -> None:
    """Gathers the rollouts by (candidate, neighbor), scores the candidates that were rolled out."""
    rows = step.read("cbu/ingest", count=False)
    solutions = {r["row_id"]: r for r in rows.filter(pl.col("solution").is_not_null()).iter_rows(named=True)}
    problems = {r["problem"]: r for r in rows.filter(pl.col("solution").is_null()).iter_rows(named=True)}
    attempts = gather(step.read("cbu/rollout"), _rejected(step))
    near: dict[str, list[Neighbor]] = {}
    for candidate, neighbor in sorted(k for k in attempts if k[0] is not None):
        own = problems[neighbor]
        near.setdefault(str(candidate), []).append(Neighbor(neighbor, own["question"], own["answer"]))
    step.plan(sorted(near))
    scores = utility(
        (Candidate(key, solutions[key]["problem"], solutions[key]["solution"]) for key in sorted(near)),
        lambda candidate: near[candidate.key],
        lambda candidate, neighbor: attempts.get((candidate.key if candidate else None, neighbor.key), []),
        lambda attempt, _: _verdict(attempt),
    )
    for score in scores:
        _settle(step, score, solutions[score.candidate], near[score.candidate], attempts)
    labels = {key: solutions[key]["label"] for key in near}
    step.metrics = {**by_label(scores, labels, attempts), **ranking_figures(scores, labels)}


def _rejected(step: Step) -> pl.DataFrame:
    return read_parquet(step.root / "data" / "cbu" / "rollout" / "rejected.parquet", "cbu.rollout")


def gather(rows: pl.DataFrame, rejected: pl.DataFrame) -> dict[tuple[str | None, str], list[Attempt]]:
    """All rollouts that were planned, by (candidate or None, neighbor), in order of the sample."""
    found: dict[tuple[str | None, str], list[Attempt]] = {}
    for row in rows.iter_rows(named=True):
        key = (row["candidate"], row["neighbor"])
        found.setdefault(key, []).append(
            Attempt(row["sample"], row["v"], row=row["row_id"], cut=row["finish"] == "length")
        )
    for row in rejected.iter_rows(named=True):
        candidate, neighbor, sample = row["item"].split("|")
        who = None if candidate == "baseline" else candidate
        reason = f"{row['outcome']}({row['reason']})"
        why = Attempt(int(sample), None, reason, cut=row["reason"] == Failure.LENGTH)
        found.setdefault((who, neighbor), []).append(why)
    return {k: sorted(v, key=lambda a: a.sample) for k, v in found.items()}


def _verdict(attempt: Attempt) -> Verdict:
    if attempt.v is None:
        return Verdict.UNVERIFIED
    return Verdict.RIGHT if attempt.v else Verdict.WRONG


def _settle(
    step: Step, score: Utility, candidate: Mapping[str, Any], near: Iterable[Neighbor], attempts: Attempts
) -> None:
    by_key = {n.key: n for n in near}
    used = [a for t in score.trials for a in attempts[score.candidate, t.neighbor]]
    parents = [candidate["row_id"], *(a.row for a in used if a.row)]
    reasons = [a.reason for a in used if a.reason]
    if score.utility is None:
        return step.settle(
            score.candidate,
            Outcome.UNVERIFIED,
            "neighbor_without_rollouts",
            detail=f"{score.excluded} rollouts left out: {', '.join(sorted(set(reasons)))}",
            raw=candidate["solution"],
            parents=parents,
        )
    leaks = [mentions(candidate["solution"], by_key[t.neighbor].answer) for t in score.trials]
    row = SCHEMA.row(
        parents=parents,
        candidate=score.candidate,
        **{c: candidate[c] for c in ("problem", "name", "question", "answer", "solution", "label", "author")},
        neighbors=[t.neighbor for t in score.trials],
        neighbor_questions=[by_key[t.neighbor].question for t in score.trials],
        neighbor_answers=[by_key[t.neighbor].answer for t in score.trials],
        values=[list(t.values) for t in score.trials],
        planned=[len(t.values) + t.excluded for t in score.trials],
        excluded=[t.excluded for t in score.trials],
        reasons=reasons,
        n=score.n,
        **{c: getattr(score, c) for c in ("utility", "low", "high", "baseline", "lift", "rank")},
        leaks=leaks,
        leak=any(leaks),
    )
    return step.accept(score.candidate, row, note="leak" if any(leaks) else "")
