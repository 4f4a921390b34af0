"""The signals of a question, as `evaluation.uncertainty` wrote them: a column each, and what they are worth.

Law: a figure on few questions says so; nobody reads it as quality.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

SMALL = 200  # questions; with fewer the figures are no statement on quality
EVERGREEN = "evergreen_label"  # 1 evergreen, 0 mutable, as people said
P = "p_evergreen"


def sample(questions: int) -> dict[str, Any]:
    """How many questions the figures are of, and whether that is enough to speak of quality."""
    what = f"{questions} questions"
    few = questions < SMALL
    said = f"{what}: too few to speak of quality; this shows that the path works" if few else what
    return {"questions": questions, "demo": few, "what": said}


def names(rows: pl.DataFrame) -> list[str]:
    """The scores that the rows have, sorted."""
    found = rows["scores"].explode(empty_as_null=True).drop_nulls()
    return sorted(set(found.struct.field("name").to_list())) if len(found) else []


def score(rows: pl.DataFrame, name: str) -> np.ndarray:
    """One score, float64 [n], higher = less sure; NaN where a row has none."""
    values = (next((s["value"] for s in cell if s["name"] == name), None) for cell in rows["scores"])
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


def label(rows: pl.DataFrame) -> np.ndarray:
    """1 evergreen, 0 mutable, NaN where nobody said; float64 [n]."""
    return np.array([{"evergreen": 1.0, "mutable": 0.0}.get(v, np.nan) for v in rows["label"]], np.float64)


def column(rows: pl.DataFrame, name: str) -> np.ndarray:
    """A number or a flag, float64 [n]; NaN where it is null."""
    return rows[name].cast(pl.Float64).fill_null(float("nan")).to_numpy().astype(np.float64)


def signals(rows: pl.DataFrame) -> dict[str, np.ndarray]:
    """All signals by name, float64 [n] each, NaN where a row lacks it: label, P(evergreen), each score."""
    return {EVERGREEN: label(rows), P: column(rows, P), **{n: score(rows, n) for n in names(rows)}}
