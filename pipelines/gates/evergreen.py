"""The gate of the evergreen engine, on the histories of `evergreen.refresh`.

Law: what a training set or a reader of answers would be hurt by, silently, is
counted here: leaks between splits, contradicting labels, histories that are no
histories.
"""

from __future__ import annotations

import polars as pl

from pipelines.gates.suite import Expect, Suite

_ROW = ("question_id", "language")


def measures(rows: pl.DataFrame) -> dict[str, float]:
    """Counts of what must not be, and two shares. `rows`: an artifact of evergreen.refresh (HISTORY)."""
    return {"rows": len(rows), **_splits(rows), **_labels(rows), **_histories(rows), **_parts(rows)}


def _splits(rows: pl.DataFrame) -> dict[str, float]:
    test = rows.filter(split="test").select("language", "question_key").unique()
    outside = rows.filter(pl.col("split") != "test").join(test, on=["language", "question_key"], how="semi")
    per_question = rows.group_by("question_id").agg(pl.col("split").n_unique())
    return {
        "questions_in_two_splits": len(per_question.filter(pl.col("split") > 1)),
        "unmarked_leaks": len(outside.filter(~pl.col("leaks_into_test"))),
    }


def _labels(rows: pl.DataFrame) -> dict[str, float]:
    known = rows.filter(pl.col("label") != "unknown")  # a question set may have no labels: no conflict either
    per_wording = known.group_by("language", "question_key").agg(pl.col("label").n_unique())
    train = rows.filter(split="train").unique("question_id")
    evergreen = len(train.filter(label="evergreen"))
    return {
        "label_conflicts": len(per_wording.filter(pl.col("label") > 1)),
        "labels_against_rates": len(
            rows.filter((pl.col("label") == "evergreen") != (pl.col("change_rate") == "never"))
        ),
        # Without a train split there is nothing to be skewed.
        "rarer_label_in_train": min(evergreen, len(train) - evergreen) / len(train) if len(train) else 0.5,
    }


def _histories(rows: pl.DataFrame) -> dict[str, float]:
    ordered = rows.sort(*_ROW, "version").with_columns(
        pl.col("valid_from", "answer").shift(-1).over(_ROW).name.prefix("next_"),
        last=pl.col("version") == pl.col("version").max().over(_ROW),
    )
    inner = ordered.filter(~pl.col("last"))
    ends_late = pl.col("valid_to").is_null() | (pl.col("valid_to") > pl.col("next_valid_from"))
    versions = rows.group_by(_ROW).agg(
        open=pl.col("valid_to").is_null().sum(),
        answers=pl.len(),
        review=pl.col("review").all() | pl.col("cleared").is_not_null().all(),
        can_change=pl.col("can_change").first(),
    )
    return {
        "overlaps": len(inner.filter(ends_late)),
        "gaps": len(
            inner.filter(
                pl.col("next_valid_from").is_null() | (pl.col("valid_to") < pl.col("next_valid_from"))
            )
        ),
        "backward_intervals": len(rows.filter(pl.col("valid_to") <= pl.col("valid_from"))),
        "without_one_current_answer": len(versions.filter(pl.col("open") != 1)),
        "changes_to_the_same": len(inner.filter(pl.col("answer").eq_missing(pl.col("next_answer")))),
        "unflagged_changes": len(
            versions.filter((pl.col("answers") > 1) & ~pl.col("can_change") & ~pl.col("review"))
        ),
    }


def _parts(rows: pl.DataFrame) -> dict[str, float]:
    p = pl.col("p_evergreen")
    highest = rows.filter(part="mutable").select(p.max()).item()
    crossed = 0 if highest is None else len(rows.filter((pl.col("part") == "evergreen") & (p <= highest)))
    current = rows.filter(pl.col("valid_to").is_null(), pl.col("label") != "unknown")
    agree = len(current.filter(pl.col("part") == pl.col("label")))
    return {
        "impossible_probabilities": len(rows.filter(p.is_null() | p.is_nan() | ~p.is_between(0, 1))),
        "parts_crossed": crossed,
        # Without a label there is nothing to agree with.
        "part_is_label": agree / len(current) if len(current) else 0.5,
    }


SUITE = Suite(
    "evergreen",
    measures,
    (
        Expect("rows", "there are questions", low=1),
        Expect("questions_in_two_splits", "a question is in one split only", high=0),
        Expect("unmarked_leaks", "a question outside test that equals a test question is marked", high=0),
        Expect("label_conflicts", "equal questions have one label", high=0),
        Expect("labels_against_rates", "evergreen questions never change and mutable ones do", high=0),
        Expect("rarer_label_in_train", "both labels are in train, neither under 2 in 100", low=0.02),
        Expect("overlaps", "no two answers hold at once", high=0),
        Expect("gaps", "an answer holds until the next one does", high=0),
        Expect("backward_intervals", "an interval ends after it begins", high=0),
        Expect("without_one_current_answer", "each question has exactly one current answer", high=0),
        Expect("changes_to_the_same", "a new version has a new answer", high=0),
        Expect("unflagged_changes", "an evergreen question that changed is up for review", high=0),
        Expect("impossible_probabilities", "P(evergreen) is in [0, 1]", high=0),
        Expect("parts_crossed", "the parts are divided by one threshold", high=0),
        Expect("part_is_label", "the model agrees with the labels more often than a coin", low=0.5),
    ),
)
