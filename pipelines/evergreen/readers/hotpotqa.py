"""HotpotQA: multi-hop questions with one answer and a type, no label; whole, or cut to those three."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.evergreen.readers import values as v
from pipelines.evergreen.readers.seam import Fault, Reader, Said, Sheet, pooled
from pipelines.evergreen.schema import NO_ORIGIN

KIND = "hotpotqa"
_NEEDED = frozenset({"question", "answer", "type"})
_WHOLE = _NEEDED | {"_id", "id", "level", "supporting_facts", "context"}
_DETAILS = {"type": "question_type", "level": "level"}


def fit(sheet: Sheet) -> Reader | None:
    """A reader for records with HotpotQA's keys and types, else None."""
    if not sheet.usual >= _NEEDED or not sheet.common <= _WHOLE or not sheet.mostly("type", _is_type):
        return None
    return Reader(KIND, "question", _tell, v.ignored(sheet.columns, [*_NEEDED, "level", "_id", "id"]))


def _is_type(value: Any) -> bool:
    return value in ("bridge", "comparison")


def _tell(values: Mapping[str, Any]) -> Said | Fault:
    accepted = v.answers(values.get("answer"), "answer")
    if isinstance(accepted, Fault):
        return accepted
    told = v.details(values, _DETAILS)
    question = values.get("question")
    return pooled(KIND, question, "en", v.NO_LABEL, accepted, label_origin=NO_ORIGIN, details=told)
