"""One plot an engine, as SVG text; equal data gives equal bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WATER, SAND, STONE = "#0b6e8f", "#d08a2e", "#9fb0ba"


def evergreen(data: Path) -> str:
    """P(evergreen) of the test wordings, by the label that people gave."""
    rows = pl.read_parquet(data / "evaluation/evergreen/rows.parquet")
    figure, (ax,) = _figure(1)
    bins = [i / 20 for i in range(21)]
    for label, color in (("evergreen", WATER), ("mutable", SAND)):
        values = rows.filter(pl.col("label") == label)["p_evergreen"].to_list()
        ax.hist(values, bins=bins, color=color, alpha=0.7, label=f"{label} ({len(values)})")
    _name(ax, "P(evergreen) of the test questions, in all languages", "P(evergreen)", "wordings")
    ax.legend(frameon=False)
    return _svg(figure)


def self_knowledge(data: Path) -> str:
    """P(evergreen) of the questions whose answer was right and wrong, and what goes with a logged search."""
    rows = pl.read_parquet(data / "evaluation/uncertainty/rows.parquet")
    told = json.loads((data / "evaluation/retrieval_explained/metrics.json").read_text(encoding="utf-8"))
    figure, (answers, signals) = _figure(2)
    bins = [i / 10 for i in range(11)]
    for right, name, color in ((True, "right", WATER), (False, "wrong", SAND)):
        values = rows.filter(pl.col("correct") == right)["p_evergreen"].drop_nulls().to_list()
        answers.hist(values, bins=bins, color=color, alpha=0.7, label=f"{name} ({len(values)})")
    _name(answers, "P(evergreen) by the answer", "P(evergreen)", "questions")
    answers.legend(frameon=False)
    known = {n: abs(s["pearson"]) for n, s in sorted(told["signals"].items()) if s["pearson"] is not None}
    names = [n.replace("_", " ") for n in known]
    signals.barh(names, list(known.values()), color=STONE)
    _name(signals, "|r| with the logged search flag", "", "")
    return _svg(figure)


def egoavu(data: Path) -> str:
    """How many questions of each task, and where the right options stand."""
    rows = pl.read_parquet(data / "egoavu/questions/rows.parquet")
    figure, (tasks, places) = _figure(2)
    by_task = rows.group_by("task").len().sort("task")
    _bars(tasks, by_task["task"].to_list(), by_task["len"].to_list(), WATER)
    _name(tasks, "questions by task", "", "questions")
    closed = (
        rows.filter(pl.col("task").is_in(["TR", "AVH"]))
        .group_by("task", "answer")
        .len()
        .sort("task", "answer")
    )
    names = [a if len(a) <= 4 else a[:4] for a in closed["answer"].to_list()]
    _bars(
        places,
        [f"{t} {a}" for t, a in zip(closed["task"], names, strict=True)],
        closed["len"].to_list(),
        STONE,
    )
    _name(places, "answers of the closed tasks", "", "")
    return _svg(figure)


def trit(data: Path) -> str:
    """Acc of the translations of each language; invalid ones apart."""
    frames = [pl.read_parquet(p) for p in sorted(data.glob("trit/feedback/*/rows.parquet"))]
    rows = pl.concat(frames).filter(pl.col("kind") == "translation")
    languages = sorted(set(rows["language"]))
    figure, axes = _figure(max(len(languages), 1))
    for ax, language in zip(axes, languages, strict=False):
        own = rows.filter(pl.col("language") == language)
        counts = [int((~own["valid"]).sum())]
        edges = [0.0, 1e-9, 0.5, 1.0 - 1e-9, 1.01]
        acc = own.filter("valid")["acc"].drop_nulls().to_list()
        counts += [sum(low <= a < high for a in acc) for low, high in pairwise(edges)]
        _bars(ax, ["invalid", "0", "(0, .5)", "[.5, 1)", "1"], counts, WATER)
        _name(ax, f"translations to {language}", "Acc of their rollouts", "translations")
    return _svg(figure)


def cbu(data: Path) -> str:
    """Utility of each candidate, by whether it is known to be right."""
    rows = pl.read_parquet(data / "cbu/score/rows.parquet").sort("question", "row_id")
    figure, (ax,) = _figure(1)
    problems = sorted(set(rows["question"]))
    for label, color in (("right", WATER), ("wrong", SAND), (None, STONE)):
        same = pl.col("label").is_null() if label is None else pl.col("label") == label
        own = rows.filter(same & pl.col("utility").is_not_null())
        if len(own):
            places = [problems.index(q) + 1 for q in own["question"]]
            ax.scatter(
                places, own["utility"].to_list(), color=color, label=label or "unlabelled", s=36, alpha=0.8
            )
    _name(ax, "utility of the candidates", "problem", "U")
    ax.set_ylim(-0.05, 1.05)
    ax.set_xticks(range(1, len(problems) + 1))
    ax.legend(frameon=False)
    return _svg(figure)


PLOTS: dict[str, Callable[[Path], str]] = {
    "evergreen": evergreen,
    "self_knowledge": self_knowledge,
    "egoavu": egoavu,
    "trit": trit,
    "cbu": cbu,
}


def _figure(count: int) -> tuple[Any, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(5.2 * count, 7.2), 2.9), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)[0]
    return figure, list(axes)


def _bars(ax: Axes, names: list[str], counts: list[int], color: str) -> None:
    ax.bar(range(len(names)), counts, color=color)
    ax.set_xticks(range(len(names)), names)
    for at, count in enumerate(counts):
        ax.annotate(str(count), (at, count), ha="center", va="bottom", fontsize=8)


def _name(ax: Axes, title: str, x: str, y: str) -> None:
    ax.set_title(title, fontsize=10, loc="left")
    ax.set_xlabel(x, fontsize=9)
    ax.set_ylabel(y, fontsize=9)
    ax.tick_params(labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)


def _svg(figure: Any) -> str:
    """The figure as an SVG element, without time, random ids or XML head."""
    import matplotlib as mpl

    out = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "headrace", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return text[text.index("<svg") :]
