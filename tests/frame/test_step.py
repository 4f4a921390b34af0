"""A stage publishes all of its outs or none, and its counts add up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from pipelines.data.outcomes import Outcome
from pipelines.data.rows import Schema
from pipelines.errors import Place, StageError
from pipelines.gates.suite import Expect, Suite
from pipelines.step import GateFailure, Step

SCHEMA = Schema("toy.make", {"text": pl.String}, ("text",))
SHORT = Suite("toy", lambda rows: {"rows": len(rows)}, (Expect("rows", "at most one row", high=1),))
NAMES = ["origin.parquet", "outcomes.json", "rejected.parquet", "rows.parquet"]


def made(root: Path, texts: list[str], gate: Suite | None = None) -> Step:
    step = Step("toy.make", None, root, seed=7)
    step.plan([*texts, "bad"])
    for text in texts:
        step.accept(text, SCHEMA.row(text=text))
    step.reject("bad", "empty", place=Place("raw.csv", 3, "text"), raw="bad,")
    step.table("origin", pl.DataFrame({"row_id": ["a"], "line": [1]}))
    step.finish(SCHEMA, gate)
    return step


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []


def test_all_outs_appear_and_the_counts_add_up(tmp_path: Path) -> None:
    made(tmp_path, ["a", "b"])
    folder = tmp_path / "data" / "toy" / "make"
    assert names(folder) == NAMES
    seen = json.loads((folder / "outcomes.json").read_text())
    assert (seen["items"], seen["accepted"], seen["rejected"], seen["rows_out"]) == (3, 2, 1, 2)
    assert seen["reasons"] == {"rejected(empty)": 1}
    reject = pl.read_parquet(folder / "rejected.parquet").to_dicts()[0]
    assert (reject["file"], reject["line"], reject["column"], reject["raw"]) == ("raw.csv", 3, "text", "bad,")


def test_a_refused_artifact_is_held_outside_the_graph_and_its_verdict_is_told(tmp_path: Path) -> None:
    with pytest.raises(GateFailure, match=r"at most one row \(rows = 2\) \(see .headrace/held/toy/make/rows"):
        made(tmp_path, ["a", "b"], SHORT)
    folder = tmp_path / "data" / "toy" / "make"
    assert names(folder) == ["outcomes.json", "rejected.parquet"]
    gate = json.loads((folder / "outcomes.json").read_text())["gate"]
    assert gate["passed"] is False
    assert gate["checks"][0]["value"] == 2
    assert len(pl.read_parquet(tmp_path / ".headrace/held/toy/make/rows.parquet")) == 2


def test_a_gate_that_holds_lets_the_rows_pass_and_an_earlier_refusal_is_past(tmp_path: Path) -> None:
    with pytest.raises(GateFailure):
        made(tmp_path, ["a", "b"], SHORT)
    made(tmp_path, ["a"], SHORT)
    assert names(tmp_path / "data" / "toy" / "make") == NAMES
    assert names(tmp_path / ".headrace" / "held" / "toy" / "make") == []


def test_a_gate_with_a_measure_that_is_no_number_fails_rather_than_passes(tmp_path: Path) -> None:
    blind = Suite("toy", lambda rows: {"share": float("nan")}, (Expect("share", "some", low=0.5),))
    with pytest.raises(StageError, match="measure 'share' is nan"):
        made(tmp_path, ["a"], blind)


def test_a_lost_item_fails_the_stage_and_leaves_the_earlier_outs_alone(tmp_path: Path) -> None:
    made(tmp_path, ["a"])
    before = (tmp_path / "data/toy/make/rows.parquet").read_bytes()
    step = Step("toy.make", None, tmp_path, seed=7)
    step.plan(["a", "b"])
    step.accept("a", SCHEMA.row(text="a"))
    with pytest.raises(StageError, match="1 of 2 work items have no outcome"):
        step.finish(SCHEMA)
    assert (tmp_path / "data/toy/make/rows.parquet").read_bytes() == before


def test_a_passing_failure_ends_the_stage_unless_params_allow_a_share(tmp_path: Path) -> None:
    for allowed, ok in ((0.0, False), (0.4, False), (0.5, True)):
        step = Step("toy.make", None, tmp_path, seed=7)
        step.plan(["a", "b"])
        step.accept("a", SCHEMA.row(text="a"))
        step.settle("b", Outcome.FAILED, "timeout")
        if ok:
            step.finish(SCHEMA, allow_failed=allowed)
        else:
            with pytest.raises(StageError, match="1 of 2 items failed, first 'b': timeout"):
                step.finish(SCHEMA, allow_failed=allowed)


def test_an_out_that_was_announced_but_never_written_is_an_error(tmp_path: Path) -> None:
    step = Step("toy.make", None, tmp_path, seed=7)
    step.plan(["a"])
    step.accept("a", SCHEMA.row(text="a"))
    step.out("model")
    with pytest.raises(StageError, match="never wrote its out 'model'"):
        step.finish(SCHEMA)


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = [{tests!r}, {root!r}]
import pipelines.publish as publish
count, real = 0, os.replace
def replace(a, b):
    global count
    if "making" in str(a) and "making" not in str(b):
        count += 1
        if count == {at}:
            os.kill(os.getpid(), signal.SIGKILL)
    real(a, b)
publish.os.replace = replace
from test_step import made
made(Path({work!r}), ["a", "b"])
"""


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_killed_between_two_renames_the_rows_are_missing_and_a_rerun_gives_the_same_bytes(
    tmp_path: Path, at: int
) -> None:
    here = Path(__file__)
    script = KILLED.format(tests=str(here.parent), root=str(here.parents[2]), work=str(tmp_path), at=at)
    died = subprocess.run([sys.executable, "-c", script], check=False)
    assert died.returncode == -signal.SIGKILL
    folder = tmp_path / "data" / "toy" / "make"
    assert "rows.parquet" not in names(folder)
    made(tmp_path, ["a", "b"])
    assert names(folder) == NAMES
    undisturbed = tmp_path / "other"
    made(undisturbed, ["a", "b"])
    for name in NAMES:
        assert (folder / name).read_bytes() == (undisturbed / "data/toy/make" / name).read_bytes()
    assert not (tmp_path / ".headrace" / "making" / "toy" / "make").exists()


def test_the_store_path_can_be_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from pipelines.step import store_path

    assert store_path(tmp_path) == tmp_path / ".headrace" / "responses.sqlite"
    monkeypatch.setitem(os.environ, "HEADRACE_STORE", "/elsewhere/answers.sqlite")
    assert store_path(tmp_path) == Path("/elsewhere/answers.sqlite")
