"""Whether a classifier is worse than the present champion, by the verdicts of both on the same questions.

Law: the same questions are drawn for both (paired bootstrap), a question with all its wordings; worse is
a difference whose whole interval lies below 0. Verdicts on other rows or other labels are not compared.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from pipelines.errors import StageError
from pipelines.evaluation.metrics import Scored, difference
from pipelines.tracking import Judged

Verdict = tuple[str, str, bool, bool]  # question id, language, label and prediction, true for evergreen


def judged(verdicts: Sequence[Verdict], samples: int, confidence: float, seed: int) -> Judged:
    """The verdicts as the tracker keeps them, and how they compare with others on the same rows."""
    text = _text(verdicts)

    def worse(theirs: str) -> bool:
        ours_counts, theirs_counts = _counts(text), _counts(theirs, like=text)
        return difference(ours_counts, theirs_counts, samples, confidence, seed).high < 0.0

    return Judged(text, worse)


def _text(verdicts: Sequence[Verdict]) -> str:
    rows = sorted([q, language, int(label), int(said)] for q, language, label, said in verdicts)
    return "[\n" + ",\n".join(json.dumps(r, ensure_ascii=False) for r in rows) + "\n]\n"


def _counts(text: str, like: str = "") -> np.ndarray:
    """Confusion counts [questions, languages, 4]. Raises StageError unless rows and labels are `like`'s."""
    rows = json.loads(text)
    if like and [r[:3] for r in json.loads(like)] != [r[:3] for r in rows]:
        cure = "remove the alias champion, then run evaluation.evergreen again"
        raise StageError("the champion's verdicts are on other rows or labels", cure=cure)
    _, question = np.unique([r[0] for r in rows], return_inverse=True)
    _, language = np.unique([r[1] for r in rows], return_inverse=True)
    label, said = (np.array([r[k] == 1 for r in rows]) for k in (2, 3))
    return Scored(question, language, label, said).counts()
