"""`headrace refresh` on a disk that takes no more: one line, nothing half-written, nothing asked twice."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import pytest
from evergreen_rows import filtered
from refresh_workspace import files, lay, noted

from pipelines.errors import EnvironmentFault
from pipelines.evergreen.refreshing.ask import refresh
from pipelines.evergreen.refreshing.observations import FOLDER

DAY = date(2025, 3, 1)
WORLD = """
from pathlib import Path
def world(question, language, day):
    with Path(__file__).with_name("calls.txt").open("a") as f:
        f.write(question + "\\n")
    return question * 60
"""


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """Meanwhile the machine refuses to let a file grow further, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_fills_while_a_callable_is_asked_keeps_what_was_answered(tmp_path: Path) -> None:
    (tmp_path / "world.py").write_text(WORLD)
    rows = [filtered(f"q{n}") for n in range(9)]
    lay(tmp_path, rows, source="callable", callable="world:world")
    with files_no_larger_than(900), pytest.raises(EnvironmentFault, match="cannot write: File too large"):
        refresh(tmp_path, DAY)
    assert files(tmp_path) == []
    report = refresh(tmp_path, DAY)
    assert (report.answered, len(noted(tmp_path))) == (9, 9)
    assert 0 < report.requests.kept == 9 - report.requests.sent
    calls = (tmp_path / "calls.txt").read_text().split()
    assert len(calls) == 10, "the answer that found no room is asked for again, and no other"


def test_a_disk_that_fills_while_observations_are_written_leaves_no_part_of_them(tmp_path: Path) -> None:
    lay(tmp_path, [filtered(f"q{n}") for n in range(9)])
    with files_no_larger_than(900), pytest.raises(EnvironmentFault, match="cannot write: File too large"):
        refresh(tmp_path, DAY, lambda question, language, day: question * 60)
    assert files(tmp_path) == []
    assert refresh(tmp_path, DAY, lambda question, language, day: question * 60).answered == 9


def test_what_cannot_be_tidied_away_does_not_stop_the_act(tmp_path: Path) -> None:
    lay(tmp_path, [filtered("q")])
    (tmp_path / FOLDER / ".a.jsonl.1.tmp").mkdir()
    assert refresh(tmp_path, DAY, lambda question, language, day: "a").file is not None
