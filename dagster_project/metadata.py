"""What a materialisation shows: counts, spending, metrics, a preview, plots.

Law: all of it is read from the stage's outs, and from what the run that published
them told of its model calls; nothing is computed that the stage did not tell, but for
the plots of its rows that a view draws.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl

from assets.view import flat, preview, table, view_of
from pipelines.data.outcomes import OTHER
from pipelines.graph import Stage, data_version
from pipelines.llm.prices import told_usd
from pipelines.progress import last
from pipelines.step import read_outcomes

PLOTS = {".png": "image/png", ".svg": "image/svg+xml"}
SHALLOW = 2  # levels of a metric that is shown by itself
PLOT_BYTES = 400_000  # a larger picture would make the event log heavy

CALLS = {  # how the figures of a run's model calls are called here
    "rows_per_s": "rows per second",
    "answers": "answers",
    "answers_asked": "answers asked",
    "answers_stored": "answers stored before",
    "answers_failed": "answers failed",
    "answers_over_budget": "answers over budget",
    "answers_unpriced": "answers of unknown price",
    "stored_share": "stored share",
    "cost_usd": "spent in this run (USD)",
    "seconds": "seconds of model calls",
}

Metadata = dict[str, Any]


def describe(root: Path, stage: Stage, entry: Mapping[str, Any]) -> Metadata:
    """Metadata of one materialisation; `entry` is the stage's in dvc.lock."""
    rows = root / f"data/{stage.folder}/rows.parquet"
    outcomes = read_outcomes(root, stage.folder)
    found: Metadata = {} if outcomes is None else counts(outcomes)
    if rows.is_file():
        view, step = view_of(stage.key[0]), "/".join(stage.key[1:2])
        columns = view.previews.get(step, ())
        if step in view.plots:
            found |= _drawn(step, view.plots[step], rows)
        found["preview"] = dg.MetadataValue.md(preview(rows, columns))
        found["dagster/column_schema"] = column_schema(rows)
    found |= calls(root, stage)
    for path in _published(root, stage):
        found |= _metrics(path) if path.suffix == ".json" else _plot(path)
    found["data version"] = data_version(entry, stage) or "none"
    found["size"] = sum(int(o.get("size") or 0) for o in entry.get("outs", []))
    return found


def counts(outcomes: Mapping[str, Any]) -> Metadata:
    """Row counts, reasons, spending and metrics of an outcomes.json."""
    tokens = dict(outcomes.get("tokens") or {})
    found: Metadata = {
        "rows in": outcomes.get("rows_in"),
        "accepted": outcomes.get("accepted"),
        "rejected": outcomes.get("rejected"),
        "other": sum(int(outcomes.get(k) or 0) for k in OTHER),
        "dagster/row_count": outcomes.get("rows_out"),
        "tokens": sum(tokens.values()),
        "cost (USD)": cost(outcomes),
    }
    reasons = [{"reason": k, "items": v} for k, v in dict(outcomes.get("reasons") or {}).items()]
    reasons += [
        {"reason": f"accepted, {k}", "items": v} for k, v in dict(outcomes.get("notes") or {}).items()
    ]
    if reasons:
        found["reasons"] = dg.MetadataValue.md(table(reasons))
    found |= figures(dict(outcomes.get("metrics") or {}))
    return {k: v for k, v in found.items() if v is not None}


def cost(outcomes: Mapping[str, Any]) -> float | str:
    """What the answers of a stage cost; in words where a part is unknown, so that no 0 stands for it."""
    usd, unpriced = float(outcomes.get("cost_usd") or 0.0), int(outcomes.get("answers_unpriced") or 0)
    return told_usd(usd, unpriced, 6) if unpriced else usd


def calls(root: Path, stage: Stage) -> Metadata:
    """What the model calls of the run that published the outs came to; nothing where it made none."""
    told = last(root, stage.name, stage.folder)
    return {} if told is None else {f"calls/{CALLS[k]}": v for k, v in told.figures.items() if k in CALLS}


def column_schema(rows: Path) -> dg.TableSchema:
    """Names and types of a Parquet file's columns."""
    schema = pl.scan_parquet(rows).collect_schema()
    return dg.TableSchema(columns=[dg.TableColumn(name, str(kind)) for name, kind in schema.items()])


def _published(root: Path, stage: Stage) -> list[Path]:
    """Metrics and plots among the outs, and plots in out folders."""
    found = []
    for out in stage.outs:
        path = root / out
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        found += [p for p in inside if p.suffix in PLOTS or p.name == "metrics.json"]
    return [p for p in found if p.is_file()]


def _metrics(path: Path) -> Metadata:
    value = json.loads(path.read_text(encoding="utf-8"))
    return figures(value) if isinstance(value, Mapping) else {}


def figures(metrics: Mapping[str, Any]) -> Metadata:
    """Metrics of one or two levels each by name, so that Dagster draws them over time; deeper ones as tables.

    A page of hundreds of names shows nothing, and long ones run into the next column.
    """
    found: Metadata = {}
    deep: dict[str, list[dict[str, Any]]] = {}
    for name, value in flat(metrics).items():
        if name.count("/") < SHALLOW:
            found[f"metric/{name}"] = value
        else:
            top, rest = name.split("/", 1)
            deep.setdefault(top, []).append({"figure": rest.replace("/", " / "), "value": value})
    return found | {f"figures/{top}": dg.MetadataValue.md(table(rows)) for top, rows in deep.items()}


def _plot(path: Path) -> Metadata:
    content = path.read_bytes()
    if len(content) > PLOT_BYTES:
        return {f"plot/{path.stem}": dg.MetadataValue.path(str(path))}
    return _shown(path.stem, path.suffix, content)


def _drawn(step: str, draw: Callable[[Path], str | None], rows: Path) -> Metadata:
    """A plot of an artifact's rows; rows of another shape are told without it."""
    name = f"{step}_history"
    try:
        svg = draw(rows)
    except (pl.exceptions.PolarsError, KeyError, TypeError, ValueError) as e:
        return {f"plot/{name}": f"not drawn: {type(e).__name__}"}
    return {} if svg is None else _shown(name, ".svg", svg.encode())


def _shown(name: str, suffix: str, content: bytes) -> Metadata:
    data = base64.b64encode(content).decode()
    return {f"plot/{name}": dg.MetadataValue.md(f"![{name}](data:{PLOTS[suffix]};base64,{data})")}
