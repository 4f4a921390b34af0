"""What a stage tells of one run of it: parameters, figures, the data it read, the model it made.

Law: plain values that name their data and code by content; who keeps them (MLflow) is not known here.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.data.tables import file_md5


@dataclass(frozen=True)
class Data:
    """An artifact that a stage read: its name ("evergreen/curate"), file, and role (training, test)."""

    name: str
    path: Path
    role: str

    @property
    def version(self) -> str:
        """MD5 of the file: what DVC calls it in dvc.lock."""
        return file_md5(self.path)


@dataclass(frozen=True)
class Record:
    """What a stage tells about one run of it. Nested `metrics` and `params` are joined by "."."""

    stage: str
    started: int  # milliseconds, from `now`
    params: Mapping[str, Any]
    metrics: Mapping[str, Any]
    data: Sequence[Data] = ()
    texts: Mapping[str, str] = field(default_factory=dict)  # artifact name -> content
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Model:
    """A folder to register: its name there, the module whose `_load_pyfunc` reads it, its columns.

    requires: packages that it needs beside those of every model; card: what it is, in Markdown.
    """

    name: str
    folder: Path
    loader: str
    inputs: Mapping[str, str]  # column -> MLflow type
    outputs: Mapping[str, str]
    requires: tuple[str, ...] = ()
    card: str = ""

    @property
    def version(self) -> str:
        """MD5 over the names and MD5s of its files: what DVC calls the folder in dvc.lock."""
        files = {p.relative_to(self.folder).as_posix(): p for p in self.folder.rglob("*") if p.is_file()}
        listed = [{"md5": file_md5(path), "relpath": name} for name, path in sorted(files.items())]
        text = json.dumps(listed, sort_keys=True)
        return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest() + ".dir"


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, keys joined by "."."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}".replace("@", "_at_")
        if isinstance(value, Mapping):
            found |= flat(value, f"{name}.")
        else:
            found[name] = value
    return found


def code_commit() -> str:
    """The git commit that this package lies in, "+" behind it when files differ; "" outside git."""

    def git(*words: str) -> str:
        here = str(Path(__file__).resolve().parent)
        told = subprocess.run(
            ["git", "-C", here, *words], capture_output=True, text=True, timeout=20, check=True
        )
        return told.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".")
        return git("rev-parse", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return ""
