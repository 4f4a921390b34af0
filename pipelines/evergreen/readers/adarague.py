"""AdaRAGUE: questions of six sets with gold answers, and what models answered to them.

Law: questions and gold answers meet by key, whichever of its files they stand
in. A file of answers, scores or probabilities holds no questions: each of its
records is refused with that said, so that the whole folder can be given.

Gold answers are {key: [answer, ...]}; questions are lines with `qid`, or a CSV
whose `reference` is a printed list (its other cells are printed arrays, not read).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.evergreen.readers import values as v
from pipelines.evergreen.readers.alias_cells import members
from pipelines.evergreen.readers.seam import Aliases, Fault, Reader, Said, Sheet, pooled
from pipelines.evergreen.schema import NO_ORIGIN

KIND = "adarague"
OUTPUTS = "model_outputs"
_TOLD = {"question": "ground_truth", "question_text": "reference"}  # question column -> gold column
_SETS = {
    **{"2wiki": "2wikimultihopqa", "hotpot": "hotpotqa", "musi": "musique"},
    **{"trivia": "triviaqa", "squad": "squad", "nq": "nq"},
}
_SCORES = ({"perplexity", "ln_entropy"}, {"prediction", "probas"})


def fit(sheet: Sheet) -> Reader | Aliases | None:
    """A reader for one of the files of AdaRAGUE, else None."""
    keyed = sheet.usual >= {"id", "value"} and sheet.common <= {"id", "value"}
    if keyed and "ground_truth" in sheet.stem:
        return Aliases("adarague_gold", _gold, KIND, "id")
    if (keyed and "prediction" in sheet.stem) or _has_scores(sheet):
        return Reader(OUTPUTS, "value", _output, v.ignored(sheet.columns, []))
    for question, gold in _TOLD.items():
        if sheet.usual >= {"qid", question, gold}:
            return _reader(sheet, question, gold)
    return None


def _has_scores(sheet: Sheet) -> bool:
    return "question" not in sheet.columns and any(sheet.usual >= told for told in _SCORES)


def _reader(sheet: Sheet, question: str, gold: str) -> Reader:
    which = next((name for part, name in _SETS.items() if part in sheet.stem), "")
    source = f"{KIND}_{which}" if which else KIND

    def tell(values: Mapping[str, Any]) -> Said | Fault:
        told = values.get(gold)
        accepted = members(told) if question == "question_text" else v.answers(told, gold)
        if accepted is None:
            return Fault("unreadable_aliases", gold, v.shown(told))
        if isinstance(accepted, Fault):
            return accepted
        kept = [a for a in accepted if a.strip()]
        return pooled(source, values.get(question), "en", v.NO_LABEL, kept, label_origin=NO_ORIGIN)

    ignored = v.ignored(sheet.columns, ["qid", question, gold])
    return Reader(KIND, question, tell, ignored, joins=KIND, index="qid", repeats=True)


def _gold(values: Mapping[str, Any]) -> dict[str, list[str]] | Fault:
    told = values.get("value")
    found = (
        v.answers(told, "value") if isinstance(told, list) else Fault("wrong_type", "value", v.shown(told))
    )
    if isinstance(found, Fault):
        return Fault("unreadable_aliases", "value", found.detail)
    return {"en": list(dict.fromkeys(a.strip() for a in found))}


def _output(values: Mapping[str, Any]) -> Fault:
    return Fault("model_output", None, "an answer or a score of a model, no question")
