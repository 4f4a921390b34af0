"""Errors that a person can act on: what happened, where, and the cure.

Law: whatever goes wrong because of input, configuration or the machine is a
`HeadraceError`; the drivers print it as one line and end non-zero. A traceback
means a fault of this project.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """Where in the input: a file, and in it a line (from 1) and a column name."""

    file: str
    line: int | None = None
    column: str | None = None

    def __str__(self) -> str:
        line = "" if self.line is None else f":{self.line}"
        column = "" if self.column is None else f" (column {self.column!r})"
        return f"{self.file}{line}{column}"


class HeadraceError(Exception):
    """Base of all errors that are shown as one line: `what`, `where`, `cure`."""

    def __init__(self, what: str, *, where: Place | str | None = None, cure: str | None = None) -> None:
        super().__init__(what)
        self.what, self.where, self.cure = what, where, cure

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where is not None else ""
        cure = f" ({self.cure})" if self.cure else ""
        return " ".join(f"{where}{self.what}{cure}".split())


class InputError(HeadraceError):
    """A file as a whole cannot be used: wrong path, suffix, columns or encoding."""


class ConfigError(HeadraceError):
    """params.yaml, an argument or the environment names something unknown or impossible."""


class StageError(HeadraceError):
    """A stage broke its contract: counts that do not add up, a missing artifact, a failed gate."""


class EnvironmentFault(HeadraceError):
    """The machine refuses: no disk, a busy port, a weights file of the wrong hash."""


def nearest(word: str, known: Iterable[str]) -> str:
    """A cure for an unknown word: the nearest known one, else all that are known."""
    options = sorted(known)
    close = difflib.get_close_matches(word, options, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(options) or 'none'}"
