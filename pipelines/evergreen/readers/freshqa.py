"""FreshQA: questions with a graded label, up to ten accepted answers, and the day of the next review.

Law: what the file grades stays graded: `fact_type` is the change rate.

Exports of the sheet begin with lines of a warning, which `preamble` counts; its
records end with CRLF and hold bare LF in quoted cells. Its two parts, TEST and
DEV, are both for evaluation (the paper validates on both), and EverGreenQA's
dev is its translation: so it is pooled, and its own split is a detail.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from pipelines.data.text_files import fault_of_line
from pipelines.evergreen.readers import values as v
from pipelines.evergreen.readers.seam import Fault, Reader, Said, Sheet, pooled

KIND = "freshqa"
_NEEDED = frozenset({"question", "fact_type", "answer_0"})
_DETAILS = {
    **{"split": "split", "effective_year": "effective_year", "num_hops": "hops"},
    **{"source": "evidence", "note": "note"},
}
_ANSWER = re.compile(r"answer_(\d+)")
_US_DAY = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")
_QUARTER = re.compile(r"Q([1-4]) (\d{4})")
LONGEST_PREAMBLE = 5  # lines


def fit(sheet: Sheet) -> Reader | None:
    """A reader for a file with FreshQA's columns, else None."""
    if not sheet.usual >= _NEEDED:
        return None
    found = sorted((int(m[1]), c) for c in sheet.columns if (m := _ANSWER.fullmatch(c)))
    columns = [column for _, column in found]

    def tell(values: Mapping[str, Any]) -> Said | Fault:
        return _tell(values, columns)

    used = [*_NEEDED, *_DETAILS, *columns, "next_review", "false_premise", "id"]
    return Reader(KIND, "question", tell, v.ignored(sheet.columns, used))


def preamble(lines: Sequence[str]) -> int:
    """How many lines stand above the header: those of a warning, before a line that begins `id,split`."""
    for n, line in enumerate(lines[: LONGEST_PREAMBLE + 1]):
        if line.casefold().startswith("id,split,question,") and not fault_of_line(line):
            return n
    return 0


def _tell(values: Mapping[str, Any], columns: Sequence[str]) -> Said | Fault:
    label = v.label_of(values.get("fact_type"), "fact_type")
    if isinstance(label, Fault):
        return label
    accepted: list[str] = []
    for column in columns:
        told = v.answers(values.get(column), column)
        if isinstance(told, Fault):
            return told
        accepted += told
    premise = v.word(values.get("false_premise"), "")
    if premise not in ("true", "false", ""):
        return Fault("unknown_flag", "false_premise", f"{premise!r}, known: TRUE, FALSE")
    details = v.details(values, _DETAILS) | v.details({"p": premise}, {"p": "false_premise"})
    review = v.text(values.get("next_review"))
    if review is not None and review.strip() != "N/A":
        details["next_review"] = review_day(review.strip())
    return pooled(KIND, values.get("question"), "en", label, accepted, details=details)


def review_day(told: str) -> str:
    """When an answer is to be looked at again: "2024-11-05", "2024-Q3", "2024", or the word as it stands.

    Days are written in US order. "24-Nov", which a spreadsheet made of a day or a month, stays as it is.
    """
    if day := _US_DAY.fullmatch(told):
        try:
            return date(int(day[3]), int(day[1]), int(day[2])).isoformat()
        except ValueError:
            return told
    quarter = _QUARTER.fullmatch(told)
    return f"{quarter[2]}-Q{quarter[1]}" if quarter else told
