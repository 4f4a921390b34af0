"""What the steps before made, gathered by group key: accepted and rejected samples alike.

Law: a sample belongs to the group whose key it carries. Whatever became of it,
it is here once, so that a group can be seen to be whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.data.outcomes import Outcome
from pipelines.data.tables import read_parquet
from pipelines.step import Step
from pipelines.trit.deferred import Standing, likeness
from pipelines.trit.grpo import Member, groups, mixed
from pipelines.trit.prompting import parse_item

LOST = (Outcome.FAILED, Outcome.OVER_BUDGET)  # no answer came: the group has a hole
UNLIKE = 0.75  # below: the translation says something else, or says it in quite another way


@dataclass(frozen=True)
class Text:
    """One translation or response, accepted or not. `acc` and `reward` are those of a response."""

    group: str
    sample: int
    member: str
    problem_key: str
    text: str
    reason: str = ""
    lost: bool = False
    verdict: bool = True  # False: the comparison could not decide
    acc: int | None = None
    reward: float | None = None
    responses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sources:
    """English wording and reference of each problem."""

    english: Mapping[str, str]
    reference: Mapping[str, str]


def gather(step: Step, artifact: str, group: str, text: str) -> tuple[list[Text], int]:
    """All samples of a step, accepted and rejected, and the group size that the step planned."""
    rows = step.read(artifact)
    rejected = read_parquet(step.root / "data" / artifact / "rejected.parquet", artifact)
    step.rows_in += len(rejected)
    found = [
        Text(
            group=row[group],
            sample=row["sample"],
            member=row["row_id"],
            problem_key=row["problem_key"],
            text=row[text],
            acc=row.get("r_acc"),
            reward=row.get("reward"),
            responses=tuple(row["responses"]),
        )
        for row in rows.iter_rows(named=True)
    ]
    for row in rejected.iter_rows(named=True):
        key, sample = parse_item(row["item"])
        undecided = row["outcome"] == Outcome.UNVERIFIED
        found.append(
            Text(
                group=key,
                sample=sample,
                member=row["row_id"],
                problem_key=key,
                text=row["raw"].strip(),
                reason=row["reason"],
                lost=row["outcome"] in LOST,
                verdict=not undecided,
                acc=None if undecided else 0,
                reward=None if undecided else 0.0,
                responses=tuple(row["responses"]),
            )
        )
    planned = rows["group_size"].max() if len(rows) else None
    sizes = [len(group) for group in by_group(found).values()]
    return found, int(planned) if isinstance(planned, int) else max(sizes, default=0)


def sources_of(step: Step, language: str) -> Sources:
    problems = step.read("trit/ingest", count=False).iter_rows(named=True)
    by_role: dict[str, dict[str, str]] = {"source": {}, "reference": {}}
    for row in problems:
        if row["role"] == "source" or row["language"] == language:
            by_role[row["role"]][row["problem_key"]] = row["question"]
    return Sources(by_role["source"], by_role["reference"])


def by_group(texts: Iterable[Text]) -> dict[str, list[Text]]:
    found: dict[str, list[Text]] = {}
    for text in sorted(texts, key=lambda t: (t.group, t.sample, t.member)):
        found.setdefault(text.group, []).append(text)
    return found


def measures(
    made: list[Text], answered: list[Text], standings: Mapping[str, Standing], g: int, sources: Sources
) -> dict[str, Any]:
    """What the loop gave: of translations the share that was solved, of rollouts the share that was saved."""
    valid = [standings[t.member] for t in made if not t.reason]
    accs = [s.acc for s in valid if s.acc is not None]
    members = [Member(t.group, t.sample, standings[t.member].reward or 0.0) for t in made]
    rewarded = [t for t in made if standings[t.member].reward == 1.0]
    alike = [likeness(t.text, sources.reference.get(t.problem_key)) for t in rewarded]
    return {
        "translations": len(made),
        "translations_valid": len(valid),
        "translations_rewarded": len(rewarded),
        "rewarded_unlike_reference": sum(a is not None and a < UNLIKE for a in alike),
        "translation_groups_mixed": sum(mixed([m.reward for m in grp]) for grp in groups(members).values()),
        "acc_zero": sum(a == 0 for a in accs),
        "acc_between": sum(0 < a < 1 for a in accs),
        "acc_one": sum(a == 1 for a in accs),
        "acc_mean": round(sum(accs) / len(accs), 6) if accs else None,
        "rollouts": len(answered),
        "rollouts_saved_by_checks": (len(made) - len(valid)) * g,
        "rollouts_unverified": sum(s.unverified for s in standings.values()),
    }
