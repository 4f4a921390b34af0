"""What must hold of the evergreen artifacts: no leak, no conflict, balance, fresh answers, calibration.

Law: each is counted again from the rows; flags and figures of the stages are only held against it. A
value that is not there speaks for nothing: no mark is none, no label is one that differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import polars as pl

from assets.expected import Expectation, Finding, Seen
from pipelines.data.duplicates import question_key
from pipelines.evergreen.bounds import Bounds
from pipelines.evergreen.schema import EVERGREEN, MUTABLE, TEST, TRAIN, UNKNOWN

BINS = 10
EARLIEST = timedelta(days=1)  # before UTC, at most, a day begins somewhere
CURATED, TRAINED, SCORED, HISTORY = (
    *("evergreen/curate", "training/evergreen"),
    *("evaluation/evergreen", "evergreen/refresh"),
)


def keyed(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with their question keys made anew; those without words are left out."""
    keys = pl.Series("key", [question_key(q) for q in rows["question"]], pl.String)
    return rows.with_columns(keys).filter(pl.col("key") != "")


def leaking(rows: pl.DataFrame) -> pl.DataFrame:
    """Train rows that stand beside a test row: question id, language, question, test question.

    A question equals a test question when it does in any language; then all its wordings leak.
    """
    made = keyed(rows)
    test = made.filter(pl.col("split") == TEST).select(
        *("language", "key"),
        pl.col("question_id").alias("test_id"),
        pl.col("question").alias("test_question"),
    )
    train = made.filter(pl.col("split") == TRAIN)
    equal = train.join(test, on=["language", "key"]).sort("question_id", "language", "test_id")
    twins = equal.group_by("question_id", maintain_order=True).first().select("question_id", "test_question")
    return train.join(twins, on="question_id").sort("question_id", "language")


def no_leak(seen: Seen) -> Finding:
    """Curated train questions that equal a test question all say so."""
    found = leaking(seen.rows(CURATED))
    unmarked = found.filter(~pl.col("leaks_into_test").fill_null(False))
    questions = unmarked["question_id"].n_unique()
    return Finding(
        unmarked.is_empty(),
        f"{questions} train questions equal a test question and are not marked"
        if questions
        else "no train question equals a test question in any language, but those marked to be left out",
        {"marked questions": found.filter("leaks_into_test")["question_id"].n_unique()},
        _shown(unmarked, "language", "question", "test_question"),
    )


def no_leak_in_training(seen: Seen) -> Finding:
    """No question that the model was trained on equals a test question."""
    curated = seen.rows(CURATED)
    left_out = seen.rows(TRAINED, "rejected.parquet").explode("parents")["parents"].drop_nulls()
    gone = curated.filter(pl.col("row_id").is_in(left_out.implode()))["question_id"].unique()
    used = leaking(curated).filter(~pl.col("question_id").is_in(gone.implode()))
    questions = used["question_id"].n_unique()
    return Finding(
        used.is_empty(),
        f"{questions} questions trained on equal a test question"
        if questions
        else "no question trained on equals a test question in any language",
        {"questions left out": len(gone)},
        _shown(used, "language", "question", "test_question"),
    )


def no_conflict(seen: Seen) -> Finding:
    """No two rows of one wording, and no two of one question, have opposite labels."""
    rows = keyed(seen.rows(CURATED)).filter(pl.col("label").ne_missing(UNKNOWN))
    wrong = []
    for what in (["language", "key"], ["question_id"]):
        groups = rows.group_by(what).agg(
            pl.col("label").n_unique().alias("labels"),
            pl.col("question").min(),
            pl.col("split").unique().sort(),
        )
        bad = groups.filter(pl.col("labels") > 1).sort("question")
        wrong += [{"question": r["question"], "splits": r["split"]} for r in bad.iter_rows(named=True)]
    words = f"{len(wrong)} times one question has two labels" if wrong else "every question has one label"
    return Finding(not wrong, words, {"questions": rows["question_id"].n_unique()}, wrong)


