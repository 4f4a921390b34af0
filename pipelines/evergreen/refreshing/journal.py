"""Answers of a source that no response store keeps, held until they are noted as observations.

Law: what was told is durable before it is used. A line is appended whole and synced; one that a killed
process left torn is no line, and the next begins on its own.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from pipelines.errors import EnvironmentFault

FOLDER = Path(".headrace/refresh")


class Journal:
    """A file of key -> text. Opened by the first look or the first line; nothing is made before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: dict[str, str] | None = None
        self._file: int | None = None

    def get(self, key: str) -> str | None:
        """What was kept under `key`, None when nothing was."""
        if self._kept is None:
            self._kept = self._read()
        return self._kept.get(key)

    def put(self, key: str, text: str) -> None:
        """Keeps `text` under `key`, durably. Raises EnvironmentFault (disk full, read-only)."""
        self.get(key)
        line = json.dumps({"key": key, "text": text}, ensure_ascii=False).encode() + b"\n"
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
                line = b"\n" + line  # what stands before may be torn
            while line:
                line = line[os.write(self._file, line) :]
            os.fsync(self._file)
        except OSError as e:
            cure = "free some disk space or make the folder writable, then run again"
            raise EnvironmentFault(f"cannot write: {e.strerror}", where=str(self._path), cure=cure) from e
        assert self._kept is not None
        self._kept[key] = text

    def close(self) -> None:
        """Closes the file; what it keeps stays."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def forget(self) -> None:
        """Takes the file away. One that cannot be taken away (a read-only folder) does no harm: its answers
        are to be had under the same question and day alone."""
        self.close()
        self._kept = {}
        with suppress(OSError):
            self._path.unlink()

    def _read(self) -> dict[str, str]:
        try:
            lines = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return {}
        except OSError as e:
            raise EnvironmentFault(f"cannot read: {e.strerror}", where=str(self._path)) from e
        found = {}
        for line in lines:
            with suppress(ValueError, KeyError, TypeError):
                told = json.loads(line)
                if isinstance(told["text"], str):
                    found[str(told["key"])] = told["text"]
        return found
