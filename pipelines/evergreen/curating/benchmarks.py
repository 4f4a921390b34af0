"""The questions of registered benchmarks, which must not be in train.

Law: a benchmark that is registered and cannot be read whole, or is not there, is an error: a set that was
looked for in vain would be reported as clean.

A benchmark is a name and where it is: `pool` for a source of that name that ingest read without a split
("*": all of them), else a file below `data/raw/benchmarks`, in any format that `evergreen.ingest` reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pipelines.data.duplicates import question_key
from pipelines.data.rows import digest
from pipelines.errors import ConfigError, InputError, nearest
from pipelines.evergreen.schema import POOL, UNKNOWN, language_code

FOLDER = "data/raw/benchmarks"
ALL = "*"
WHERE = "params.yaml: evergreen.curate.benchmarks"


def pool_benchmarks(rows: Iterable[Mapping[str, Any]], registered: Mapping[str, str]) -> set[str]:
    """The registered sources of the pool. Raises ConfigError for one that was not read."""
    there = {row["source"] for row in rows if row["split"] == POOL}
    named = {name for name, place in registered.items() if place == POOL}
    gone = sorted(named - there - {ALL})
    if gone:
        what = f"no source {gone[0]!r} was read into the pool"
        raise ConfigError(what, where=WHERE, cure=nearest(gone[0], there))
    return there if ALL in named else named


def file_benchmarks(root: Path, registered: Mapping[str, str]) -> list[dict[str, Any]]:
    """The wordings of the registered files, as rows for comparison alone. Raises ConfigError, InputError."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for name, place in sorted(registered.items()):
        if place != POOL:
            for language, wording in _wordings(root, name, place):
                key = question_key(wording)
                known_as = digest("benchmark", name, language, key)
                row = {
                    "question_id": known_as,
                    "language": language,
                    "question": wording,
                    "question_key": key,
                }
                more = {"split": POOL, "label": UNKNOWN, "source": name, "benchmark": name}
                found.setdefault((name, language, key), {**row, **more})
    return [row for key, row in sorted(found.items()) if key[2]]


def _wordings(root: Path, name: str, place: str) -> Iterable[tuple[str, str]]:
    """(language, wording) of each record of a file."""
    from pipelines.evergreen.readers.books import read_book
    from pipelines.evergreen.readers.seam import Fault, Reader

    folder = root / FOLDER
    path = folder / place
    if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
        raise ConfigError(f"no file {place!r} below {FOLDER}", where=f"{WHERE}.{name}", cure="put it there")
    book = read_book(path, folder)
    if not isinstance(book.reader, Reader):
        raise InputError("holds no questions", where=f"{FOLDER}/{place}")
    for record in book.records:
        said = Fault("unreadable", None, record.fault) if record.fault else book.reader.tell(record.values)
        if isinstance(said, Fault):
            what = f"{said.reason} {said.detail}".strip()
            raise InputError(what, where=f"{FOLDER}/{record.place(said.column)}", cure="mend the line")
        for language, wording in said.wordings.items():
            if isinstance(wording, str) and wording.strip():
                yield language_code(language) or language, wording
