"""EPIC-KITCHENS and EPIC-SOUNDS, as they are: counts add up and the answers tell nothing by their place."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from egoavu_workspace import STAGES, Workspace

pytestmark = pytest.mark.real


def lines_of(folder: Path) -> Counter[str]:
    """Records in each CSV, counted with the csv module alone."""
    found: Counter[str] = Counter()
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as f:
            found[path.name] = sum(1 for _ in csv.DictReader(f))
    return found


def check_counts(w: Workspace, lines: Counter[str]) -> None:
    made = {s: w.outcomes(s) for s in STAGES}
    assert made["ingest"]["items"] == sum(lines.values())
    for outcomes in made.values():
        kinds = ("accepted", "rejected", "refused", "unparsable", "unverified", "failed", "over_budget")
        assert sum(outcomes[k] for k in kinds) == outcomes["items"]
    for one, before in (("filter", "ingest"), ("graph", "filter"), ("narrate", "graph")):
        assert made[one]["rows_in"] == made[before]["rows_out"]
        assert made[one]["rows_out"] == made[one]["rows_in"] - len(w.rejected(one))
    assert made["questions"]["items"] == 9 * made["graph"]["rows_out"]


def test_ten_videos_give_enough_questions_with_even_answers(
    workspace: Callable[..., Workspace], real_data: Path
) -> None:
    source = real_data / "epic" / "aligned"
    w = workspace(source)
    w.params["egoavu"]["ingest"] = {"limit": 10}
    w.run()
    check_counts(w, lines_of(source))
    assert w.rows("ingest")["video_id"].n_unique() == 10
    rows = w.rows("questions")
    assert len(rows) >= 250
    assert set(rows["task"]) == {"SSA", "AVSN", "AVDN", "TR", "AVH"}
    letters = Counter(rows.filter(pl.col("task") == "TR")["answer"])
    assert max(letters.values()) - min(letters.values()) <= 1
    answers = Counter(rows.filter(pl.col("task") == "AVH")["answer"])
    assert answers["yes"] == answers["no"] > 0


@pytest.mark.slow
def test_all_videos_run_to_the_end_and_every_narration_is_faithful(
    workspace: Callable[..., Workspace], real_data: Path
) -> None:
    source = real_data / "epic" / "aligned"
    w = workspace(source)
    w.params["egoavu"]["filter"] = {"tau": 0.1}  # so that every video goes through
    w.run()
    check_counts(w, lines_of(source))
    with (source / "EPIC_Sounds_validation.csv").open(encoding="utf-8", newline="") as f:
        heard = {r["video_id"] for r in csv.DictReader(f)}
    with (source / "EPIC_100_validation.csv").open(encoding="utf-8", newline="") as f:
        told = Counter(r["video_id"] for r in csv.DictReader(f))
    assert set(w.rows("ingest")["video_id"]) == heard & set(told)
    silent = sum(n for video, n in told.items() if video not in heard)
    assert Counter(w.rejected("ingest")["reason"])["no_sound"] == silent > 0
    assert len(w.rejected("narrate")) == 0
    assert all(10 <= e - s <= 360.001 for s, e in w.rows("ingest").select("start_s", "end_s").iter_rows())
    times = [a for row in w.rows("ingest")["actions"] for a in row]
    assert all(a["start_s"] < a["end_s"] for a in times)
    assert sum(len(a) for a in w.rows("ingest")["actions"]) == sum(n for v, n in told.items() if v in heard)
