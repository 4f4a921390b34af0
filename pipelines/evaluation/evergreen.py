"""Scores the evergreen classifier on the whole test split, beside what it must beat.

Law: every test wording with a label is scored and counted, none is chosen; one without a label is
rejected, never scored. No threshold is tuned: a question is evergreen at P >= `threshold`, one half
(the paper's arg-max). The figures are `evergreen_figures.evaluate`.

Dev, and labelled sets in the pool, are scored for calibration and for P by graded change rate alone
(their class balance is not test's).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import polars as pl

from pipelines import tracking
from pipelines.asking import AskingStep
from pipelines.data.rows import Schema, digest
from pipelines.data.tables import write_json
from pipelines.data.told import Data, Record
from pipelines.errors import StageError
from pipelines.evaluation import accept_plot
from pipelines.evaluation import metrics as m
from pipelines.evaluation.beside import form_table, graded_rates, leaked
from pipelines.evaluation.evergreen_figures import Beside, Params, curves, evaluate
from pipelines.evaluation.promotion import judged
from pipelines.evaluation.reliability import plot
from pipelines.evaluation.systems import described, systems
from pipelines.evergreen.eg_e5.classifier import Classifier, load
from pipelines.evergreen.eg_e5.served import registered
from pipelines.evergreen.schema import POOL, SPLITS, labelled

if TYPE_CHECKING:
    import numpy as np

__all__ = ["SCHEMA", "Params", "run"]

SCHEMA = Schema(
    "evaluation.evergreen",
    {
        "question_id": pl.String,
        "language": pl.String,
        "question": pl.String,
        "label": pl.String,  # evergreen | mutable
        "change_rate": pl.String,  # never | slow | fast, null where nothing grades it
        "leaked": pl.String,  # equal | near: a train question is equal or near to it; else null
        "lead": pl.String,  # how_old, who, ...: the English wording's form
        "tense": pl.String,
        "kinds": pl.List(pl.String),  # of pipelines.evaluation.question_kinds
        "p_evergreen": pl.Float64,  # of the model that evergreen.classify loads
        "p_bag": pl.Float64,  # of its bag of n-grams alone
        "p_head": pl.Float64,  # of its head on embeddings alone
        "p_encoder": pl.Float64,  # of its fine-tuned encoder alone; null where it has none
        "p_form": pl.Float64,  # share of evergreen among train questions of the same lead and tense
        "p_contaminated": pl.Float64,  # of the same recipe trained with the leaking questions
        "prediction": pl.String,  # evergreen | mutable
    },
    ("question_id", "language"),
)
KEPT = ("question_id", "language", "question", "label", "change_rate", "leaked")


def run(step: AskingStep, params: Params) -> None:
    """Reads evergreen/curate and training/evergreen; writes rows, metrics.json and two plots."""
    started = tracking.now()
    curated = prepared(step)
    rows = test_rows(step, curated)
    if rows.is_empty():
        raise StageError("no labelled question is in the test split", where=step.name)
    scored, beside = score(step, params, curated, rows)
    for source, row in zip(rows["row_id"], scored.iter_rows(named=True), strict=True):
        values: dict[str, Any] = {c: row.get(c) for c in SCHEMA.columns}
        step.accept(source, SCHEMA.row(parents=[source], **values))
    figures = evaluate(scored, params, step.seed, beside)
    plots = draw(scored, params, figures)
    step.metrics = figures["classifier"]["weighted_f1"]["mean"] | {"sample": figures["sample"]["what"]}
    write_json(figures, step.out("metrics.json"))
    for name, svg in plots.items():
        step.out(name).write_text(svg, encoding="utf-8")
    track(step, params, figures, scored, plots, started)


def prepared(step: AskingStep) -> pl.DataFrame:
    """The curated rows, with the graded change rate and the leak of each question."""
    curated = step.read("evergreen/curate").sort("row_id")
    ingested = step.read("evergreen/ingest", count=False)
    left_out = pl.read_parquet(step.artifact("training/evergreen") / "rejected.parquet")
    rates = graded_rates(curated, ingested)
    leaks = leaked(curated, left_out)
    return curated.with_columns(
        pl.Series("change_rate", [rates.get(q) for q in curated["question_id"]], pl.String),
        pl.Series("leaked", [leaks.get(q) for q in curated["question_id"]], pl.String),
    )


def test_rows(step: AskingStep, curated: pl.DataFrame) -> pl.DataFrame:
    """Plans the test rows and rejects those without a label; returns the others."""
    rows = curated.filter(pl.col("split") == "test")
    step.plan(rows["row_id"])
    scored = labelled(rows)
    for row_id, question in rows.join(scored, on="row_id", how="anti").select("row_id", "question").rows():
        step.reject(row_id, "no_label", detail="only labelled questions are scored", raw=question)
    return scored


def score(
    step: AskingStep, params: Params, curated: pl.DataFrame, rows: pl.DataFrame
) -> tuple[pl.DataFrame, Beside]:
    """The test rows in their order with P of every system, and what stands beside them."""
    folder = step.artifact("training/evergreen")
    hidden = step.root / ".headrace" / "encoder" / "hidden"
    model, contaminated = load(folder / "model", hidden), load(folder / "contaminated", hidden)
    known = labelled(curated)
    with step.client(params.backend) as client:

        def embed(texts: list[str]) -> np.ndarray:
            return step.embed(client, texts, model=params.embedding)

        parts = parts_of(model, rows, embed)
        leaky = contaminated.predict(rows["question"].to_list(), rows["language"].to_list(), embed)
        further = {
            name: predicted(model, part, embed) for name, part in other_sets(known, params.further_splits)
        }
    scored = described(rows.select(*KEPT)).with_columns(
        *(pl.Series(name, p) for name, p in parts.items()), p_contaminated=pl.Series(leaky)
    )
    form = form_table(known.filter((pl.col("split") == "train") & ~pl.col("leaks_into_test")))
    scored = scored.with_columns(
        p_form=pl.Series([form(lead, tense) for lead, tense in scored.select("lead", "tense").rows()]),
        prediction=pl.when(pl.col("p_evergreen") >= params.threshold)
        .then(pl.lit("evergreen"))
        .otherwise(pl.lit("mutable")),
    )
    return scored, Beside(known, further)


def parts_of(model: Classifier, rows: pl.DataFrame, embed: Any) -> dict[str, np.ndarray]:
    """Column -> P(evergreen) by the whole classifier (`p_evergreen`) and by each of its parts."""
    parts = model.parts(rows["question"].to_list(), rows["language"].to_list(), embed)
    return {"p_evergreen" if name == "ensemble" else f"p_{name}": p for name, p in parts.items()}


def predicted(model: Classifier, rows: pl.DataFrame, embed: Any) -> pl.DataFrame:
    """Rows of another split with the classifier's P."""
    p = model.predict(rows["question"].to_list(), rows["language"].to_list(), embed)
    return rows.select(*KEPT).with_columns(p_evergreen=pl.Series(p, dtype=pl.Float64))


