"""What a materialisation shows of many metrics: few by name, the rest in tables."""

from __future__ import annotations

import pytest

from dagster_project.metadata import counts, figures


def test_shallow_metrics_stand_by_name_and_deep_ones_in_a_table_of_their_own() -> None:
    told = figures(
        {
            "rows": 9,
            "classifier": {"ece": 0.25, "weighted_f1": {"fr": {"value": 0.875, "low": 0.5}}, "bins": [1, 2]},
            "strata": {"how_old": {"rows": 3}},
        }
    )
    assert {k: v for k, v in told.items() if k.startswith("metric/")} == {
        "metric/rows": 9,
        "metric/classifier/ece": 0.25,
    }
    assert {k: v.value for k, v in told.items() if k.startswith("figures/")} == {
        "figures/classifier": "| figure | value |\n|---|---|\n"
        "| weighted\\_f1 / fr / value | 0.875 |\n| weighted\\_f1 / fr / low | 0.5 |",
        "figures/strata": "| figure | value |\n|---|---|\n| how\\_old / rows | 3 |",
    }


@pytest.mark.parametrize(
    ("usd", "unpriced", "shown"),
    [(0.25, 0, 0.25), (0.0, 0, 0.0), (0.0, 3, "unknown"), (0.25, 3, "at least 0.250000")],
)
def test_a_cost_that_nobody_knows_is_shown_as_unknown(usd: float, unpriced: int, shown: float | str) -> None:
    told = {"cost_usd": usd, **({"answers_unpriced": unpriced} if unpriced else {})}
    assert counts(told)["cost (USD)"] == shown


def test_hundreds_of_figures_make_few_entries() -> None:
    many = {f"model{i}": {"f1": {f"language{j}": {"value": 0.5} for j in range(7)}} for i in range(20)}
    assert len(figures(many)) == 20
