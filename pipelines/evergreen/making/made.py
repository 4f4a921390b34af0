"""Columns of the questions that this project makes, as they pass from step to step.

Law: a row made by a template and a row made by a model have the same columns, and `source` says which it
is. A step that asks writes the hash of its prompt beside the row; what earlier steps asked is found
through `parents`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from pipelines.evergreen.schema import QUESTION

TEMPLATE, MODEL = "template", "model"  # `source`

SYNTHESIZED: dict[str, Any] = {
    **QUESTION,
    "topic": pl.String,
    "template": pl.String,  # null for what a model wrote
    "prompt_hash": pl.String,  # of the step that wrote the row; null where it asked no model
}

VERIFIED: dict[str, Any] = {
    **SYNTHESIZED,
    "agreement": pl.Float64,  # share of the verdicts that are the row's label; null where none was asked
    "verdicts": pl.List(pl.String),  # evergreen | mutable | unparsed, a sample each
    "answer_agreement": pl.Float64,  # share of further answers that say the row's; null where none was asked
    "decided_by": pl.String,  # who, of a label that a person gave
    "decided_on": pl.Date,
}

TRANSLATED: dict[str, Any] = {
    **VERIFIED,
    "translated_from": pl.String,  # language; null for a wording that was not translated
    "similarity": pl.Float64,  # cosine with the wording translated from
    "back_similarity": pl.Float64,  # cosine of that wording with the back-translation; null where not asked
}

ALIASED: dict[str, Any] = {
    **TRANSLATED,
    "alias_state": pl.String,  # made | given | no_answer | passed_by | failed: why the list is as it is
    "aliases_refused": pl.List(pl.String),  # "reason: text" of each form that a rule refused
}


def carried(row: Mapping[str, Any], columns: Mapping[str, Any], **values: Any) -> dict[str, Any]:
    """The values of a row for the next step: `values` first, then the row's own, null for the rest."""
    return {c: values[c] if c in values else row.get(c) for c in columns}
