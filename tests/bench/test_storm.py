"""The storm bench: all rows done, no answer lost, and a ratio that is judged by its law."""

from __future__ import annotations

import json

import pytest

from pipelines.bench import storm
from pipelines.cli import main


@pytest.mark.slow
def test_a_small_storm_is_done_without_a_loss_and_told_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended = main(["bench", "storm", "--json", "--rows", "80"])
    figures = json.loads(capsys.readouterr().out)
    assert ended == int(not all(storm.laws(figures).values()))
    assert list(figures)[:4] == ["rows", "done", "lost", "time_over_ideal"]
    assert (figures["rows"], figures["done"], figures["lost"]) == (80, 80, 0)
    assert figures["sent"] > 110  # 45 % of what is sent comes to nothing
    assert figures["time_over_ideal"] > 0


def test_the_storm_bench_fails_for_a_row_not_done_an_answer_lost_or_twice_the_time() -> None:
    good = {"rows": 10, "done": 10, "lost": 0, "time_over_ideal": 2.0}
    assert list(storm.laws(good).values()) == [True, True, True]
    for worse in ({"done": 9}, {"lost": 1}, {"time_over_ideal": 2.01}):
        assert list(storm.laws(good | worse).values()).count(False) == 1
