"""The stage `evaluation.report`: one self-contained page of all that the graph made.

Law: the page is a pure function of the artifacts and of the stored answers; it
loads nothing from elsewhere, and calls every figure what it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.data.outcomes import OTHER
from pipelines.data.tables import file_md5, replace
from pipelines.evaluation import report_evergreen, report_self_knowledge
from pipelines.evaluation.report_plots import PLOTS
from pipelines.lineage import Tracer, lines
from pipelines.step import ANSWERS, Step, store_path

TEMPLATE = "report.html.j2"
JOBS = (
    "training/evergreen",
    "evaluation/evergreen",
    "evaluation/verbal",
    "training/self_knowledge",
    "evaluation/implicit",
    "evaluation/retrieval_explained",
)
MORE = {
    "evergreen": report_evergreen,
    "self_knowledge": report_self_knowledge,
}  # engines whose section has tables and further plots


@dataclass(frozen=True)
class Params:
    samples: int = 10  # rows shown an engine, each with its trace


@dataclass(frozen=True)
class Engine:
    """What the page says of an engine: its last artifacts, and which columns a person wants to see."""

    name: str
    title: str
    text: str
    steps: tuple[str, ...]  # in the order of the graph
    artifacts: tuple[str, ...]  # folders below data/, or patterns of them
    columns: tuple[str, ...]


ENGINES = (
    Engine(
        "evergreen",
        "EverGreenQA synthesis",
        "Questions by whether their answer changes, and the history of the answers that did. "
        "Labels come from the sources; the classifier's P(evergreen) is beside them.",
        (
            "evergreen/ingest",
            "evergreen/synthesize",
            "evergreen/verify",
            "evergreen/translate",
            "evergreen/aliases",
            "evergreen/curate",
            "training/evergreen",
            "evaluation/evergreen",
            "evaluation/verbal",
            "evergreen/classify",
            "evergreen/filter",
            "evergreen/refresh",
        ),
        ("evergreen/refresh",),
        ("language", "question", "answer", "label", "p_evergreen", "valid_from", "valid_to", "review"),
    ),
    Engine(
        "self_knowledge",
        "Self-knowledge",
        "Questions that a model was asked, how unsure it was, and whether it was right; beside it the "
        "classifier's P(evergreen), which takes no answer at all.",
        (
            "evaluation/uncertainty",
            "training/self_knowledge",
            "evaluation/implicit",
            "evaluation/retrieval_explained",
        ),
        ("evaluation/uncertainty",),
        ("question", "answer", "golds", "correct", "label", "searched", "p_evergreen"),
    ),
    Engine(
        "egoavu",
        "EgoAVU narration graphs",
        "Questions on annotated clips. Every answer is read from an edge or a node of the context graph.",
        ("egoavu/ingest", "egoavu/filter", "egoavu/graph", "egoavu/narrate", "egoavu/questions"),
        ("egoavu/questions",),
        ("task", "modality", "question", "options", "answer", "split"),
    ),
    Engine(
        "trit",
        "TRIT translation-reasoning loops",
        "Translations by a tiny model, rewarded when the translated problem can still be solved. "
        "The reward sees that the sums come out, not that the words are right: read the rows.",
        ("trit/ingest", "trit/translate/*", "trit/reason/*", "trit/feedback/*"),
        ("trit/feedback/*",),
        ("kind", "language", "english", "text", "valid", "reason", "acc", "reward", "advantage"),
    ),
    Engine(
        "cbu",
        "Consequence-based utility",
        "Candidate solutions scored by how much they help a tiny solver on neighboring problems.",
        ("cbu/ingest", "cbu/neighbors", "cbu/rollout", "cbu/score"),
        ("cbu/score",),
        ("question", "solution", "label", "utility", "low", "high", "lift", "rank"),
    ),
)


def run(step: Step, params: Params) -> None:
    """Writes reports/index.html. Raises StageError when an artifact is missing or unreadable."""
    data = step.root / "data"
    tracer = Tracer(step.root, store_path(step.root), step.root / ANSWERS)
    page = {
        "stages": list(_stages(data)),
        "engines": [_engine(step, tracer, e, params.samples) for e in ENGINES],
        "metrics": _metrics(data),
        "versions": _versions(data),
    }
    html = _render(page)
    replace(step.root / "reports" / "index.html", lambda beside: beside.write_text(html, encoding="utf-8"))


def _stages(data: Path) -> Iterator[dict[str, Any]]:
    """The table of counts, in the order of the graph."""
    for step in (s for e in ENGINES for s in e.steps):
        for path in sorted(data.glob(f"{step}/outcomes.json")):
            seen = json.loads(path.read_text(encoding="utf-8"))
            yield {
                **{k: seen[k] for k in ("stage", "rows_in", "items", "accepted", "rejected", "rows_out")},
                "other": sum(seen[o] for o in OTHER),
                "reasons": seen["reasons"],
                "notes": seen["notes"],
                "tokens": seen["tokens"]["completion"],
                "gate": seen["gate"],
            }


def _engine(step: Step, tracer: Tracer, engine: Engine, samples: int) -> dict[str, Any]:
    data = step.root / "data"
    frames = [pl.read_parquet(p / "rows.parquet") for a in engine.artifacts for p in sorted(data.glob(a))]
    rows = pl.concat(frames) if frames else pl.DataFrame()
    step.rows_in += len(rows)
    columns = [c for c in engine.columns if c in rows.columns]
    more = MORE.get(engine.name)
    return {
        "name": engine.name,
        "title": engine.title,
        "text": engine.text,
        "count": len(rows),
        "plots": [PLOTS[engine.name](data), *(more.plots(data) if more else [])],
        "tables": more.tables(data) if more else [],
        "columns": columns,
        "rows": [
            {
                "id": row["row_id"],
                "cells": [_cell(row[c]) for c in columns],
                "trace": "\n".join(lines(tracer.trace(row["row_id"]))),
            }
            for row in _sample(rows, samples, step.seed).to_dicts()
        ],
    }


def _sample(rows: pl.DataFrame, count: int, seed: int) -> pl.DataFrame:
    """`count` rows by a hash of (seed, row id): the same whatever the order or other rows."""
    if rows.is_empty():
        return rows
    keys = [hashlib.sha256(f"{seed}\x1f{i}".encode()).hexdigest() for i in rows["row_id"]]
    return rows.with_columns(pl.Series("_key", keys)).sort("_key").head(count).drop("_key")


def _metrics(data: Path) -> list[dict[str, Any]]:
    """metrics.json of the jobs, flat, each with the version of the data that it was measured on."""
    found = []
    for job in JOBS:
        path = data / job / "metrics.json"
        values = json.loads(path.read_text(encoding="utf-8"))
        found.append(
            {
                "job": job,
                "what": values.get("sample", {}).get("what", ""),
                "values": list(_flat(values)),
                "version": file_md5(path),
            }
        )
    return found


def _versions(data: Path) -> dict[str, str]:
    """MD5 of each rows file: what dvc.lock calls its version."""
    return {
        p.parent.relative_to(data).as_posix(): file_md5(p) for p in sorted(data.glob("*/**/rows.parquet"))
    }


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in sorted(value.items()):
            yield from _flat(inner, f"{name}.{key}" if name else key)
    else:
        yield name, _cell(value)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, list):
        return "; ".join(_cell(v) for v in value)
    return str(value)


def _render(page: dict[str, Any]) -> str:
    """HTML with everything that came from data escaped."""
    import jinja2

    text = (Path(__file__).parent / TEMPLATE).read_text(encoding="utf-8")
    env = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return env.from_string(text).render(**page)
