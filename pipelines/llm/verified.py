"""Which files were hashed already, so that 1 GB is not read again at every start.

Law: a remembered hash counts only for the same path, size and modification time in nanoseconds.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

LEDGER = "verified.json"


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_verified(folder: Path, path: Path, sha256: str) -> bool:
    """Whether `path`, as it is now, was found to have this hash before."""
    return bool(_read(folder).get(str(path.absolute())) == _seen(path, sha256))


def remember(folder: Path, path: Path, sha256: str) -> None:
    """Note the hash of `path`. A folder that cannot be written only costs the next start time."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        noted = _read(folder) | {str(path.absolute()): _seen(path, sha256)}
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=LEDGER)
        with os.fdopen(handle, "w") as file:
            json.dump(noted, file, indent=1, sort_keys=True)
        os.replace(temporary, folder / LEDGER)
    except OSError:
        return


def known_sha256(folder: Path, path: Path) -> str:
    """SHA-256 of `path`; it is read only if it is not as it was when it was last read."""
    noted = _read(folder).get(str(path.absolute()))
    if isinstance(noted, list) and noted == _seen(path, str(noted[-1])):
        return str(noted[-1])
    found = sha256_of(path)
    remember(folder, path, found)
    return found


def _seen(path: Path, sha256: str) -> list[Any]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, sha256]


def _read(folder: Path) -> dict[str, Any]:
    try:
        noted = json.loads((folder / LEDGER).read_text())
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}
