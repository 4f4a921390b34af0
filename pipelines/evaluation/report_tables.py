"""A table of the report, and how its cells are written.

Law: a cell is text made here; the page escapes it. A figure that is not there is a dash, never a zero.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BLANK = "–"
Figures = Mapping[str, Any]  # a metrics.json, or a part of one


@dataclass(frozen=True)
class Table:
    """A table as the page shows it; the first column holds names, the others figures."""

    title: str
    about: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""  # what the figures are not


def figures(artifact: Path) -> Figures:
    """What an evaluation or training artifact measured."""
    told: Figures = json.loads((artifact / "metrics.json").read_text(encoding="utf-8"))
    return told


def warning(told: Figures) -> str:
    """What figures on the sample are not; nothing on other data."""
    return str(told["sample"]["what"]) if told["sample"]["demo"] else ""


def in_order(found: Iterable[str], usual: Sequence[str]) -> list[str]:
    """The names in the usual order, those that are in none behind them by their letters."""
    place = {name: n for n, name in enumerate(usual)}
    return sorted(found, key=lambda name: (place.get(name, len(place)), name))


def words(name: str) -> str:
    """A figure's name as the page says it."""
    return name.replace("_", " ")


def bounded(interval: Mapping[str, float]) -> str:
    """A figure with its bounds."""
    return f"{interval['value']:.3f} ({interval['low']:.3f} to {interval['high']:.3f})"


def number(value: float | None) -> str:
    """A count as it is, another figure with three digits, a dash for none."""
    if value is None:
        return BLANK
    return whole(value) if isinstance(value, int) else f"{value:.3f}"


def whole(value: float) -> str:
    """A count."""
    return f"{value:,.0f}"