def class_balance(seen: Seen) -> Finding:
    """The share of evergreen among the train questions that leak nowhere lies within the bounds."""
    bounds: Bounds = seen.bounds
    rows = seen.rows(CURATED).filter(
        (pl.col("split") == TRAIN)
        & ~pl.col("leaks_into_test").fill_null(False)
        & pl.col("label").is_in([EVERGREEN, MUTABLE])
    )
    questions = rows.unique("question_id")
    if questions.is_empty():
        return Finding(False, "no labelled train question is left")
    share = questions.filter(pl.col("label") == EVERGREEN).height / questions.height
    return Finding(
        bounds.least_evergreen <= share <= bounds.most_evergreen,
        f"{share:.1%} of {questions.height} train questions are evergreen,"
        f" {bounds.least_evergreen:.0%} to {bounds.most_evergreen:.0%} is asked for",
        {"share of evergreen": round(share, 4), "questions": questions.height},
    )


def fresh_answers(seen: Seen) -> Finding:
    """Few answers that can change are past the day on which they are to be asked again.

    One that was seen on a day to come is of no known age, so it counts among them.
    """
    bounds: Bounds = seen.bounds
    held = seen.rows(HISTORY).filter(
        pl.col("valid_to").is_null() & pl.col("can_change") & pl.col("answer").is_not_null()
    )
    to_come = pl.col("as_of").fill_null(seen.day) > seen.day + EARLIEST
    late = held.filter(pl.col("refresh_after").is_null() | (pl.col("refresh_after") < seen.day) | to_come)
    share = late.height / held.height if held.height else 0.0
    ahead = held.filter(to_come).height
    wrong = f"; {ahead} of them bear a day that is still to come" if ahead else ""
    return Finding(
        share <= bounds.most_overdue,
        f"{late.height} of {held.height} answers that can change are overdue on {seen.day} ({share:.1%},"
        f" at most {bounds.most_overdue:.0%}); `headrace refresh` asks for them{wrong}",
        {"overdue": late.height, "answers": held.height, "share overdue": round(share, 4)},
        _shown(late.sort("refresh_after", "question"), "question", "answer", "as_of", "refresh_after"),
    )


def calibrated(seen: Seen) -> Finding:
    """The classifier's ECE on test, counted again from the rows, lies within its bound."""
    from pipelines.evaluation.metrics import bins, calibration_error

    bounds: Bounds = seen.bounds
    rows = seen.rows(SCORED)
    p = rows["p_evergreen"]
    if rows.is_empty() or p.null_count() or not p.is_between(0.0, 1.0).all():
        return Finding(False, "not every test row has a P(evergreen) in [0, 1]", {"rows": rows.height})
    if not rows["label"].is_in([EVERGREEN, MUTABLE]).fill_null(False).all():
        return Finding(False, "not every test row is labelled evergreen or mutable", {"rows": rows.height})
    ece = calibration_error(bins((rows["label"] == EVERGREEN).to_numpy(), p.to_numpy(), BINS))
    return Finding(
        ece <= bounds.most_ece,
        f"ECE {ece:.4f} on {rows.height} test rows, at most {bounds.most_ece:g}",
        {"ece": round(ece, 4), "rows": rows.height},
    )


def _shown(rows: pl.DataFrame, *columns: str) -> Sequence[dict[str, Any]]:
    return rows.select(columns).head(20).to_dicts()


NO_LEAK = Expectation(
    "no_leak", "No train question equals a test question in any language, unless marked so.", no_leak
)
NO_LEAK_IN_TRAINING = Expectation(
    "no_leak", "No question that the model was trained on equals a test question.", no_leak_in_training
)
NO_CONFLICT = Expectation("no_conflict", "No question has two labels, in one split or in two.", no_conflict)
CLASS_BALANCE = Expectation(
    "class_balance",
    "The share of evergreen train questions lies within checks.evergreen of params.yaml.",
    class_balance,
    serious=False,
)
FRESH_ANSWERS = Expectation(
    "fresh_answers",
    "Few answers that can change are past the day on which they are to be asked again.",
    fresh_answers,
    serious=False,
)
CALIBRATED = Expectation(
    "calibrated", "The expected calibration error on test lies within its bound.", calibrated, serious=False
)
