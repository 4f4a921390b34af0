"""The gate of CBU's last artifact: scores that can be counted again from what they carry.

Law: nothing here trusts the column that it judges: U, ranks and flags are counted
anew from the rollouts and the texts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import polars as pl

from pipelines.data.answers import mentions, share
from pipelines.gates.suite import Expect, Suite

CLOSE = 1e-9


def measures(rows: pl.DataFrame) -> Mapping[str, float]:
    """Counts of what must not be, over the rows of cbu.score."""
    listed = rows.to_dicts()
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in listed:
        groups.setdefault(row["problem"], []).append(row)
    return {
        "rows": len(listed),
        "out_of_range": sum(_out_of_range(r) for r in listed),
        "not_the_mean": sum(_not_the_mean(r) for r in listed),
        "lost_rollouts": sum(_lost(r) for r in listed),
        "unequal_groups": sum(_unequal(g) for g in groups.values()),
        "wrong_ranks": sum(_wrong_ranks(g) for g in groups.values()),
        "wrong_lifts": sum(_wrong_lift(r) for r in listed),
        "leaked_neighbors": sum(_leaked(r) for r in listed),
        "unflagged_leaks": sum(_unflagged(r) for r in listed),
    }


def _out_of_range(row: dict[str, Any]) -> bool:
    low, value, high = row["low"], row["utility"], row["high"]
    if None in (low, value, high) or any(v not in (0, 1) for vs in row["values"] for v in vs):
        return True
    return not (-CLOSE <= low <= value + CLOSE and value <= high + CLOSE and high <= 1 + CLOSE)


def _not_the_mean(row: dict[str, Any]) -> bool:
    if not row["values"] or any(not vs for vs in row["values"]):
        return True
    macro = math.fsum(sum(vs) / len(vs) for vs in row["values"]) / len(row["values"])
    return row["utility"] is None or abs(row["utility"] - macro) > CLOSE


def _lost(row: dict[str, Any]) -> bool:
    """Rollouts planned, counted and left out do not add up, or differ from neighbor to neighbor."""
    counted = [len(vs) for vs in row["values"]]
    lists = (row["neighbors"], row["values"], row["planned"], row["excluded"], row["leaks"])
    if len({len(one) for one in lists}) != 1 or len(set(row["planned"])) != 1:
        return True
    if [c + e for c, e in zip(counted, row["excluded"], strict=True)] != row["planned"]:
        return True
    return bool(row["n"] != sum(counted) or len(row["reasons"]) != sum(row["excluded"]))


def _unequal(group: list[dict[str, Any]]) -> bool:
    """Candidates of one problem that were not tried on the same neighbors equally often."""
    return len({(tuple(r["neighbors"]), tuple(r["planned"])) for r in group}) != 1


def _wrong_ranks(group: list[dict[str, Any]]) -> int:
    values = [r["utility"] or 0.0 for r in group]
    return sum(r["rank"] != 1 + sum(v > (r["utility"] or 0.0) + CLOSE for v in values) for r in group)


def _wrong_lift(row: dict[str, Any]) -> bool:
    if row["baseline"] is None or row["lift"] is None:
        return row["baseline"] is not row["lift"]
    return bool(abs(row["lift"] - (row["utility"] - row["baseline"])) > CLOSE)


def _leaked(row: dict[str, Any]) -> int:
    """Neighbors that state or share the answer that is judged, or are the problem itself."""
    answer = row["answer"]
    near = list(zip(row["neighbors"], row["neighbor_questions"], row["neighbor_answers"], strict=True))
    same: int = sum(key == row["problem"] for key, _, _ in near)
    if answer is None:
        return same
    return same + sum(mentions(question, answer) or share(other, answer) for _, question, other in near)


def _unflagged(row: dict[str, Any]) -> bool:
    stated = [mentions(row["solution"], answer) for answer in row["neighbor_answers"]]
    return bool(row["leaks"] != stated or row["leak"] != any(stated))


SCORE_GATE = Suite(
    name="cbu.score",
    measures=measures,
    expectations=(
        Expect("rows", "at least one candidate is scored", low=1),
        Expect("out_of_range", "U and its interval lie in [0, 1] and U in its interval", high=0),
        Expect("not_the_mean", "U is the mean over neighbors of the mean of their rollouts", high=0),
        Expect("lost_rollouts", "rollouts counted and left out are those that were planned", high=0),
        Expect("unequal_groups", "candidates of a problem met the same neighbors equally often", high=0),
        Expect("wrong_ranks", "ranks follow U, ties share the best place", high=0),
        Expect("wrong_lifts", "lift is U less the utility without a candidate", high=0),
        Expect("leaked_neighbors", "no neighbor states or shares the answer that is judged", high=0),
        Expect("unflagged_leaks", "a candidate that states a neighbor's answer is flagged", high=0),
    ),
)
