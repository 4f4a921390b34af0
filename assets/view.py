"""What Dagster shows of an engine's artifacts.

Law: a view only chooses and shortens; a column that an artifact does not have
is left out, and an artifact that no view names is shown as it comes.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from assets.expected import Expectation

PREVIEW_ROWS = 6
TEXT_WIDTH = 90  # characters of one cell
FEW_COLUMNS = 4  # more would be cut off at the right


@dataclass(frozen=True)
class View:
    """One engine's artifacts as a person wants to see them; steps are named as in dvc.yaml."""

    previews: Mapping[str, Sequence[str]] = field(default_factory=dict)  # step -> columns, in order
    gated: frozenset[str] = frozenset()  # steps whose artifact has a gate
    expected: Mapping[str, Sequence[Expectation]] = field(default_factory=dict)  # step -> further checks
    bounds: str = ""  # engine whose section under `checks` in params.yaml those checks hold it against
    plots: Mapping[str, Callable[[Path], str | None]] = field(default_factory=dict)  # step -> SVG of its rows


@cache
def view_of(engine: str) -> View:
    """The view in `assets/<engine>.py`; a plain one for an engine that has none."""
    if not (Path(__file__).parent / f"{engine}.py").is_file():
        return View()
    view = getattr(importlib.import_module(f"assets.{engine}"), "VIEW", None)
    return view if isinstance(view, View) else View()


def preview(rows: Path, columns: Sequence[str] = (), count: int = PREVIEW_ROWS) -> str:
    """The first rows of a Parquet file as a Markdown table, long texts cut."""
    frame = pl.scan_parquet(rows)
    names = frame.collect_schema().names()
    shown = [c for c in columns if c in names] or [c for c in names if not c.startswith("row_id")]
    head = frame.select(shown[:FEW_COLUMNS]).head(count).collect()
    lines = [f"| {' | '.join(head.columns)} |", f"|{'---|' * len(head.columns)}"]
    lines += [f"| {' | '.join(cell(v) for v in row)} |" for row in head.iter_rows()]
    return "\n".join(lines)


def cell(value: Any) -> str:
    """A value as the text of one Markdown cell: one line, no markup of its own, cut when long."""
    if isinstance(value, float):
        value = f"{value:.4g}"
    elif isinstance(value, (list, dict)):
        value = json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(str("" if value is None else value).split())
    text = text if len(text) <= TEXT_WIDTH else f"{text[: TEXT_WIDTH - 1]}…"
    for mark in "\\|`*_<>[]":
        text = text.replace(mark, f"\\{mark}")
    return text


def table(records: Sequence[Mapping[str, Any]]) -> str:
    """Records with the same keys as a Markdown table."""
    if not records:
        return "none"
    columns = list(records[0])
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    lines += [f"| {' | '.join(cell(r.get(c)) for c in columns)} |" for r in records]
    return "\n".join(lines)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, float | int | str | bool]:
    """Nested metrics as one level, "weighted_f1/fr"; lists are left out."""
    found: dict[str, float | int | str | bool] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= flat(value, f"{name}/")
        elif isinstance(value, (bool, int, float, str)):
            found[name] = value
    return found
