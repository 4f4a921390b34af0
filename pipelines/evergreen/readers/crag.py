"""CRAG: questions with a label in four steps and the time at which they were asked.

Law: the answer is the one that held when the question was asked, so that day is
`as_of`. Pages that were found are not read. An answer "nan" is a missing one, as
a table of numbers writes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Any

from pipelines.evergreen.readers import values as v
from pipelines.evergreen.readers.alias_cells import members
from pipelines.evergreen.readers.seam import Fault, Reader, Said, Sheet, pooled

KIND = "crag"
_NEEDED = frozenset({"query", "static_or_dynamic", "query_time"})
_DETAILS = {
    **{"query_time": "asked_at", "domain": "topic", "question_type": "question_type"},
    "split": "split",
}
_ASKED = re.compile(r"(\d\d)/(\d\d)/(\d{4}), \d\d:\d\d:\d\d [A-Z]{1,4}")


def fit(sheet: Sheet) -> Reader | None:
    """A reader for a file with CRAG's columns, else None."""
    if not sheet.usual >= _NEEDED:
        return None
    used = [*_NEEDED, *_DETAILS, "answer", "alternative_answers", "interaction_id"]
    return Reader(KIND, "query", _tell, v.ignored(sheet.columns, used))


def _tell(values: Mapping[str, Any]) -> Said | Fault:
    label = v.label_of(values.get("static_or_dynamic"), "static_or_dynamic")
    if isinstance(label, Fault):
        return label
    answer = values.get("answer")
    accepted = v.answers(None if answer == "nan" else answer, "answer")
    if isinstance(accepted, Fault):
        return accepted
    others = members(values.get("alternative_answers"))
    if others is None:
        return Fault("unreadable_aliases", "alternative_answers", v.shown(values["alternative_answers"]))
    asked = _day(values.get("query_time"))
    if isinstance(asked, Fault):
        return asked
    details = v.details(values, _DETAILS)
    if details.get("question_type") == "false_premise":
        details["false_premise"] = "true"
    accepted += [o for o in others if o.strip()]
    return pooled(KIND, values.get("query"), "en", label, accepted, as_of=asked, details=details)


def _day(value: Any) -> date | Fault | None:
    """The day of "03/05/2024, 23:18:31 PT": US order, where the question was asked."""
    if v.missing(value):
        return None
    told = _ASKED.fullmatch(value.strip()) if isinstance(value, str) else None
    try:
        if told is not None:
            return date(int(told[3]), int(told[1]), int(told[2]))
    except ValueError:
        pass
    return Fault("bad_date", "query_time", f"{v.shown(value)}, expected MM/DD/YYYY, HH:MM:SS PT")
