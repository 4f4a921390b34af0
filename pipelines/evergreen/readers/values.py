"""Single values of foreign files: answers, words, dates, languages.

Law: a value of the wrong kind is None or a `Fault`, never a guess.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

from pipelines.evergreen.readers.seam import Fault
from pipelines.evergreen.schema import LANGUAGES, UNKNOWN, Label, language_code, parse_label

# Codes of ISO 639-1: any may be the language of a row. Few of them may head a column (schema.LANGUAGES).
ISO_639_1 = frozenset(
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv"
    " dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig"
    " ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh"
    " mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru"
    " rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug"
    " uk ur uz ve vi vo wa wo xh yi yo za zh zu".split()
)
_ISO_DAY = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ][\d:.,+Z-]*)?")


def missing(value: Any) -> bool:
    """True for null, a blank text, and the NaN by which a table of numbers says null."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and math.isnan(value))


def text(value: Any) -> str | None:
    """A text or finite number as text; None for anything else, and for what is missing."""
    if missing(value) or not isinstance(value, str | int | float):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and math.isinf(value):
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))  # a column of numbers with a gap holds floats
    try:
        return str(value)
    except ValueError:  # an integer of more digits than Python prints
        return None


def answers(value: Any, column: str) -> list[str] | Fault:
    """Accepted answers: a text, a number, or a list of those; what is missing is left out."""
    told = value if isinstance(value, list) else [value]
    found = []
    for one in told:
        if missing(one):
            continue
        answer = text(one)
        if answer is None:
            return Fault("wrong_type", column, f"{type(one).__name__} as an answer")
        found.append(answer)
    return found


def word(value: Any, default: str) -> str:
    """A word, case folded; `default` where it is missing, and what is no word as a message shows it."""
    told = default if missing(value) else text(value)
    return shown(value) if told is None else told.strip().casefold()


def label_of(value: Any, column: str) -> Label | Fault:
    """The label in a column that every record of a format must fill."""
    if missing(value):
        return Fault("missing_label", column)
    found = parse_label(value)
    return Fault("unknown_label", column, shown(value)) if found is None else found


def day(value: Any, column: str) -> date | Fault | None:
    """A day, YYYY-MM-DD with or without a time behind it; None where it is missing."""
    if missing(value):
        return None
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    told = _ISO_DAY.fullmatch(str(text(value) or "").strip())
    try:
        if told is not None:
            return date.fromisoformat(told[1])
    except ValueError:
        pass
    return Fault("bad_date", column, f"{shown(value)}, expected YYYY-MM-DD")


def language(value: str) -> str | None:
    """ISO 639-1 code of "en", "English", "EN-us" or "zh_Hans"; None when it is none."""
    known = language_code(value)
    if known is not None:
        return known
    code = re.split("[-_]", value.strip().casefold())[0]
    return code if code in ISO_639_1 else None


def language_in(stem: str) -> str | None:
    """The language that a file's name tells last: "de" of "xquad.de". "no" and "id" are words there."""
    told = [w for w in re.split(r"[^a-z]+", stem) if w not in ("no", "id")]
    codes = [w if w in LANGUAGES else language_code(w) for w in told]
    return next((c for c in reversed(codes) if c), None)


def shown(value: Any) -> str:
    """A value as a message may quote it."""
    try:
        return repr(value)[:200]
    except ValueError:
        return f"a {type(value).__name__}"


def details(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, str]:
    """What stands in the columns `names`, by the name given; what is missing is left out."""
    told = {name: text(values.get(column)) for column, name in names.items()}
    return {name: value.strip() for name, value in told.items() if value is not None}


def ignored(columns: Sequence[str], used: Sequence[str | None]) -> tuple[str, ...]:
    """The columns that nothing is read from, sorted."""
    return tuple(sorted(set(columns) - {u for u in used if u is not None}))


NO_LABEL = Label(UNKNOWN, UNKNOWN)
