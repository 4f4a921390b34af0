"""The deferred reward of each translation, and the reward table that GRPO trains on.

Law: a work item is a group: the K translations of one problem, or the G
responses to one translation. A group is gathered by key, and is in the table
whole or not at all. All translations are in it, valid or not; responses train
only when their translation has Acc > 0 (stage 2, selection).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from pipelines.data.outcomes import Outcome
from pipelines.data.rows import Schema
from pipelines.data.tables import read_parquet
from pipelines.gates.trit import SUITE
from pipelines.step import Step
from pipelines.trit.deferred import INVALID, Rollout, Standing, standing
from pipelines.trit.grpo import Member, advantages, groups, mixed, whole
from pipelines.trit.prompting import parse_item

SCHEMA = Schema(
    "trit.feedback",
    {
        "kind": pl.String,  # translation | reasoning
        "group_id": pl.String,  # problem key and language, or row id of the translation
        "sample": pl.Int64,
        "group_size": pl.Int64,  # K or G
        "member": pl.String,  # row id of the translation or response, or of its rejection
        "problem_key": pl.String,
        "language": pl.String,
        "valid": pl.Boolean,  # passed the checks of its step
        "reason": pl.String,  # why not
        "english": pl.String,
        "reference": pl.String,  # a given translation of the problem, to look at; null where none is
        "text": pl.String,  # the translation or the response
        "acc": pl.Float64,  # Acc of the translation; null where it is invalid
        "verified": pl.Int64,  # rollouts in Acc
        "unverified": pl.Int64,
        "reward": pl.Float64,
        "advantage": pl.Float64,
        "trainable": pl.Boolean,
    },
    identity=("kind", "group_id", "sample"),
)
GATE = SUITE
TRANSLATION, REASONING = "translation", "reasoning"
LOST = (Outcome.FAILED, Outcome.OVER_BUDGET)  # no answer came: the group has a hole


@dataclass(frozen=True)
class Params:
    """Nothing to choose: K and G are those of the steps before."""


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


def run(step: Step, params: Params) -> None:
    """Gathers translations and responses by key, gives each group its rewards and advantages."""
    del params
    language = str(step.item)
    made, k = gather(step, f"trit/translate/{language}", "problem_key", "translation")
    answered, g = gather(step, f"trit/reason/{language}", "translation", "response")
    problem_of = {t.member: t.problem_key for t in made}
    sources = _sources(step, language)
    by_problem, by_translation = _by_group(made), _by_group(answered)
    step.plan(f"{TRANSLATION}:{key}" for key in by_problem)
    step.plan(f"{REASONING}:{key}" for key in by_translation)
    standings = {
        t.member: INVALID if t.reason else standing(_rollouts(by_translation.get(t.member, []))) for t in made
    }
    for key, group in by_problem.items():
        _settle_translations(step, key, group, k, standings, by_translation, sources)
    for key, group in by_translation.items():
        _settle_responses(step, key, problem_of[key], group, g, standings[key], sources)
    step.metrics = measures(made, answered, standings, g)


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
    sizes = [len(group) for group in _by_group(found).values()]
    return found, int(planned) if isinstance(planned, int) else max(sizes, default=0)


def _sources(step: Step, language: str) -> Sources:
    problems = step.read("trit/ingest", count=False).iter_rows(named=True)
    by_role: dict[str, dict[str, str]] = {"source": {}, "reference": {}}
    for row in problems:
        if row["role"] == "source" or row["language"] == language:
            by_role[row["role"]][row["problem_key"]] = row["question"]
    return Sources(by_role["source"], by_role["reference"])


def _by_group(texts: Iterable[Text]) -> dict[str, list[Text]]:
    found: dict[str, list[Text]] = {}
    for text in sorted(texts, key=lambda t: (t.group, t.sample, t.member)):
        found.setdefault(text.group, []).append(text)
    return found


def _rollouts(texts: Iterable[Text]) -> list[Rollout]:
    return [Rollout(t.group, t.sample, t.member, t.acc, t.reward) for t in texts if not t.lost]


def _settle_translations(
    step: Step,
    key: str,
    group: list[Text],
    size: int,
    standings: Mapping[str, Standing],
    by_translation: Mapping[str, list[Text]],
    sources: Sources,
) -> None:
    item, parents = f"{TRANSLATION}:{key}", [t.member for t in group]
    rewards = [standings[t.member].reward for t in group]
    if _broken(step, item, group, size, parents):
        return
    if any(r is None for r in rewards):
        detail = "no rollout of a translation could be verified"
        step.settle(item, Outcome.UNVERIFIED, "unverified_member", detail=detail, parents=parents)
        return
    known = [r for r in rewards if r is not None]
    trainable = mixed(known)
    rows = [
        _row(
            step,
            TRANSLATION,
            f"{key}/{step.item}",
            size,
            text,
            standings[text.member],
            (reward, advantage, trainable),
            sources,
            parents=(text.member, *(r.member for r in by_translation.get(text.member, []))),
        )
        for text, reward, advantage in zip(group, known, advantages(known), strict=True)
    ]
    step.accept(item, *rows, note="" if trainable else "equal_rewards")


def _settle_responses(
    step: Step, key: str, problem_key: str, group: list[Text], size: int, stands: Standing, sources: Sources
) -> None:
    item, parents = f"{REASONING}:{key}", (key, *(t.member for t in group))
    if _broken(step, item, group, size, parents):
        return
    if not all(t.verdict for t in group):
        step.settle(item, Outcome.UNVERIFIED, "unverified_member", parents=parents)
        return
    rewards = [t.reward or 0.0 for t in group]
    solved = bool(stands.acc)
    trainable = solved and mixed(rewards)
    rows = [
        _row(
            step,
            REASONING,
            key,
            size,
            text,
            stands,
            (reward, advantage, trainable),
            sources,
            parents=(key, text.member),
            problem_key=problem_key,
        )
        for text, reward, advantage in zip(group, rewards, advantages(rewards), strict=True)
    ]
    step.accept(item, *rows, note="" if trainable else "equal_rewards" if solved else "acc_zero")


def _broken(step: Step, item: str, group: list[Text], size: int, parents: Iterable[str]) -> bool:
    """Sets a group aside that is not whole."""
    if whole((t.sample for t in group), size) and not any(t.lost for t in group):
        return False
    there = sorted(t.sample for t in group if not t.lost)
    step.reject(item, "incomplete_group", detail=f"samples {there}, expected {size}", parents=parents)
    return True


def _row(
    step: Step,
    kind: str,
    group_id: str,
    size: int,
    text: Text,
    stands: Standing,
    earned: tuple[float, float, bool],
    sources: Sources,
    *,
    parents: Iterable[str],
    problem_key: str = "",
) -> dict[str, Any]:
    key = problem_key or text.problem_key
    return SCHEMA.row(
        kind=kind,
        group_id=group_id,
        sample=text.sample,
        group_size=size,
        member=text.member,
        problem_key=key,
        language=step.item,
        valid=not text.reason,
        reason=text.reason,
        english=sources.english.get(key, ""),
        reference=sources.reference.get(key),
        text=text.text,
        acc=stands.acc,
        verified=stands.verified,
        unverified=stands.unverified,
        reward=earned[0],
        advantage=earned[1],
        trainable=earned[2],
        parents=parents,
        responses=text.responses,
    )


def measures(
    made: list[Text], answered: list[Text], standings: Mapping[str, Standing], g: int
) -> dict[str, Any]:
    """What the loop gave: of translations the share that was solved, of rollouts the share that was saved."""
    valid = [standings[t.member] for t in made if not t.reason]
    accs = [s.acc for s in valid if s.acc is not None]
    members = [Member(t.group, t.sample, standings[t.member].reward or 0.0) for t in made]
    return {
        "translations": len(made),
        "translations_valid": len(valid),
        "translations_rewarded": sum(s.reward == 1.0 for s in standings.values()),
        "translation_groups_mixed": sum(mixed([m.reward for m in grp]) for grp in groups(members).values()),
        "acc_zero": sum(a == 0 for a in accs),
        "acc_between": sum(0 < a < 1 for a in accs),
        "acc_one": sum(a == 1 for a in accs),
        "acc_mean": round(sum(accs) / len(accs), 6) if accs else None,
        "rollouts": len(answered),
        "rollouts_saved_by_checks": (len(made) - len(valid)) * g,
        "rollouts_unverified": sum(s.unverified for s in standings.values()),
    }
