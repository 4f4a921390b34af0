"""Which reader a file is read by.

Law: a file is recognised by its columns or refused with the columns found. What
a format is, its own module in `readers/` says; a new one is a module there and a line here.

A mapping of columns in params outranks recognition: a file that has the mapped
columns is read as a plain one, or, where it has a column a language and no other is
mapped to be the question, as such a table.
"""

from __future__ import annotations

from pipelines.evergreen.readers import (
    adarague,
    chinese_simpleqa,
    crag,
    evergreenqa,
    freshqa,
    hotpotqa,
    nq_open,
    plain,
    squad,
)
from pipelines.evergreen.readers.roles import Reading, mapping_for
from pipelines.evergreen.readers.seam import Aliases, Reader, Sheet

_SETS = (freshqa.fit, crag.fit, chinese_simpleqa.fit, squad.fit, hotpotqa.fit, adarague.fit, nq_open.fit)


def recognise(sheet: Sheet, reading: Reading | None = None) -> Reader | Aliases:
    """The reader of a file, from its columns. Raises InputError, ConfigError."""
    reading = reading or Reading()
    mapped = mapping_for(sheet, reading.columns)
    if not mapped:
        for fit in _SETS:
            found = fit(sheet)
            if found is not None:
                return found
    if "question" not in mapped:
        wide = evergreenqa.fit(sheet, reading)
        if wide is not None:
            return wide
    read = plain.fit(sheet, reading)
    if read is None:
        more = "; evergreen.ingest.columns says which does"
        raise evergreenqa.unknown("no column holds questions", sheet, more)
    return read
