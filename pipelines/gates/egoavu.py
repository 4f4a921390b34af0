"""Gate of `egoavu.questions`: balanced, grounded in the video, and split by video.

Law: bounds are the balance that a number of rows allows, so that a small set passes
when it is as even as it can be, and a large one may be no more skewed than a small one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from pipelines.data.rows import digest
from pipelines.gates.suite import Expect, Suite

LETTERS = ("A", "B", "C", "D")


def event_key(video_id: str, modality: str, text: str) -> str:
    """Names an event of a video by what happens there, in the words of an option.

    A graph node carries the key of its event; an option whose words and video do not give the key of
    its node is no event of that video.
    """
    return digest("event", video_id, modality, text)[:12]


def measures(rows: pl.DataFrame) -> Mapping[str, float]:
    """Counts over the rows of `egoavu.questions`."""
    choice, yes_no = rows.filter(pl.col("task") == "TR"), rows.filter(pl.col("task") == "AVH")
    repeated = foreign = undecided = 0
    for row in choice.iter_rows(named=True):
        options = [o.strip().casefold() for o in row["options"]]
        repeated += len(set(options)) < len(options)
        undecided += len(options) != len(LETTERS) or row["answer"] not in LETTERS
        keys = [event_key(row["video_id"], row["modality"], o) for o in row["options"]]
        foreign += keys != row["option_events"]
    return {
        "rows": len(rows),
        "letter_skew": _skew(choice, LETTERS),
        "yes_no_skew": _skew(yes_no, ("yes", "no")),
        "rows_without_evidence": rows.filter(
            (pl.col("evidence").list.len().fill_null(0) == 0)
            | pl.col("evidence").list.eval(pl.element().fill_null("") == "").list.any()
        ).height,
        "rows_without_answer": rows.filter(pl.col("answer").str.strip_chars().fill_null("") == "").height,
        "undecided_choices": undecided,
        "repeated_options": repeated,
        "options_not_in_video": foreign,
        "videos_in_both_splits": _in_both(rows, "video_id"),
        "wearers_in_both_splits": _in_both(rows.filter(pl.col("wearer") != ""), "wearer"),
        "unknown_splits": rows.filter(~pl.col("split").is_in(["train", "bench"])).height,
    }


def _skew(rows: pl.DataFrame, answers: tuple[str, ...]) -> float:
    """Largest difference of two answers' counts beyond what the number of rows forces.

    Over all rows, in each split, and in each split and modality. An answer that is none of the known
    ones leaves the others skewed or counts as a skew of its own.
    """
    worst = float(rows.filter(~pl.col("answer").is_in(list(answers))).height)
    for part in _parts(rows):
        counts = [part.filter(pl.col("answer") == a).height for a in answers]
        forced = 1 if sum(counts) % len(answers) else 0
        worst = max(worst, max(counts) - min(counts) - forced)
    return worst


def _parts(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    yield rows
    for columns in (["split"], ["split", "modality"]):
        yield from rows.partition_by(columns, maintain_order=True) if len(rows) else ()


def _in_both(rows: pl.DataFrame, key: str) -> int:
    return rows.group_by(key).agg(pl.col("split").n_unique()).filter(pl.col("split") > 1).height


QUESTIONS = Suite(
    name="egoavu.questions",
    measures=measures,
    expectations=(
        Expect("rows", "at least one question is asked", low=1),
        Expect("letter_skew", "each letter is right for a quarter of the questions, to within one", high=0),
        Expect("yes_no_skew", "half of the yes-or-no answers are yes", high=0),
        Expect("rows_without_evidence", "every answer rests on nodes of the graph", high=0),
        Expect("rows_without_answer", "every question has an answer", high=0),
        Expect("undecided_choices", "a choice has four options and a letter for its answer", high=0),
        Expect("repeated_options", "no wrong option equals the right one or another", high=0),
        Expect("options_not_in_video", "every option happens in the video that is asked about", high=0),
        Expect("videos_in_both_splits", "no video is in train and in bench", high=0),
        Expect("wearers_in_both_splits", "no wearer is in train and in bench", high=0),
        Expect("unknown_splits", "each row is in train or in bench", high=0),
    ),
)
