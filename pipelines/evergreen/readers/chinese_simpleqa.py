"""Chinese SimpleQA: short questions of fact in Chinese, all of them evergreen.

Law: the set takes only questions whose answers do not change over time, so its
rule is their label: a set on which a classifier's mistakes can be counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.evergreen.readers import values as v
from pipelines.evergreen.readers.seam import Fault, Reader, Said, Sheet, pooled
from pipelines.evergreen.schema import EVERGREEN, NEVER, Label

KIND = "chinese_simpleqa"
_NEEDED = frozenset({"question", "answer", "primary_category", "secondary_category"})
_DETAILS = {"primary_category": "topic", "secondary_category": "subtopic"}


def fit(sheet: Sheet) -> Reader | None:
    """A reader for records with the set's two categories, else None."""
    if not sheet.usual >= _NEEDED:
        return None
    return Reader(KIND, "question", _tell, v.ignored(sheet.columns, [*_NEEDED, "id"]))


def _tell(values: Mapping[str, Any]) -> Said | Fault:
    accepted = v.answers(values.get("answer"), "answer")
    if isinstance(accepted, Fault):
        return accepted
    told = v.details(values, _DETAILS)
    return pooled(KIND, values.get("question"), "zh", Label(EVERGREEN, NEVER), accepted, details=told)
