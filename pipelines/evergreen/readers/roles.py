"""Which column of a plain file plays which role, by its name or as params tell.

Law: a role that two columns claim, a mapped column that is not there, and a
column that is nearly named as the label are refused: a guess there would be silent.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from pipelines.errors import ConfigError, InputError, nearest
from pipelines.evergreen.readers.seam import Sheet
from pipelines.evergreen.schema import Label, parse_label

WHERE = "params.yaml: evergreen.ingest"
NAMES: dict[str, tuple[str, ...]] = {
    "question": ("question", "query", "question_text"),
    "language": ("language", "lang"),
    "answer": ("answer",),
    "aliases": ("aliases", "answers"),
    "label": ("is_evergreen", "label"),
    "change_rate": ("change_rate", "fact_type", "static_or_dynamic"),
    "split": ("split",),
    "source": ("source",),
    "label_origin": ("label_origin",),
    "as_of": ("as_of",),
    "index": ("", "index", "id", "unnamed: 0", "__index_level_0__"),
}
NEARLY = 0.8  # likeness from which a name is a misspelt one


@dataclass(frozen=True)
class Columns:
    """The file's own name of each column, where it is another than the usual one."""

    question: str = ""
    language: str = ""
    answer: str = ""
    aliases: str = ""
    label: str = ""
    change_rate: str = ""
    split: str = ""
    source: str = ""
    label_origin: str = ""
    as_of: str = ""
    index: str = ""

    @property
    def mapped(self) -> dict[str, str]:
        """Role -> column, of the roles that are mapped."""
        told = {f.name: getattr(self, f.name) for f in fields(self)}
        return {role: column for role, column in told.items() if column}


@dataclass(frozen=True)
class Reading:
    """What params tell of the files: names of columns, and label words of their own."""

    columns: Columns = field(default_factory=Columns)
    labels: Mapping[str, str] = field(default_factory=dict)  # the file's word -> a known spelling

    def words(self) -> dict[str, Label]:
        """The label that each of the file's own words stands for. Raises ConfigError for an unknown one."""
        found: dict[str, Label] = {}
        for told, meant in self.labels.items():
            label, word = parse_label(meant), told.strip().casefold()
            where = f"{WHERE}.labels.{told}"
            if label is None:
                cure = nearest(meant, ("evergreen", "mutable", "never", "slow", "fast", "unknown"))
                raise ConfigError(f"{meant!r} is no label", where=where, cure=cure)
            if found.setdefault(word, label) != label:
                what = f"{told!r} stands for two labels: case and blanks around it mean nothing"
                raise ConfigError(what, where=where, cure="take one of them away")
        return found


def mapping_for(sheet: Sheet, columns: Columns) -> dict[str, str]:
    """The mapping, if this file has one of the mapped columns; then it must have all.

    Raises ConfigError with the nearest name for one that it has not, and for a column of two roles.
    """
    mapped = columns.mapped
    for role, column in mapped.items():
        first = next(r for r, c in mapped.items() if c == column)
        if first != role:
            what = f"column {column!r} is mapped to {first!r}, too"
            raise ConfigError(what, where=f"{WHERE}.columns.{role}", cure="a column plays one role")
    if not any(column in sheet.columns for column in mapped.values()):
        return {}
    for role, column in mapped.items():
        if column not in sheet.columns:
            cure = nearest(column, sheet.columns)
            raise ConfigError(
                f"no column {column!r} in {sheet.name}", where=f"{WHERE}.columns.{role}", cure=cure
            )
    return mapped


def require_mapped(sheets: Sequence[Sheet], columns: Columns) -> None:
    """Raises ConfigError when no file has any of the mapped columns."""
    mapped = columns.mapped
    if not mapped or any(mapping_for(sheet, columns) for sheet in sheets):
        return
    role, column = next(iter(mapped.items()))
    have = sorted({c for sheet in sheets for c in sheet.columns if c})
    what = f"no file has a column {column!r}"
    raise ConfigError(what, where=f"{WHERE}.columns.{role}", cure=nearest(column, have))


def roles_of(sheet: Sheet, mapped: Mapping[str, str]) -> dict[str, str]:
    """Role -> column: the mapped ones, and those that a usual name tells.

    Raises InputError where two columns claim one role.
    """
    taken = set(mapped.values())
    found = dict(mapped)
    for role, names in NAMES.items():
        claims = [c for c in sheet.columns if c.strip().casefold() in names and c not in taken]
        if role in mapped or not claims:
            continue
        if len(claims) > 1:
            claims = [c for c in claims if c in sheet.usual] or claims[:1]
        claims.sort(key=lambda c: names.index(c.strip().casefold()))
        if len(claims) > 1 and role != "index":
            cure = f"say which is it: evergreen.ingest.columns.{role}"
            what = f"columns {claims[0]!r} and {claims[1]!r} both claim to be the {role}"
            raise InputError(what, where=sheet.name, cure=cure)
        found[role] = claims[0]
    return found


def require_no_misspelt_label(sheet: Sheet, roles: Mapping[str, str]) -> None:
    """Raises InputError when no column is the label and one is nearly named so."""
    if "label" in roles or "change_rate" in roles:
        return
    known = [*NAMES["label"], *NAMES["change_rate"], "labels", "evergreen"]
    for column in sheet.columns:
        if column in roles.values():
            continue
        near = difflib.get_close_matches(column.strip().casefold(), known, n=1, cutoff=NEARLY)
        if near:
            cure = f"name it is_evergreen, or map it: evergreen.ingest.columns.label: {column}"
            raise InputError(f"is column {column!r} the label?", where=sheet.name, cure=cure)
