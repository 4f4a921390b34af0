"""The evergreen section of the report: each table says what the figures say, and what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.evaluation import report_evergreen
from pipelines.evaluation.evergreen_figures import Beside, Params, evaluate
from pipelines.evaluation.report import _render
from pipelines.evaluation.report_tables import Table, bounded, number
from pipelines.evaluation.systems import described
from pipelines.evaluation.verbal_figures import figures_of


def scored(questions: int) -> pl.DataFrame:
    rows = [
        {
            "row_id": f"r{n}",
            "question_id": f"q{n:03}",
            "language": "en",
            "question": "How old is Tom Hanks?" if n % 4 == 0 else "Who wrote Emma?",
            "label": "mutable" if n % 4 == 0 else "evergreen",
            "change_rate": "fast" if n % 4 == 0 else "never",
            "leaked": "equal" if n == 1 else None,
            "split": "test",
            "source": "real",
            "p_evergreen": 0.2 if n % 4 == 0 else 0.9,
            "p_bag": 0.9,
            "p_contaminated": 0.9,
        }
        for n in range(questions)
    ]
    return pl.DataFrame(rows, schema_overrides={"leaked": pl.String})


def laid(root: Path, questions: int, small: int) -> Path:
    """The metrics and plots of both evaluations in `root`."""
    rows = scored(questions)
    params = Params(bootstrap=50, small=small)
    figures = {
        "evergreen": evaluate(rows, params, 7, Beside(rows, {"dev": rows.head(8)})),
        "verbal": figures_of(
            rows.with_columns(
                method=pl.lit("uar"),
                verdict=pl.lit("evergreen"),
                prompt_tokens=pl.lit(100),
                completion_tokens=pl.lit(3),
                cost_usd=pl.lit(0.00002),
            ),
            params,
            7,
            "some-model",
            tiny=False,
        ),
    }
    for name, told in figures.items():
        (root / "evaluation" / name).mkdir(parents=True)
        (root / "evaluation" / name / "metrics.json").write_text(json.dumps(told))
    judged = described(rows).with_columns(
        prediction=pl.when(pl.col("p_bag") >= 0.5).then(pl.lit("evergreen"))
    )
    judged.write_parquet(root / "evaluation/evergreen/rows.parquet")
    for name in report_evergreen.PLOTS:
        (root / "evaluation/evergreen" / name).write_text("<svg></svg>")
    return root


def by_title(tables: list[Table]) -> dict[str, Table]:
    return {t.title: t for t in tables}


def test_the_tables_say_what_the_figures_say(tmp_path: Path) -> None:
    tables = by_title(report_evergreen.tables(laid(tmp_path, 40, 10)))
    cells = {t: {r[0]: list(r[1:]) for r in table.rows} for t, table in tables.items()}
    main = cells["The classifier and what it must beat"]
    assert list(main)[:4] == ["classifier", "bag of ngrams", "without decontamination", "constant"]
    assert list(cells["Base rates and calibration by split"]) == ["dev", "test"]
    assert main["classifier"][0] == "1.000 (1.000 to 1.000)"
    assert main["constant"][0].startswith("0.643 ")  # 0.75 x F1 of 30 in 40
    assert main["constant"][1].startswith("0.357 ")
    assert cells["By language"]["en"][1:] == ["30", "0", "0", "10"]
    kinds = cells["Errors by kind of question"]
    assert kinds["living person"] == ["10", "10", "0.000", "0", "0.000", "0", "–", "1.000"]
    assert kinds["recent year"] == ["0", "0", "–", "–", "–", "–", "–", "–"]
    forms = cells["By form of the question"]
    assert forms["how old"][:3] == ["10", "0.000", "1.000"]
    assert cells["How right the surest verdicts are"]["100%"][1].startswith("0.250 ")
    assert cells["Base rates and calibration by split"]["dev"][:2] == ["8", "0.750"]
    assert cells["P(evergreen) by graded change rate"]["dev, fast"][1] == "0.200 (0.200 to 0.200)"
    assert cells["Asked of some-model"]["uar"][3:] == ["0 of 40", "100,000", "3,000", "0.020"]
    assert "1 test questions stand in train, 0 more nearly" in tables["Full and decontaminated"].about
    assert all(t.note == "" for t in tables.values())
    assert all(len(row) == len(t.columns) for t in tables.values() for row in t.rows)


def test_the_surest_errors_of_a_kind_are_shown_each_question_in_its_surest_wording(tmp_path: Path) -> None:
    data = laid(tmp_path, 40, 10)
    path = data / "evaluation/evergreen/rows.parquet"
    rows = pl.read_parquet(path)
    german = rows.filter(question_id="q008").with_columns(
        row_id=pl.lit("r8de"), language=pl.lit("de"), question=pl.lit("Wie alt?"), p_evergreen=pl.lit(0.9)
    )
    pl.concat([rows, german]).write_parquet(path)
    tables = by_title(report_evergreen.tables(data))
    assert tables["Examples of errors"].rows == [
        ["living person", "evergreen", "0.900", "de", "Wie alt?"],
        ["living person", "evergreen", "0.200", "en", "How old is Tom Hanks?"],
    ]


def test_every_table_of_too_few_questions_says_so(tmp_path: Path) -> None:
    tables = report_evergreen.tables(laid(tmp_path, 40, 41))
    assert all("to speak of quality" in t.note for t in tables)


def test_the_page_escapes_what_a_table_holds(tmp_path: Path) -> None:
    table = Table("a <b>", "c & d", ["x"], [["<script>"]], "e <f>")
    engine: dict[str, Any] = {
        "name": "n", "title": "t", "text": "", "count": 0, "plots": ["<svg></svg>"], "tables": [table],
        "columns": [], "rows": [],
    }  # fmt: skip
    html = _render({"stages": [], "engines": [engine], "metrics": [], "versions": {}})
    assert '<td class="name">&lt;script&gt;</td>' in html
    assert "<h3>a &lt;b&gt;</h3>" in html
    assert "e &lt;f&gt;" in html
    assert "<figure><svg></svg></figure>" in html


@pytest.mark.parametrize(("value", "told"), [(None, "–"), (1234, "1,234"), (0.5, "0.500"), (0, "0")])
def test_a_missing_figure_is_a_dash_and_a_count_has_no_digits(value: float | None, told: str) -> None:
    assert number(value) == told


def test_a_figure_stands_with_its_bounds() -> None:
    assert bounded({"value": 0.5, "low": 0.25, "high": 0.75}) == "0.500 (0.250 to 0.750)"
