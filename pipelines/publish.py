"""The outs of a stage on their way to their place.

Law: all of a stage's outs appear, or none. They are written whole in a folder
aside, and renamed at the end in a fixed order, `rows.parquet` last, so that
what is cut off in between is seen as incomplete and made again.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from pipelines.errors import EnvironmentFault, StageError

LAST = "rows.parquet"
CURE = "free some disk space or make the folder writable, then run again"


class Outs:
    """Outs of the stage whose folder is `data/<folder>` below `root`."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.place, below = folder, folder.relative_to(root / "data")
        self.aside = root / ".headrace" / "making" / below
        self.held = root / ".headrace" / "held" / below
        self._names: list[str] = []

    def path(self, name: str) -> Path:
        """Where to write the out `name` (a file or a folder) now; `publish` gives it its name."""
        if not self._names:
            _empty(self.aside)
        if name not in self._names:
            self._names.append(name)
        return self.aside / name

    def publish(self) -> None:
        """Renames all outs to their place. Raises StageError for one that was never written."""
        shutil.rmtree(self.held, ignore_errors=True)  # an earlier refusal is past
        self._rename()

    def _rename(self) -> None:
        for name in self._names:
            if not (self.aside / name).exists():
                raise StageError(f"the step never wrote its out {name!r}", where=str(self.place))
        _empty(self.place)
        for name in sorted(self._names, key=lambda n: (n == LAST, n != "rejected.parquet", n)):
            _move(self.aside / name, self.place / name)
        shutil.rmtree(self.aside, ignore_errors=True)

    def hold(self) -> Path:
        """Keeps the rows outside the graph and publishes the counts alone; returns where the rows are."""
        _empty(self.held)
        _move(self.aside / LAST, self.held / LAST)
        self._names = [n for n in self._names if n in ("rejected.parquet", "outcomes.json")]
        self._rename()
        return self.held / LAST


def _empty(folder: Path) -> None:
    """Makes the folder, and takes away what an earlier run left in it (not what Git reads)."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != ".gitignore":
                path.unlink()
    except OSError as e:
        raise EnvironmentFault(f"cannot write here: {e.strerror}", where=str(folder), cure=CURE) from e


def _move(source: Path, target: Path) -> None:
    try:
        os.replace(source, target)
    except OSError as e:
        cure = ".headrace and data must lie on one file system" if e.errno == errno.EXDEV else CURE
        raise EnvironmentFault(f"cannot write here: {e.strerror}", where=str(target), cure=cure) from e
