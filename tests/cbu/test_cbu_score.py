"""Scores carry what they were made of, and the gate refuses what no longer agrees with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from cbu_workspace import ScriptedClient, Workspace, problem

from pipelines.gates.cbu import SCORE_GATE, measures
from pipelines.gates.suite import judge
from pipelines.llm.answer import Failure
from pipelines.llm.request import Request
from pipelines.step import GateFailure

SOLVER: dict[str, Any] = {"backend": "embedded", "model": "scripted", "rollouts": 4}
GOLD = {"Bo has 3 pens": 11, "Cy has 4 pens": 13}


def solver(request: Request) -> str | Failure:
    """Right after a right candidate, and once in four without any; a time-out on one sample."""
    prompt = request.prompt or ""
    target = prompt.rpartition("Question: ")[2]
    gold = next(v for k, v in GOLD.items() if target.startswith(k))
    if "7 + 9 = 16" in prompt:
        return Failure.REFUSED if request.sample == 3 and gold == 11 else f"The answer is {gold}."
    if "7 * 9 = 63" in prompt or request.sample:
        return "The answer is 1."
    return f"The answer is {gold}."


@pytest.fixture
def scored(workspace: Workspace) -> Workspace:
    """One problem, three candidates, two neighbors, four rollouts each."""
    first = problem(0, "Ana has 7 pens and gets 9 more.", 16, "7 + 9 = 16.", "7 * 9 = 63.")
    first["candidates"].append({"solution": "It makes 13.", "label": "wrong"})
    workspace.put_rows(
        "a.jsonl",
        [
            first,
            problem(1, "Bo has 3 pens and gets 8 more.", 11),
            problem(2, "Cy has 4 pens and gets 9 more.", 13),
        ],
    )
    workspace.run("ingest")
    workspace.run("neighbors", min_near=0.0)
    workspace.run("rollout", ScriptedClient(solver), **SOLVER)
    workspace.run("score")
    return workspace


def by_solution(scored: Workspace) -> dict[str, dict[str, Any]]:
    return {r["solution"]: r for r in scored.rows("score").iter_rows(named=True)}


def test_a_score_says_utility_n_interval_lift_and_rank(scored: Workspace) -> None:
    right = by_solution(scored)["7 + 9 = 16."]
    assert (right["utility"], right["baseline"], right["lift"], right["rank"]) == (1.0, 0.25, 0.75, 1)
    assert (right["n"], sum(right["planned"]), sum(right["excluded"])) == (7, 8, 1)
    assert right["reasons"] == ["refused(refused)"]
    assert right["low"] == pytest.approx(1 / (1 + 3.841459 / right_n(right)), abs=1e-4)


def right_n(row: dict[str, Any]) -> float:
    """Effective n of a macro mean: 4 / (1/3 + 1/4)."""
    counts = [len(v) for v in row["values"]]
    return len(counts) ** 2 / sum(1 / c for c in counts)


def test_equal_scores_share_a_rank_and_the_next_is_left_out(scored: Workspace) -> None:
    rows = by_solution(scored)
    assert rows["It makes 13."]["utility"] == 0.25
    assert {s: r["rank"] for s, r in rows.items()} == {"7 + 9 = 16.": 1, "It makes 13.": 2, "7 * 9 = 63.": 3}


def test_a_candidate_that_states_a_neighbors_answer_is_flagged(scored: Workspace) -> None:
    rows = by_solution(scored)
    assert (rows["It makes 13."]["leak"], sorted(rows["It makes 13."]["leaks"])) == (True, [False, True])
    assert not rows["7 + 9 = 16."]["leak"]


def test_the_figures_stand_by_label(scored: Workspace) -> None:
    found = scored.outcomes("score")["metrics"]
    assert found["by_label"]["right"]["utility"] == 1.0
    assert found["by_label"]["wrong"]["utility"] == 0.125
    assert found["by_label"]["right"]["left_out"] == 1
    assert (found["auc"], found["acc_at_1"], found["problems_whose_candidates_differ"]) == (1.0, 1.0, 1)


def test_a_candidate_without_counted_rollouts_is_unverified_and_not_zero(scored: Workspace) -> None:
    def cut(request: Request) -> str | Failure:
        return Failure.LENGTH if "7 * 9 = 63" in (request.prompt or "") else solver(request)

    scored.run("rollout", ScriptedClient(cut), cut="excluded", **SOLVER)
    scored.run("score")
    assert "7 * 9 = 63." not in by_solution(scored)
    lost = scored.rejected("score").row(0, named=True)
    assert (lost["outcome"], lost["reason"]) == ("unverified", "neighbor_without_rollouts")
    assert "unparsable(length)" in lost["detail"]
    assert scored.outcomes("score")["metrics"]["by_label"]["wrong"]["cut_rate"] == 0.5


def test_the_rate_of_cut_rollouts_is_told_by_label_when_they_count_as_wrong(scored: Workspace) -> None:
    def cut(request: Request) -> str | Failure:
        return Failure.LENGTH if "7 * 9 = 63" in (request.prompt or "") else solver(request)

    scored.run("rollout", ScriptedClient(cut), **SOLVER)
    scored.run("score")
    assert by_solution(scored)["7 * 9 = 63."]["utility"] == 0.0
    rates = scored.outcomes("score")["metrics"]["by_label"]
    assert (rates["wrong"]["cut_rate"], rates["right"]["cut_rate"]) == (0.5, 0.0)


def test_every_candidate_with_a_neighbor_ends_once(scored: Workspace) -> None:
    counts = scored.outcomes("score")
    tried = scored.rows("rollout")["candidate"].drop_nulls().n_unique()
    assert counts["items"] == tried == counts["accepted"] == 3


def test_the_gate_passes_on_true_scores(scored: Workspace) -> None:
    verdict = judge(SCORE_GATE, scored.rows("score"))
    assert verdict.passed, verdict.failures()


Damage = Callable[[dict[str, Any]], dict[str, Any]]
DAMAGES: dict[str, tuple[str, Damage]] = {
    "U above one": ("out_of_range", lambda r: {**r, "utility": 1.5}),
    "U is the pooled mean": ("not_the_mean", lambda r: {**r, "values": [[1, 1, 1], [0]], "utility": 0.75}),
    "U outside its interval": ("out_of_range", lambda r: {**r, "low": 0.9, "utility": 0.5}),
    "a rollout of another scale": ("out_of_range", lambda r: {**r, "values": [[2, 0], [0, 0]]}),
    "a rollout dropped in silence": (
        "lost_rollouts",
        lambda r: {**r, "values": [r["values"][0][1:], r["values"][1]]},
    ),
    "a neighbor lost from one candidate": (
        "unequal_groups",
        lambda r: {
            **r,
            **{c: r[c][:1] for c in ("neighbors", "neighbor_questions", "neighbor_answers")},
            **{c: r[c][:1] for c in ("values", "planned", "excluded", "leaks")},
        },
    ),
    "fewer rollouts planned for one": ("unequal_groups", lambda r: {**r, "planned": [3, 3]}),
    "the first rank given twice": ("wrong_ranks", lambda r: {**r, "rank": 1}),
    "a lift against another baseline": ("wrong_lifts", lambda r: {**r, "baseline": 0.0}),
    "a neighbor that asks with the answer": (
        "leaked_neighbors",
        lambda r: {
            **r,
            "neighbor_questions": ["Bo has 16 pens and gets 8 more.", r["neighbor_questions"][1]],
        },
    ),
    "a neighbor with the same answer": (
        "leaked_neighbors",
        lambda r: {**r, "neighbor_answers": ["16.0", r["neighbor_answers"][1]]},
    ),
    "the problem as its own neighbor": (
        "leaked_neighbors",
        lambda r: {**r, "neighbors": [r["problem"], r["neighbors"][1]]},
    ),
    "a leak that lost its flag": ("unflagged_leaks", lambda r: {**r, "leaks": [False, False], "leak": False}),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_the_gate_fails_on_damaged_meaning(scored: Workspace, name: str) -> None:
    measure, damage = DAMAGES[name]
    rows = scored.rows("score").sort("utility").to_dicts()
    chosen = 1 if name == "a leak that lost its flag" else 0
    rows[chosen] = damage(rows[chosen])
    damaged = pl.DataFrame(rows, schema=scored.rows("score").schema)
    assert measures(damaged)[measure] >= 1
    verdict = judge(SCORE_GATE, damaged)
    assert not verdict.passed
    assert measure in {c["measure"] for c in verdict.checks if not c["passed"]}


def test_an_artifact_without_scores_does_not_pass(scored: Workspace) -> None:
    assert not judge(SCORE_GATE, scored.rows("score").clear()).passed


def test_a_leaked_neighbor_stops_the_stage_and_its_rows_are_held_outside(scored: Workspace) -> None:
    path = scored.root / "data/cbu/ingest/rows.parquet"
    damaged = pl.read_parquet(path).with_columns(
        question=pl.col("question").str.replace("Bo has 3 pens", "Bo has 16 pens")
    )
    damaged.write_parquet(path)
    with pytest.raises(GateFailure, match="no neighbor states or shares the answer"):
        scored.run("score")
    assert not (scored.root / "data/cbu/score/rows.parquet").exists()
    assert (scored.root / ".headrace/held/cbu/score/rows.parquet").exists()
    assert scored.outcomes("score")["gate"]["passed"] is False


def test_a_broken_group_stops_the_stage(scored: Workspace) -> None:
    path = scored.root / "data/cbu/rollout/rows.parquet"
    rows = pl.read_parquet(path)
    one = rows.filter(pl.col("candidate").is_not_null()).row(0, named=True)
    gone = (pl.col("candidate") == one["candidate"]) & (pl.col("neighbor") == one["neighbor"])
    rows.filter(pl.col("candidate").is_null() | ~gone).write_parquet(path)
    with pytest.raises(GateFailure, match="the same neighbors equally often"):
        scored.run("score")
