"""Neighbors are the nearest problems that can be checked and give nothing of the answer away."""

from __future__ import annotations

import random
from typing import Any

import pytest
from cbu_workspace import Workspace, problem

from pipelines.cbu.nearness import Problem, objection, pair, shortlist
from pipelines.cbu.neighbors import draw
from pipelines.errors import ConfigError

Q = Problem("q", "a/q", "Ana has 7 pens and gets 9 more. How many pens?", "16", ("sum",))


def other(question: str, answer: str | None, key: str = "n", concepts: tuple[str, ...] = ()) -> Problem:
    return Problem(key, f"a/{key}", question, answer, concepts)


@pytest.mark.parametrize(
    ("question", "answer", "why"),
    [
        ("Bo has 3 pens and gets 8 more. How many pens?", "11", None),
        ("Bo gave 16 pens away and 5 more. How many?", "21", "leak"),
        ("Bo has 8 pens and gets 8 more. How many pens?", "16.0", "leak"),
        ("Bo has 8 pens and gets 8 more. How many pens?", "4^2, or equivalently 16", "leak"),
        ("ana has 7 pens, and gets 9 more: how many pens", "16", "same_question"),
        ("Bo has 160 pens and 1.6 more. How many?", "161.6", None),
        ("Which pen is best?", "the red pen", "no_checkable_answer"),
        ("Which pen is best?", None, "no_checkable_answer"),
        ("Is 5 prime?", "Yes", None),
    ],
)
def test_a_rule_says_why_a_problem_is_no_neighbor(question: str, answer: str | None, why: str | None) -> None:
    found = objection(Q, pair(Q, other(question, answer), 0.9, 0.1), 0.8)
    assert (found[0] if found else None) == why


def test_a_problem_whose_answer_nobody_knows_still_has_neighbors() -> None:
    unknown = Problem("q", "a/q", "Is there an odd perfect number?", None)
    assert objection(unknown, pair(unknown, other("What is 2 + 9?", "11"), 0.9, 0.1), 0.8) is None


def test_what_is_too_far_is_no_neighbor_unless_it_was_given() -> None:
    far = other("What is 2 + 9?", "11")
    assert objection(Q, pair(Q, far, 0.5, 0.1), 0.8) == ("too_far", "0.500 < 0.8")
    assert objection(Q, pair(Q, far, 0.5, 0.1, given=True), 0.8) is None


def test_shared_concepts_bring_nearer_and_given_ones_come_first() -> None:
    plain = pair(Q, other("a", "1", "plain"), 0.90, 0.1)
    shared = pair(Q, other("b", "1", "shared", ("sum", "gifts")), 0.88, 0.1)
    given = pair(Q, other("c", "1", "given"), 0.1, 0.1, given=True)
    assert shared.near == pytest.approx(0.93)
    assert [p.problem.key for p in shortlist([plain, shared, given], 2)] == ["given", "shared"]


def rows() -> list[dict[str, Any]]:
    return [
        problem(0, "Ana has 7 pens and gets 9 more. How many pens?", 16, "It is 16.", "It is 2."),
        problem(1, "Bo has 3 pens and gets 8 more. How many pens?", 11),
        problem(2, "Cy has 4 pens and gets 9 more. How many pens?", 13),
        problem(3, "Di has 5 pens and gets 7 more. How many pens?", 12),
        problem(4, "Ed has 16 pens and gets 7 more. How many pens?", 23),
        problem(5, "Fay has 8 pens and gets 8 more. How many pens?", 16),
        problem(6, "Which of the pens gets dry first?", "the old one"),
    ]


PARAMS: dict[str, Any] = {"consider": 6, "min_near": 0.2}


def test_every_problem_looked_at_ends_once_and_two_are_taken(workspace: Workspace) -> None:
    workspace.put_rows("a.jsonl", rows())
    workspace.run("ingest")
    workspace.run("neighbors", **PARAMS)
    taken = workspace.rows("neighbors")
    assert sorted(taken["place"]) == [1, 2]
    counts = workspace.outcomes("neighbors")
    assert counts["items"] == 6 == counts["accepted"] + counts["rejected"]
    assert counts["reasons"] == {
        "rejected(leak)": 2,
        "rejected(no_checkable_answer)": 1,
        "rejected(spare)": 1,
    }


def test_given_neighbors_win_and_an_unknown_name_is_a_reject(workspace: Workspace) -> None:
    listed = rows()
    listed[0]["neighbors"] = ["p3", "p99"]
    workspace.put_rows("a.jsonl", listed)
    workspace.run("ingest")
    workspace.run("neighbors", **PARAMS)
    names = dict(workspace.rows("ingest").select("problem", "name").rows())
    first = workspace.rows("neighbors").sort("place").row(0, named=True)
    assert (names[first["neighbor"]], first["given"]) == ("a/p3", True)
    lost = workspace.rejected("neighbors").filter(reason="unknown_neighbor")
    assert lost["detail"].to_list() == ["a/p99"]


def test_the_order_of_the_input_changes_no_neighbor(workspace: Workspace) -> None:
    seen = set()
    for seed in range(4):
        mixed = random.Random(seed).sample(rows(), 7)
        workspace.put_rows("a.jsonl", mixed)
        workspace.run("ingest")
        workspace.run("neighbors", **PARAMS)
        seen.add((workspace.root / "data/cbu/neighbors/rows.parquet").read_bytes())
    assert len(seen) == 1


def test_only_the_problems_drawn_are_scored_and_the_rest_is_said(workspace: Workspace) -> None:
    listed = [
        problem(n, f"Al has {n} pens and gets 90 more. How many?", n + 90, "So.", "No.") for n in range(1, 9)
    ]
    workspace.put_rows("a.jsonl", listed)
    workspace.run("ingest")
    workspace.run("neighbors", problems=3, **PARAMS)
    assert workspace.rows("neighbors")["problem"].n_unique() == 3
    assert workspace.outcomes("neighbors")["notes"]["not_drawn"] == 5


def test_problems_with_both_labels_are_drawn_first_and_a_new_one_moves_at_most_one(
    workspace: Workspace,
) -> None:
    listed = [problem(n, f"Al has {n} pens. How many?", n, "So.", "No." if n % 2 else "") for n in range(20)]
    workspace.put_rows("a.jsonl", listed)
    workspace.run("ingest")
    drawn, _ = draw(workspace.rows("ingest"), 7, 6)
    both = {r[0] for r in workspace.rows("ingest").filter(label="wrong").select("problem").rows()}
    assert set(drawn) <= both
    workspace.put_rows("a.jsonl", [problem(99, "A new one?", 1, "So.", "No."), *listed])
    workspace.run("ingest")
    assert len(set(draw(workspace.rows("ingest"), 7, 6)[0]) - set(drawn)) <= 1


def test_a_problem_alone_is_rejected_with_that_said(workspace: Workspace) -> None:
    workspace.put_rows("a.jsonl", rows()[:1])
    workspace.run("ingest")
    workspace.run("neighbors", **PARAMS)
    assert workspace.outcomes("neighbors")["reasons"] == {"rejected(no_other_problem)": 1}


def test_impossible_sizes_are_refused(workspace: Workspace) -> None:
    workspace.put_rows("a.jsonl", rows())
    workspace.run("ingest")
    with pytest.raises(ConfigError, match="per_problem <= consider"):
        workspace.run("neighbors", per_problem=3, consider=2)
