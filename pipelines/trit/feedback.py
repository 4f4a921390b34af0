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
from pipelines.errors import StageError
from pipelines.gates.trit import SUITE
from pipelines.step import Step
from pipelines.trit.deferred import INVALID, Rollout, Standing, likeness, standing
from pipelines.trit.gathering import Sources, Text, by_group, gather, measures, sources_of
from pipelines.trit.grpo import advantages, mixed, whole

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
        "likeness": pl.Float64,  # of a translation to the reference, 0 to 1; it enters no reward
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


@dataclass(frozen=True)
class Params:
    """Nothing to choose: K and G are those of the steps before."""


def run(step: Step, params: Params) -> None:
    """Gathers translations and responses by key, gives each group its rewards and advantages."""
    del params
    language = str(step.item)
    made, k = gather(step, f"trit/translate/{language}", "problem_key", "translation")
    answered, g = gather(step, f"trit/reason/{language}", "translation", "response")
    problem_of = {t.member: t.problem_key for t in made}
    strangers = sorted({t.group for t in answered} - problem_of.keys())
    if strangers:
        raise StageError(
            f"{len(strangers)} translations were answered that are not there, first {strangers[0]!r}",
            where=step.name,
            cure="run trit.translate and trit.reason again",
        )
    sources = sources_of(step, language)
    by_problem, by_translation = by_group(made), by_group(answered)
    step.plan(f"{TRANSLATION}:{key}" for key in by_problem)
    step.plan(f"{REASONING}:{key}" for key in by_translation)
    standings = {
        t.member: INVALID if t.reason else standing(_rollouts(by_translation.get(t.member, []))) for t in made
    }
    for key, group in by_problem.items():
        _settle_translations(step, key, group, k, standings, by_translation, sources)
    for key, group in by_translation.items():
        _settle_responses(step, key, problem_of[key], group, g, standings[key], sources)
    step.metrics = measures(made, answered, standings, g, sources)


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
        likeness=likeness(text.text, sources.reference.get(key)) if kind == TRANSLATION else None,
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
