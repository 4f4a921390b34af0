"""NQ-open: a question and the list of its accepted answers, no label.

Law: predictions that the file of EfficientQA lists beside, also those that
people judged right, are answers of models and no gold answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.evergreen.readers import values as v
from pipelines.evergreen.readers.seam import Fault, Reader, Said, Sheet, pooled
from pipelines.evergreen.schema import NO_ORIGIN

KIND = "nq_open"
_NEEDED = frozenset({"question", "answer"})
_JUDGED = frozenset(
    {
        *("def_correct_predictions", "poss_correct_predictions", "def_incorrect_predictions"),
        "answer_and_def_correct_predictions",
    }
)


def fit(sheet: Sheet) -> Reader | None:
    """A reader for records of a question and a list of answers and no more, else None."""
    odd = sheet.common - _NEEDED - _JUDGED
    listed = sheet.usual >= _NEEDED and sheet.mostly("answer", lambda value: isinstance(value, list))
    if odd or not listed:
        return None
    named = any(part in sheet.stem for part in ("nq", "natural", "efficientqa"))
    source = KIND if named else sheet.stem

    def tell(values: Mapping[str, Any]) -> Said | Fault:
        accepted = v.answers(values.get("answer"), "answer")
        if isinstance(accepted, Fault):
            return accepted
        return pooled(source, values.get("question"), "en", v.NO_LABEL, accepted, label_origin=NO_ORIGIN)

    return Reader(KIND, "question", tell, v.ignored(sheet.columns, [*_NEEDED]))
