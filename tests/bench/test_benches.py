"""The benches give the figures that they promise, and at any size the laws that are counts hold."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest

from pipelines.bench import BENCHES, llm, resume
from pipelines.bench.measure import Contender
from pipelines.bench.mock_server import MockServer, Script
from pipelines.cli import main
from pipelines.errors import EnvironmentFault

MEASURED = "pipelines.bench.rows"


def test_the_resume_bench_loses_nothing_and_asks_only_for_what_is_new() -> None:
    figures = resume.run(rows=64, in_flight=8)
    assert list(figures) == [
        "repeated",
        "in_flight",
        "lost",
        "added_row_requests",
        "parser_edit_requests",
        "warm_requests",
        "warm_rows_per_s",
        "warm_peak_mb",
    ]
    assert figures["lost"] == 0 and figures["repeated"] <= figures["in_flight"] == 8
    assert [figures[f"{n}_requests"] for n in ("added_row", "parser_edit", "warm")] == [1, 0, 0]
    assert figures["warm_rows_per_s"] > 0 and figures["warm_peak_mb"] > 0


def test_the_llm_bench_prints_its_figures_as_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    ended = main(["bench", "llm", "--json", "--rows", "40"])
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    figures = json.loads(line)
    assert ended == int(not all(llm.laws(figures).values()))
    assert list(figures) == [
        "rows_per_s",
        "cpu_s_per_1000",
        "floor_rows_per_s",
        "floor_cpu_s_per_1000",
        "naive_rows_per_s",
        "peak_mb",
    ]
    assert all(value > 0 for value in figures.values())


def test_the_llm_bench_holds_headrace_to_its_shares_of_the_floor() -> None:
    good = {"rows_per_s": 600, "floor_rows_per_s": 1000, "naive_rows_per_s": 250}
    good |= {"cpu_s_per_1000": 0.5, "floor_cpu_s_per_1000": 0.2}
    assert list(llm.laws(good).values()) == [True, True, True]
    for worse in ({"rows_per_s": 599}, {"cpu_s_per_1000": 0.51}, {"naive_rows_per_s": 251}):
        assert list(llm.laws(good | worse).values()).count(False) == 1


@pytest.mark.parametrize("form", [["--json"], []])
@pytest.mark.parametrize(("fast", "ended"), [(True, 0), (False, 1)])
def test_a_bench_ends_well_only_if_its_laws_hold_and_says_its_figures_in_any_case(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    form: list[str],
    fast: bool,
    ended: int,
) -> None:
    toy: Any = ModuleType("pipelines.bench.toy")
    toy.ROWS, toy.run = 10, lambda rows: {"rows": rows, "fast": fast}
    toy.laws = lambda figures: {"it counts": True, "it is fast": figures["fast"]}
    monkeypatch.setitem(sys.modules, "pipelines.bench.toy", toy)
    monkeypatch.setitem(BENCHES, "toy", "a toy")
    assert main(["bench", "toy", *form]) == ended
    said = capsys.readouterr()
    assert ('{"rows": 10, "fast": ' in said.out) == bool(form) and "10" in said.out
    assert said.err == ("" if fast else "headrace: bench toy fails: it is fast\n")


def test_an_unknown_bench_is_named_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "resum"]) != 0
    assert "there is no bench 'resum' (did you mean 'resume'?)" in capsys.readouterr().err
    assert {"llm", "resume"} <= set(BENCHES)


def test_the_help_lists_the_benches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0 and all(f"{name}:" in said for name in BENCHES)


def run(server: MockServer, folder: Path, rows: int, parser: str = "plain") -> dict[str, str]:
    """Values by row as a run over the store in `folder` wrote them."""
    paths = (str(folder / "s.sqlite"), str(folder / "rows.parquet"))
    measured = Contender(MEASURED, server.url, *paths, str(rows), "8", parser).measure()
    assert measured.said["rows"] == rows
    frame = pl.read_parquet(folder / "rows.parquet")
    return dict(zip(frame["row"], frame["value"], strict=True))


def test_the_measured_work_writes_what_the_server_answered_and_a_parser_changes_it(tmp_path: Path) -> None:
    with MockServer(latency_ms=1, log=tmp_path / "log.jsonl") as server:
        values = run(server, tmp_path, 20)
        assert sorted(values.values()) == sorted(r["question"][:12] for r in server.requests())
        assert run(server, tmp_path, 20, "upper") == {row: v.upper() for row, v in values.items()}
        assert server.stats()["requests"] == 20


def test_the_mock_server_counts_and_logs_each_request_with_its_fault(tmp_path: Path) -> None:
    script = {"shares": {"429": 0.2, "500": 0.2}, "seed": 3, "retry_after_s": [0.01, 0.02]}
    with MockServer(script, latency_ms=1, log=tmp_path / "log.jsonl") as server:
        run(server, tmp_path, 60)
        logged, stats = server.requests(), server.stats()
    assert stats["answers"] == stats["questions"] == 60
    assert stats["requests"] == len(logged) > 60
    assert Counter(r["fault"] for r in logged if r["fault"]) == stats["faults"]
    assert stats["faults"].keys() == {"429", "500"}
    assert stats["most_in_flight"] <= 8
    drawn = Script(**{**script, "retry_after_s": (0.01, 0.02)})
    assert all(drawn.fault(r["question"], r["attempt"])[0] == r["fault"] for r in logged)


def test_a_contender_that_dies_is_an_error_and_not_a_figure(tmp_path: Path) -> None:
    folder = tmp_path / "no" / "store"
    (tmp_path / "no").write_text("a file in the way")
    arguments = ("http://127.0.0.1:9", str(folder / "s"), str(folder / "o"), "4", "2", "plain")
    with pytest.raises(EnvironmentFault, match="pipelines.bench.rows .* ended before it was done"):
        Contender(MEASURED, *arguments).measure()


def test_a_contender_that_has_ended_by_itself_can_be_killed_all_the_same(tmp_path: Path) -> None:
    arguments = ("http://127.0.0.1:9", str(tmp_path / "s"), str(tmp_path / "o"), "4", "2", "plain")
    contender = Contender(MEASURED, *arguments)
    assert contender.process.stdin is not None
    contender.process.stdin.write(b"stop\n")
    os.waitid(os.P_PID, contender.process.pid, os.WEXITED | os.WNOWAIT)
    contender.kill()
    assert contender.process.returncode == 0
