"""Answer aliases as published tables write them: printed lists, packed strings, or both at once.

Law: a cell is read as data, never run; what cannot be read is None, never an
empty list.
"""

from __future__ import annotations

import ast
import re
import warnings

from pipelines.data.readers import fault_of

LONGEST = 20_000  # characters; a longer cell is no list of short answers
_SEPARATORS = re.compile("[;\u061b\uff1b]")  # Latin, Arabic and full-width semicolons


def alias_list(cell: object) -> list[str] | None:
    """Aliases in a cell, blanks trimmed, each once, in the order given; None when it cannot be read.

    Takes a list, a Python list printed into a string (also one inside another,
    as a single element) and aliases joined by semicolons of any script.
    """
    found = members(cell)
    if found is None:
        return None
    if len(found) == 1 and found[0].lstrip().startswith("["):
        found = members(found[0])
        if found is None:
            return None
    parts = (p.strip() for text in found for p in _SEPARATORS.split(text))
    return list(dict.fromkeys(p for p in parts if p))


def members(cell: object) -> list[str] | None:
    """Texts of a list, or of one printed into a string; a text that is no list is the only one. None when
    it cannot be read. Texts are not split: for sentences, which may hold a semicolon."""
    if cell is None:
        return []
    if isinstance(cell, str):
        if len(cell) > LONGEST:
            return None
        if not cell.lstrip().startswith("["):
            return [cell]
        try:
            cell = _literal(cell.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            return None
    if not isinstance(cell, list) or not all(isinstance(v, str | int | float) for v in cell):
        return None
    try:
        return None if fault_of(cell) else [str(v) for v in cell]
    except ValueError:  # an integer of more digits than Python prints, written in another base
        return None


def _literal(text: str) -> object:
    if "\\" not in text:
        return ast.literal_eval(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an unknown escape: data, no code of ours
        return ast.literal_eval(text)
