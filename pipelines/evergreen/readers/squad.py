"""The SQuAD format: articles of paragraphs of questions, or a row a question; no label.

Law: a question's text and answers stay as they are stored (`answer_start` counts
code points of the stored text). Translations of SQuAD (XQuAD) keep its ids: the
wordings of one id are one question, whichever file they stand in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.data.readers import json_object
from pipelines.data.record import Record, Torn
from pipelines.evergreen.readers import values as v
from pipelines.evergreen.readers.seam import Fault, Reader, Said, Sheet, pooled
from pipelines.evergreen.schema import NO_ORIGIN

KIND = "squad"
_NEEDED = frozenset({"question", "answers", "id"})
_ROW = frozenset({"context", "title", "is_impossible"})  # one of these stands beside, flat or not
_SQUAD_ID = re.compile("[0-9a-f]{24}")


def fit(sheet: Sheet) -> Reader | None:
    """A reader for questions with id and SQuAD's answers, else None. The file's name tells the language."""
    if not sheet.usual >= _NEEDED or not sheet.usual & _ROW:
        return None
    language = v.language_in(sheet.stem) or "en"
    source = "xquad" if "xquad" in sheet.stem else KIND

    def tell(values: Mapping[str, Any]) -> Said | Fault:
        accepted = _answers(values.get("answers"))
        if isinstance(accepted, Fault):
            return accepted
        told_id = v.text(values.get("id")) or ""
        return pooled(
            source,
            values.get("question"),
            language,
            v.NO_LABEL,
            accepted,
            label_origin=NO_ORIGIN,
            details=v.details(values, {"title": "topic"}),
            shared_id=told_id if _SQUAD_ID.fullmatch(told_id) else "",
        )

    return Reader(KIND, "question", tell, v.ignored(sheet.columns, [*_NEEDED, "title", "is_impossible"]))


def is_document(value: Any) -> bool:
    """True for a JSON value with articles of paragraphs."""
    articles = value.get("data") if isinstance(value, Mapping) else None
    return isinstance(articles, list) and any(isinstance(a, Mapping) and "paragraphs" in a for a in articles)


def records_of(value: Mapping[str, Any], name: str) -> list[Record]:
    """A record for each question; what cannot be taken apart is a record with a fault that says where."""
    return [
        json_object(name, n, one, also={"title": title})
        if isinstance(one, Mapping)
        else Record(name, n, raw=v.shown(one), fault=where)
        for n, (where, title, one) in enumerate(_questions(value["data"], "data", None), 1)
    ]


def _questions(listed: list[Any], where: str, title: Any) -> Iterator[tuple[str, Any, Any]]:
    """(where, title, question) of all questions in a list of articles, paragraphs or questions.

    Each is known by its keys. For one that is none of them the fault stands first, and None last.
    """
    for n, one in enumerate(listed):
        at = f"{where}[{n}]"
        told = one if isinstance(one, Mapping) and not isinstance(one, Torn) else {}
        below = [key for key in ("paragraphs", "qas") if isinstance(told.get(key), list)]
        for key in below:
            yield from _questions(told[key], f"{at}.{key}", told.get("title", title))
        if not below and "question" in told:
            yield at, title, told
        elif not below or "question" in told:
            yield one.why if isinstance(one, Torn) else f"{at} is no question", title, None


def _answers(value: Any) -> list[str] | Fault:
    """Texts of [{"text": ..., "answer_start": ...}], of {"text": [...]}, or none where there is no answer."""
    if isinstance(value, Mapping):
        return v.answers(value.get("text"), "answers")
    if v.missing(value):
        return []
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        return Fault("wrong_type", "answers", f"{v.shown(value)}, expected a list of objects with a text")
    return v.answers([one.get("text") for one in value], "answers")
