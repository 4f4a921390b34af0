"""The question schema: one row a question and language, and the words of its labels.

Law: label polarity is pinned here and nowhere else: 1, true, never and static
are evergreen. The wordings of one question share a `question_id`, a hash of
what its source says, so that a split or a decision on it holds in every
language.

A question set without labels (NQ-open, SQuAD, HotpotQA) is read to be classified
and filtered. Its rows have label UNKNOWN, change_rate UNKNOWN, label_origin
NO_ORIGIN and split POOL. An UNKNOWN label conflicts with none and agrees with none;
`labelled(frame)` leaves such rows out. POOL is in no split: nothing is trained or
scored on it. Labelled sets of others (FreshQA, CRAG) stand in POOL, too, with
their labels: told apart by `source`, they are there to be evaluated beside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from pipelines.data.rows import Schema

EVERGREEN, MUTABLE = "evergreen", "mutable"
NEVER, SLOW, FAST, UNKNOWN = "never", "slow", "fast", "unknown"
TRAIN, DEV, TEST = "train", "dev", "test"
POOL = "pool"  # read to be classified and filtered, in none of the three splits
SPLITS = (TRAIN, DEV, TEST, POOL)
NO_ORIGIN = "none"  # of an UNKNOWN label
TRUSTED_ORIGINS = ("gold", "human", "agreement")  # labels that a model's opinion does not outrank

QUESTION: dict[str, Any] = {
    "question_id": pl.String,
    "language": pl.String,  # ISO 639-1
    "question": pl.String,
    "answer": pl.String,  # null where the source has none
    "aliases": pl.List(pl.String),
    "label": pl.String,  # evergreen | mutable | unknown
    "change_rate": pl.String,  # never | slow | fast | unknown
    "source": pl.String,  # real | synth, the name of the set (nq_open), or as the file says
    "split": pl.String,  # train | dev | test | pool
    "label_origin": pl.String,  # gold | human | agreement | model | none
    "as_of": pl.Date,  # when the answer was seen to hold; null where unknown
}

CURATED: dict[str, Any] = {
    **QUESTION,
    "question_key": pl.String,  # pipelines.data.duplicates.question_key
    "leaks_into_test": pl.Boolean,  # a train or dev question that equals a test question in any language
    "leaks_into_dev": pl.Boolean,  # a train question that equals a dev question in any language
}

CLASSIFIED: dict[str, Any] = {**CURATED, "p_evergreen": pl.Float64}

FILTERED: dict[str, Any] = {**CLASSIFIED, "part": pl.String}  # evergreen | mutable, by p_evergreen

# A row an answer and the time it held: a type-2 history of each row of the filter.
HISTORY: dict[str, Any] = {
    **{c: t for c, t in FILTERED.items() if c != "as_of"},
    "can_change": pl.Boolean,  # by a label that people gave, else by `part`
    "version": pl.Int64,  # 0 for the oldest answer known
    "valid_from": pl.Date,  # null: held before anybody noted a date
    "valid_to": pl.Date,  # null: holds now; else the day on which the next answer was seen
    "as_of": pl.Date,  # last day on which this answer was seen to hold
    "refresh_after": pl.Date,  # null for answers that hold no more, and for evergreen rows
    "seen": pl.Int64,  # different days on which this answer was found
    "evidence": pl.String,  # file and line of the observation that opened the interval; null: the source
    "review": pl.Boolean,  # an evergreen question whose answer was seen to change
    "cleared": pl.Date,  # when a person called such a question evergreen all the same; null otherwise
}

LABELS = {
    **dict.fromkeys(("1", "1.0", "true", "yes", "evergreen", "immutable", "static"), (EVERGREEN, NEVER)),
    **dict.fromkeys(("never", "never-changing"), (EVERGREEN, NEVER)),
    **dict.fromkeys(("0", "0.0", "false", "no", "mutable"), (MUTABLE, UNKNOWN)),
    **dict.fromkeys(("slow", "slow-changing"), (MUTABLE, SLOW)),
    **dict.fromkeys(("fast", "fast-changing", "real-time"), (MUTABLE, FAST)),
    UNKNOWN: (UNKNOWN, UNKNOWN),
}

LANGUAGES = {
    "ar": "arabic",
    "cs": "czech",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "es": "spanish",
    "fa": "persian",
    "fi": "finnish",
    "fr": "french",
    "he": "hebrew",
    "hi": "hindi",
    "id": "indonesian",
    "it": "italian",
    "ja": "japanese",
    "ko": "korean",
    "nl": "dutch",
    "no": "norwegian",
    "pl": "polish",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sv": "swedish",
    "th": "thai",
    "tr": "turkish",
    "uk": "ukrainian",
    "vi": "vietnamese",
    "zh": "chinese",
}
_BY_NAME = {name: code for code, name in LANGUAGES.items()}


@dataclass(frozen=True)
class Label:
    """A label as this project says it.

    `value` evergreen | mutable | unknown, `rate` never | slow | fast | unknown.
    """

    value: str
    rate: str


def parse_label(value: object) -> Label | None:
    """A label in any known spelling (1/0, yes/no, slow-changing, real-time, ...); None for other words."""
    if isinstance(value, bool):
        value = int(value)
    if not isinstance(value, str | int | float):
        return None
    try:
        word = str(value).strip().casefold()
    except ValueError:  # an integer of more digits than Python prints
        return None
    found = LABELS.get("-".join(word.replace("_", " ").replace("-", " ").split()))
    return None if found is None else Label(*found)


def language_code(column: str) -> str | None:
    """ISO code of a column named by a language ("English", "fr"); None when it is none."""
    word = column.strip().casefold()
    return word if word in LANGUAGES else _BY_NAME.get(word)


def questions(artifact: str, columns: dict[str, Any]) -> Schema:
    """The schema of an artifact with one row a question and language."""
    return Schema(artifact, columns, ("question_id", "language"))


def labelled(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows whose label is known."""
    return rows.filter(pl.col("label") != UNKNOWN)
