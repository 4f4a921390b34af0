"""Which of the files in a folder are what: told by their columns, never by their names.

Law: every record of a file that is used becomes a work item; a file that looks
like a known one but lacks a column is an error that names it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from pipelines.data.readers import data_files, header, relative, suffix_of
from pipelines.errors import InputError

TIMES = ("video_id", "start_timestamp", "stop_timestamp")


class Kind(StrEnum):
    """A known file. The value is what the report calls its records."""

    NARRATIONS = "narration"
    SOUNDS = "sound"
    UNCATEGORISED = "uncategorised sound"
    VIDEOS = "video info"
    SCENES = "scene"


COLUMNS: dict[Kind, tuple[str, ...]] = {
    Kind.NARRATIONS: ("narration_id", *TIMES, "narration", "verb", "all_nouns"),
    Kind.SOUNDS: ("annotation_id", *TIMES, "description", "class"),
    Kind.UNCATEGORISED: ("annotation_id", *TIMES, "description"),
    Kind.SCENES: ("clip_id", "video_id", "setting", "start", "end", "actions"),
    Kind.VIDEOS: ("video_id", "duration"),
}
# Side tables that lie beside EPIC's annotations and say nothing about a clip.
ASIDE: tuple[frozenset[str], ...] = (
    frozenset({"id", "key", "instances", "category"}),
    frozenset({"", "narration_id"}),
    frozenset({"participant_id", "verb", "noun"}),
)


def known_files(folder: Path) -> list[tuple[Path, Kind]]:
    """The data files of a folder with their kinds, sorted by name; side tables are left out.

    Raises InputError for a file that is none of the known ones, and when none is of use.
    """
    found = []
    for path in data_files(folder):
        kind = _kind(path, folder)
        if kind is not None:
            found.append((path, kind))
    if not any(kind in (Kind.NARRATIONS, Kind.SCENES) for _, kind in found):
        raise InputError(
            "no file here narrates a video",
            where=relative(folder, folder.parent),
            cure=f"give a CSV with {_listed(Kind.NARRATIONS)}, or a JSONL with {_listed(Kind.SCENES)}",
        )
    return found


def _kind(path: Path, folder: Path) -> Kind | None:
    name = relative(path, folder)
    if suffix_of(path) not in (".csv", ".tsv", ".jsonl", ".json"):
        raise InputError("this engine does not read such files", where=name, cure="give CSV or JSONL")
    columns = header(path, folder)
    for kind, needed in COLUMNS.items():  # where one kind has all columns of another it comes first
        if set(needed) <= set(columns):
            return kind
    if any(set(columns) == aside for aside in ASIDE):
        return None
    raise _unknown(columns, name)


def _unknown(columns: Iterable[str], name: str) -> InputError:
    """An error about the known kind that the file comes nearest to."""
    there = set(columns)
    shares = {kind: len(there & set(needed)) / len(needed) for kind, needed in COLUMNS.items()}
    kind = max(shares, key=lambda k: (shares[k], k))
    if not shares[kind]:
        return InputError(
            f"holds none of the known columns; it has {', '.join(map(repr, sorted(there)))[:200] or 'none'}",
            where=name,
            cure=f"narrations need {_listed(Kind.NARRATIONS)}; scenes {_listed(Kind.SCENES)}",
        )
    missing = [c for c in COLUMNS[kind] if c not in there]
    return InputError(
        f"column {', '.join(map(repr, missing))} is missing, if this is a {kind} file",
        where=name,
        cure=f"the file has: {', '.join(map(repr, sorted(there)))[:300]}",
    )


def _listed(kind: Kind) -> str:
    return ", ".join(COLUMNS[kind])
