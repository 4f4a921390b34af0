"""Sentence patterns and their tables as the files of `templates` write them.

Law: a file is read whole and checked before anything is drawn: a pattern renders
in every language that it claims, or the file is refused with the place and the cure.

A file has `topic` (a template may name another), `tables` and `templates`; `manner` may stand
in one of them:

    tables:
      metal:
        columns: en | ru | ru.gen | symbol      # a language, a form of it, or one for all languages
        rows: |
          gold | золото | золота | Au
    templates:
      - name: metal_symbol
        rate: never                             # never | slow | fast
        en: What is the chemical symbol of {metal}?
        ru: |                                   # one wording a line
          Какой химический символ у {metal.gen}?
        answer: "{metal.symbol}"

A column may serve several languages ("en fr de"). A slot is named after its table, of any
file; `slots` ({a: city, who: [singer, actor]}: never one row twice), `values` ({year: [1990]})
and `numbers` ({n: [2, 9]}) name others. {who?born him|born her} agrees with the row's
`gender`. A cell "-" is empty: a pattern that needs it, in a wording or in `needs`, leaves the row out.
`compute: [product, n, m]` is an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pipelines.errors import nearest
from pipelines.evergreen.schema import LANGUAGES
from pipelines.evergreen.templates.bank import (
    EMPTY,
    GENDER,
    OPERATIONS,
    RATES,
    SLOT,
    Bank,
    Manner,
    Row,
    Template,
    TemplateError,
)

KEYS = ("name", "topic", "rate", "slots", "values", "numbers", "needs", "answer", "compute")


def parse(files: Mapping[str, str], withheld: frozenset[str] = frozenset()) -> Bank:
    """The bank that the texts of some files make (file name -> YAML), without the fillings withheld.

    Raises TemplateError.
    """
    read = {name: _yaml(name, text) for name, text in files.items()}
    tables: dict[str, tuple[Row, ...]] = {}
    for file, content in read.items():
        for name, table in _mapping(content.get("tables", {}), f"{file}: tables").items():
            if name in tables:
                raise TemplateError("a table of this name exists", where=f"{file}: tables.{name}")
            tables[name] = _table(table, f"{file}: tables.{name}")
    templates: list[Template] = []
    manners: dict[str, Manner] = {}
    for file, content in read.items():
        for number, entry in enumerate(content.get("templates", []), start=1):
            said = _mapping(entry, f"{file}: template {number}")
            where = f"{file}: template {said.get('name', number)}"
            topic = str(said.get("topic", content.get("topic", "")))
            template = replace(_template(said, topic, tables, where), withheld=withheld)
            if any(t.name == template.name for t in templates):
                raise TemplateError("a template of this name exists", where=where)
            templates.append(template)
        for language, said in _mapping(content.get("manner", {}), f"{file}: manner").items():
            manners[language] = _manner(said, f"{file}: manner.{language}")
    return Bank(tuple(templates), manners)


def _yaml(file: str, text: str) -> dict[str, Any]:
    import yaml

    try:
        content = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as e:
        mark = getattr(e, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise TemplateError(f"not valid YAML: {getattr(e, 'problem', e)}", where=f"{file}{line}") from e
    found = _mapping(content, file)
    for key in found:
        if key not in ("topic", "tables", "templates", "manner"):
            cure = nearest(str(key), ("topic", "tables", "templates", "manner"))
            raise TemplateError(f"unknown key {key!r}", where=file, cure=cure)
    return found


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TemplateError(f"must be a mapping, is {type(value).__name__}", where=where)
    return value


def _lines(value: Any, where: str) -> tuple[str, ...]:
    """The lines of a text that are not blank, each trimmed."""
    if not isinstance(value, str) or not value.strip():
        raise TemplateError("must be a text of one entry a line", where=where)
    return tuple(line.strip() for line in value.splitlines() if line.strip())


def _table(value: Any, where: str) -> tuple[Row, ...]:
    table = _mapping(value, where)
    columns = [c.strip() for c in str(table.get("columns", "")).split("|")]
    rows = []
    for number, line in enumerate(_lines(table.get("rows"), f"{where}.rows"), start=1):
        cells = [c.strip() for c in line.split("|")]
        if len(cells) != len(columns) or "" in cells:
            filled = sum(c != "" for c in cells)
            what = f"row {number} has {filled} filled cells, there are {len(columns)} columns"
            raise TemplateError(what, where=where, cure=f"{line[:60]}; an empty cell is written {EMPTY!r}")
        rows.append(
            {name: cell for names, cell in zip(columns, cells, strict=True) for name in names.split()}
        )
    twice = next((r for i, r in enumerate(rows) if r in rows[:i]), None)
    if twice is not None:
        raise TemplateError(f"a row stands twice: {next(iter(twice.values()))}", where=where)
    return tuple(rows)


def _template(said: dict[str, Any], topic: str, tables: Mapping[str, Any], where: str) -> Template:
    rate = said.get("rate")
    if rate not in RATES:
        raise TemplateError(f"unknown change rate {rate!r}", where=where, cure=nearest(str(rate), RATES))
    for key in said:
        if key not in KEYS and key not in LANGUAGES:
            raise TemplateError(f"unknown key {key!r}", where=where, cure=nearest(str(key), (*KEYS, "en")))
    wordings = {k: _lines(v, f"{where}, {k}") for k, v in said.items() if k in LANGUAGES}
    if not wordings or not topic or not isinstance(said.get("name"), str):
        raise TemplateError("needs a name, a topic of its file and a wording", where=where)
    slots = _slots(said, wordings, tables, where)
    answer = said.get("answer", {})
    answers = answer if isinstance(answer, dict) else {"": str(answer)}
    compute = tuple(map(str, said.get("compute", ())))
    if compute and (compute[0] not in OPERATIONS or not set(compute[1:]) <= set(said.get("numbers", {}))):
        cure = f"an operation ({', '.join(OPERATIONS)}) and names of `numbers`"
        raise TemplateError(f"cannot compute {' '.join(compute)}", where=where, cure=cure)
    for language, texts in wordings.items():
        for text in texts:
            _check(text, language, slots, f"{where}, {language}")
            if missing := slots.keys() - {m[1] for m in SLOT.finditer(text)}:
                what = f"slot {min(missing)!r} is missing: {text}"
                raise TemplateError(what, where=f"{where}, {language}", cure="every wording names every slot")
    for language, text in answers.items():
        _check(text, language or next(iter(wordings)), slots, f"{where}, answer")
    needs = str(said.get("needs", ""))
    _check(needs, next(iter(wordings)), slots, f"{where}, needs")
    return Template(said["name"], topic, rate, wordings, slots, answers, compute, needs)


def _slots(
    said: Mapping[str, Any], wordings: Mapping[str, tuple[str, ...]], tables: Mapping[str, Any], where: str
) -> dict[str, tuple[Row, ...]]:
    """The rows of every slot that a wording names, in the order of the names."""
    own: dict[str, tuple[Row, ...]] = {}
    for key in ("values", "numbers"):
        for name, values in _mapping(said.get(key, {}), f"{where}, {key}").items():
            bad = not isinstance(values, list) or not values
            if bad or (key == "numbers" and [type(v) for v in values] != [int, int]):
                what = (
                    "must be a list" if key == "values" else "must be the least and the most, whole numbers"
                )
                raise TemplateError(what, where=f"{where}, {key}.{name}")
            every = values if key == "values" else range(values[0], values[1] + 1)
            own[name] = tuple({"": str(v)} for v in every)
    named = _mapping(said.get("slots", {}), f"{where}, slots")
    found: dict[str, tuple[Row, ...]] = {}
    for slot in sorted({m[1] for texts in wordings.values() for t in texts for m in SLOT.finditer(t)}):
        if slot in own:
            found[slot] = own[slot]
            continue
        told = named.get(slot, slot)
        found[slot] = ()
        for table in map(str, told if isinstance(told, list) else [told]):
            if table not in tables:
                cure = nearest(table, (*tables, *own))
                raise TemplateError(f"slot {slot!r} has no table {table!r}", where=where, cure=cure)
            found[slot] += tables[table]
    return found


def _check(text: str, language: str, slots: Mapping[str, tuple[Row, ...]], where: str) -> None:
    """Raises TemplateError for a slot without rows or without the form or language that the text needs."""
    if SLOT.sub("", text).count("{") or SLOT.sub("", text).count("}"):
        raise TemplateError(f"a brace that is no slot: {text}", where=where)
    for m in SLOT.finditer(text):
        if m[1] not in slots:
            raise TemplateError(f"unknown slot {m[1]!r}", where=where, cure=nearest(m[1], slots))
        wanted: tuple[str, ...] = (f"{language}.{m[2]}", m[2]) if m[2] else (language, "")
        if m[3] is not None:
            wanted = (GENDER,)
        for columns in slots[m[1]]:
            if not any(c in columns for c in wanted):
                what = f"slot {m[0]} has no column {wanted[0]!r}"
                raise TemplateError(what, where=where, cure=f"the table has: {', '.join(columns)}")


def _manner(value: Any, where: str) -> Manner:
    said = _mapping(value, where)
    known = ("openers", "question_words", "opener_share", "small_share", "unmarked_share")
    for key in known:
        if key not in said:
            raise TemplateError(f"key {key!r} is missing", where=where)
    shares = [said[k] for k in known[2:]]
    if not all(isinstance(s, int | float) and 0 <= s <= 1 for s in shares):
        raise TemplateError("shares must lie in [0, 1]", where=where)
    openers = tuple(said["openers"])
    if not openers or not all(isinstance(o, str) for o in openers):
        raise TemplateError("openers must be texts", where=where)
    words = frozenset(str(w).casefold() for w in str(said["question_words"]).split())
    return Manner(openers, words, *map(float, shares))
