"""Why a stage failed, from the stage's process to the driver that started it.

Law: a failure is told once, by the driver, with its reason. A stage that no driver of ours started
(a bare `dvc repro`) tells it itself; one that died without a word leaves none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.environment import variables

VARIABLE = "HEADRACE_REASON"  # names the file in which the driver looks


def tell(reason: str) -> bool:
    """Hands the reason to the driver; False when none listens."""
    path = os.environ.get(VARIABLE)
    try:
        if path:
            Path(path).write_text(reason, encoding="utf-8")
        return bool(path)
    except OSError:
        return False


@contextmanager
def listening(root: Path) -> Iterator[None]:
    """Stages started from here tell their reason to this process."""
    path = _file(root)
    path.unlink(missing_ok=True)
    with variables(**{VARIABLE: str(path)}):
        yield


def heard(root: Path) -> str:
    """What the stage that failed gave as its reason; "" when it gave none."""
    try:
        return _file(root).read_text(encoding="utf-8")
    except OSError:
        return ""


def _file(root: Path) -> Path:
    return root / ".headrace" / "reason"
