"""What a killed DVC may leave torn, and the mending of it.

Law: DVC writes `dvc.lock` and its lock of paths in place, so that a SIGKILL can
cut them short and no later command would start. The first is taken back to its
last whole state, which only makes later stages look changed; the second is
taken away. What a person has to decide (a merge conflict) is left alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pipelines.data.tables import replace

CONFLICT = "<<<<<<<"


def keep_lock(root: Path) -> None:
    """Remembers dvc.lock as it is now, if it is whole."""
    text = _read(root / "dvc.lock")
    if _whole(text):
        replace(_kept(root), lambda beside: beside.write_text(text, encoding="utf-8"))


def mend(root: Path, say: Callable[[str], None]) -> None:
    """Mends dvc.lock when it is torn, and says so. The caller holds the writer's lock."""
    path = root / "dvc.lock"
    text = _read(path)
    if path.exists() and not _whole(text) and CONFLICT not in text:
        kept = _read(_kept(root))
        if _whole(kept):
            replace(path, lambda beside: beside.write_text(kept, encoding="utf-8"))
            say("dvc.lock was cut short by a killed process: taken back to its last whole state")
        elif not text.strip():
            path.unlink()
            say("dvc.lock was left empty by a killed process: taken away")


def mend_path_lock(tmp: Path) -> None:
    """Takes away DVC's list of who reads and writes what (`tmp`/rwlock) when it is torn.

    It is looked at under DVC's own lock, so that one being written right now is not taken.
    """
    path = tmp / "rwlock"
    if _is_json(path):
        return
    from dvc.lock import LockError, make_lock

    with suppress(LockError), make_lock(str(tmp / "rwlock.lock"), tmp_dir=str(tmp)):
        if not _is_json(path):
            path.unlink()


def _kept(root: Path) -> Path:
    return root / ".headrace" / "dvc.lock"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _whole(text: str) -> bool:
    """Whether it is a lock file to its end: DVC's YAML, with its schema, and a newline last."""
    import yaml

    if not text.endswith("\n") or CONFLICT in text:
        return False
    try:
        value = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        return False
    return isinstance(value, dict) and "schema" in value


def _is_json(path: Path) -> bool:
    """Whether it is a whole JSON object, or not there."""
    try:
        return isinstance(json.loads(path.read_text(encoding="utf-8")), dict)
    except FileNotFoundError:
        return True
    except ValueError:
        return False
