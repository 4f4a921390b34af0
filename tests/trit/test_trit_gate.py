"""The gate of the reward table fails on every kind of damaged meaning."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

from pipelines.gates.suite import judge
from pipelines.gates.trit import SUITE, measures
from pipelines.trit.feedback import SCHEMA
from pipelines.trit.grpo import advantages, mixed

ENGLISH = {"a": "Tom has 3 cats and 5 dogs.", "b": "Ana has 4 cats and 2 dogs."}
FRENCH = {"a": "Tom a 3 chats et 5 chiens.", "b": "Ana a 4 chats et 2 chiens."}
ACCS = {("a", 0): 0.5, ("a", 1): 0.0, ("b", 0): 1.0, ("b", 1): None}  # None: refused by a check


def table() -> pl.DataFrame:
    """Two problems of two translations; each valid one has two responses."""
    rows = []
    for problem in ("a", "b"):
        accs = [ACCS[problem, k] for k in (0, 1)]
        rewards = [1.0 if acc else 0.0 for acc in accs]
        for k, acc in enumerate(accs):
            rows.append(row("translation", f"{problem}/fr", k, problem, f"{problem}{k}", acc, rewards))
            if acc is not None:
                told = {0.5: [1.0, 0.1], 0.0: [0.1, 0.0], 1.0: [1.0, 1.0]}[acc]
                names = [f"{problem}{k}-{g}" for g in (0, 1)]
                rows += [row("reasoning", f"{problem}{k}", g, problem, names[g], acc, told) for g in (0, 1)]
    return SCHEMA.frame(rows)


def row(
    kind: str, group: str, sample: int, problem: str, member: str, acc: float | None, rewards: list[float]
) -> dict[str, object]:
    valid = acc is not None
    return SCHEMA.row(
        kind=kind,
        group_id=group,
        sample=sample,
        group_size=2,
        member=member,
        problem_key=problem,
        language="fr",
        valid=valid,
        reason="" if valid else "copy",
        english=ENGLISH[problem],
        reference=None,
        likeness=None,
        text=FRENCH[problem] if valid else ENGLISH[problem],
        acc=acc,
        verified=2 if valid else 0,
        unverified=0,
        reward=rewards[sample],
        advantage=advantages(rewards)[sample],
        trainable=mixed(rewards) and (kind == "translation" or bool(acc)),
        parents=(member,),
        responses=(f"answer-{member}",),
    )


def change(column: str, value: object, where: pl.Expr) -> Callable[[pl.DataFrame], pl.DataFrame]:
    return lambda rows: rows.with_columns(
        pl.when(where).then(pl.lit(value)).otherwise(pl.col(column)).cast(rows.schema[column]).alias(column)
    )


def is_member(name: str) -> pl.Expr:
    return pl.col("member") == name


def swap_groups(rows: pl.DataFrame) -> pl.DataFrame:
    """Regrouped by stride: one translation of each problem changes places."""
    other = {"a1": "b/fr", "b0": "a/fr"}
    return rows.with_columns(
        pl.col("member").replace_strict(other, default=pl.col("group_id")).alias("group_id")
    )


def test_a_lawful_table_passes() -> None:
    assert judge(SUITE, table()).passed
    assert judge(SUITE, table().clear()).passed


@pytest.mark.parametrize(
    ("damage", "measure"),
    [
        (lambda rows: rows.filter(~is_member("a1")), "groups_broken"),
        (lambda rows: rows.filter(~is_member("a0-1")), "groups_broken"),
        (lambda rows: pl.concat([rows, rows.filter(is_member("b0-0"))]), "groups_broken"),
        (lambda rows: pl.concat([rows, rows.filter(is_member("b0-0"))]), "members_doubled"),
        (swap_groups, "groups_broken"),
        (change("sample", 0, is_member("a1")), "groups_broken"),
        (change("group_size", 3, pl.col("group_id") == "a/fr"), "groups_broken"),
        (change("reward", 0.5, is_member("a0-0")), "rewards_unlawful"),
        (change("reward", 0.1, is_member("a0")), "rewards_unlawful"),
        (change("reward", None, is_member("a0")), "rewards_unlawful"),
        (change("acc", 0.0, is_member("a0")), "rewards_not_deferred"),
        (change("acc", 0.25, is_member("a0-0")), "rewards_not_deferred"),
        (change("reward", 1.0, is_member("b1")), "invalid_rewarded"),
        (change("advantage", 0.0, is_member("a0")), "advantages_wrong"),
        (change("trainable", True, pl.col("group_id") == "b0"), "trainable_wrong"),
        (change("trainable", True, pl.col("group_id") == "a1"), "trainable_wrong"),
        (lambda rows: rows.with_columns(responses=pl.lit([], pl.List(pl.String))), "without_response"),
        (change("text", "Tom a 3 chats.", is_member("a0")), "numbers_lost"),
        (change("text", ENGLISH["a"], is_member("a0")), "copies"),
        (change("valid", False, is_member("a0")), "responses_orphaned"),
        (change("group_id", "nobody", pl.col("group_id") == "a0"), "responses_orphaned"),
    ],
)
def test_a_damaged_table_is_refused_for_its_damage(
    damage: Callable[[pl.DataFrame], pl.DataFrame], measure: str
) -> None:
    damaged = damage(table())
    assert measures(damaged)[measure] > 0
    verdict = judge(SUITE, damaged)
    assert not verdict.passed
    assert measure in {c["measure"] for c in verdict.checks if not c["passed"]}
    assert measures(table())[measure] == 0
