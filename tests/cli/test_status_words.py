"""`headrace status` tells what is there and stale from what was never made, also of stages without rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines import graph
from pipelines.cli.status import lines, table


@pytest.mark.parametrize(
    ("there", "changed", "word"),
    [(True, True, "stale"), (False, True, "not made"), (True, False, "fresh")],
)
def test_a_stage_without_rows_is_stale_where_its_out_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool, changed: bool, word: str
) -> None:
    report = graph.Stage("evaluation.report", "", "", (), ("reports/index.html",), ())
    monkeypatch.setattr(graph, "state", lambda _: ([report], ["evaluation.report"] if changed else []))
    if there:
        (tmp_path / "reports").mkdir()
        (tmp_path / "reports" / "index.html").touch()
    assert table(lines(tmp_path)).split("\n")[1].endswith(f"  {word}")