def other_sets(known: pl.DataFrame, splits: Sequence[str]) -> Iterator[tuple[str, pl.DataFrame]]:
    """The labelled rows of each further split; those of the pool by their source ("pool_freshqa")."""
    for split in splits:
        rows = known.filter(pl.col("split") == split)
        if split == POOL:
            for (source,), part in sorted(rows.group_by("source"), key=lambda g: str(g[0])):
                yield f"{POOL}_{source}", part.sort("row_id")
        elif len(rows):
            yield split, rows


def draw(scored: pl.DataFrame, params: Params, figures: Mapping[str, Any]) -> dict[str, str]:
    """File name -> SVG: how well P is calibrated, and how right each verdict is."""
    labels = (scored["label"] == "evergreen").to_numpy()
    series = {
        name.replace("_", " "): m.bins(labels, scored[column].to_numpy(), params.bins)
        for name, column in systems(scored).items()
        if column in ("p_evergreen", "p_bag", "p_head", "p_encoder")
    }
    count = figures["sample"]["what"].split(":")[0]
    reliability = f"{count}, ECE {figures['classifier']['ece']:.3f}"
    share = figures["sample"]["evergreen_share"]
    accept = f"{count}, {share:.0%} evergreen; dotted: precision of accepting all"
    return {
        "reliability.svg": plot("How well P(evergreen) is calibrated", reliability, series),
        "accept.svg": accept_plot.plot("How right the surest verdicts are", accept, curves(scored)),
    }


def test_version(scored: pl.DataFrame) -> str:
    """Names the scored questions and labels, so that two models are compared on the same ones only."""
    return digest("test", sorted(scored.select("question_id", "language", "question", "label").rows()))


def tracked(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The figures that MLflow is told: without those by form, and without what a source's name is part of.

    A tracker takes few characters in a metric's name, a source may be called anything.
    """
    kept = {name: value for name, value in figures.items() if name != "forms"}
    for name in ("splits", "change_rate"):
        own = {split: dict(told) for split, told in figures[name].items() if split in SPLITS}
        for told in own.values():
            told.pop("by_source", None)
        kept[name] = own
    return kept


def track(
    step: AskingStep,
    params: Params,
    figures: Mapping[str, Any],
    scored: pl.DataFrame,
    plots: Mapping[str, str],
    started: int,
) -> None:
    """One MLflow run; the model becomes champion unless it is worse, paired, on the same test rows."""
    curate = Data("evergreen/curate", step.artifact("evergreen/curate") / "rows.parquet", "test")
    told = Record(
        step.name,
        started,
        {"seed": step.seed, **asdict(params)},
        tracked(figures),
        [curate],
        plots,
        {"headrace.sample": figures["sample"]["what"]},
    )
    verdicts = [
        (q, language, label == "evergreen", said == "evergreen")
        for q, language, label, said in scored.select("question_id", "language", "label", "prediction").rows()
    ]
    tracking.evaluated(
        step.root,
        told,
        registered(step.artifact("training/evergreen") / "model"),
        figures["classifier"]["weighted_f1"]["mean"]["value"],
        test_version(scored),
        figures["constant"]["weighted_f1"]["mean"]["value"],
        judged(verdicts, params.bootstrap, params.confidence, step.seed),
    )
