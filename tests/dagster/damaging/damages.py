"""Damages to the meaning of each engine's last artifact: every row still fits its schema.

Law: a damage changes what the rows say and nothing else, after the step made
them and before its gate judges them.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

Rows = list[dict[str, Any]]
LETTERS = ("A", "B", "C", "D")


@dataclass(frozen=True)
class Damage:
    """`measure` is the number of the suite that must tell of it."""

    measure: str
    to: Callable[[Rows], Rows]


def damage_the_stage(stage: str, name: str) -> None:
    """From now on in this process: the rows of `stage` are damaged just before they are judged."""
    from pipelines.step import Step

    damage, finish = DAMAGES[stage][name], Step.finish

    def damaged_finish(step: Step, *args: Any, **kwargs: Any) -> None:
        step._rows = [*damage.to(deepcopy([dict(r) for r in step._rows]))]
        finish(step, *args, **kwargs)

    Step.finish = damaged_finish  # type: ignore[assignment, method-assign]


# -- evergreen.refresh --------------------------------------------------------------------------


def wording_moved_to_train(rows: Rows) -> Rows:
    """One wording of a question that is asked in several languages leaves test for train."""
    tested = [r for r in rows if r["split"] == "test"]
    one = next(r for r in tested if sum(o["question_id"] == r["question_id"] for o in tested) > 1)
    one["split"] = "train"
    return rows


def label_that_contradicts(rows: Rows) -> Rows:
    """A question gets the wording of one with the other label."""
    never = next(r for r in rows if r["label"] == "evergreen")
    other = next(r for r in rows if r["label"] == "mutable" and r["language"] == never["language"])
    other["question_key"] = never["question_key"]
    return rows


def answer_that_ended_without_another(rows: Rows) -> Rows:
    one = next(r for r in rows if r["valid_from"] is not None and r["valid_to"] is None)
    one["valid_to"] = one["valid_from"].replace(year=one["valid_from"].year + 1)
    return rows


# -- egoavu.questions ---------------------------------------------------------------------------


def right_answers_at_one_place(rows: Rows) -> Rows:
    """Every right option is moved to C with its text: no single question is wrong."""
    for row in (r for r in rows if r["task"] == "TR"):
        at = LETTERS.index(row["answer"])
        for column in ("options", "option_nodes", "option_events"):
            row[column][at], row[column][2] = row[column][2], row[column][at]
        row["answer"] = "C"
    return rows


def answer_without_evidence(rows: Rows) -> Rows:
    rows[0]["evidence"] = []
    return rows


def video_in_both_splits(rows: Rows) -> Rows:
    next(r for r in rows if r["split"] == "bench" and r["task"] == "SSA")["split"] = "train"
    return rows


# -- trit.feedback ------------------------------------------------------------------------------


def group_without_a_member(rows: Rows) -> Rows:
    rows.remove(next(r for r in rows if r["kind"] == "reasoning" and r["group_size"] > 1))
    return rows


def reward_that_no_rollout_earned(rows: Rows) -> Rows:
    next(r for r in rows if r["kind"] == "translation" and r["valid"] and r["acc"] == 0)["reward"] = 1.0
    return rows


def translation_that_is_the_english(rows: Rows) -> Rows:
    one = next(r for r in rows if r["kind"] == "translation" and r["valid"])
    one["text"] = one["english"]
    return rows


# -- cbu.score ----------------------------------------------------------------------------------


def neighbor_that_gives_the_answer_away(rows: Rows) -> Rows:
    one = rows[0]
    one["neighbor_questions"][0] += f" (It is {one['answer']}.)"
    return rows


def group_of_unequal_neighbors(rows: Rows) -> Rows:
    """One candidate of several was tried on one neighbor less."""
    problems = [r["problem"] for r in rows]
    one = next(r for r in rows if problems.count(r["problem"]) > 1 and len(r["neighbors"]) > 1)
    for column in ("neighbors", "neighbor_questions", "neighbor_answers"):
        one[column].pop()
    for column in ("values", "planned", "excluded", "leaks"):
        one[column].pop()
    return rows


def utility_without_its_rollouts(rows: Rows) -> Rows:
    rows[0]["values"][0].pop()
    return rows


DAMAGES: dict[str, dict[str, Damage]] = {
    "evergreen.refresh": {
        "a test question in train": Damage("questions_in_two_splits", wording_moved_to_train),
        "a label that contradicts another": Damage("label_conflicts", label_that_contradicts),
        "a history that breaks off": Damage("without_one_current_answer", answer_that_ended_without_another),
    },
    "egoavu.questions": {
        "right answers at one place": Damage("letter_skew", right_answers_at_one_place),
        "an answer without evidence": Damage("rows_without_evidence", answer_without_evidence),
        "a video in both splits": Damage("videos_in_both_splits", video_in_both_splits),
    },
    "trit.feedback@fr": {
        "a group without a member": Damage("groups_broken", group_without_a_member),
        "a reward that no rollout earned": Damage("rewards_not_deferred", reward_that_no_rollout_earned),
        "a translation that is the English": Damage("copies", translation_that_is_the_english),
    },
    "cbu.score": {
        "a neighbor that gives the answer away": Damage(
            "leaked_neighbors", neighbor_that_gives_the_answer_away
        ),
        "a group of unequal neighbors": Damage("unequal_groups", group_of_unequal_neighbors),
        "a utility without its rollouts": Damage("lost_rollouts", utility_without_its_rollouts),
    },
}
