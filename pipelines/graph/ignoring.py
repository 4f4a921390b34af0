"""Which files of a folder count.

Law: those that DVC hashes; what `.dvcignore` names (what a killed process left beside a file that it
was writing) makes nothing stale.
"""

from __future__ import annotations

from pathlib import Path


def files(folder: Path) -> list[Path]:
    """All files below a folder of a workspace that DVC hashes, sorted."""
    from dvc.fs import LocalFileSystem
    from dvc.ignore import DvcIgnoreFilter

    root = next((p for p in folder.absolute().parents if (p / ".dvc").is_dir()), None)
    if root is None:
        return sorted(p for p in folder.rglob("*") if p.is_file())
    fs = LocalFileSystem()
    return sorted(Path(p) for p in DvcIgnoreFilter(fs, str(root)).find(fs, str(folder.absolute())))
