"""Splits the questions into an evergreen and a mutable part at a threshold on P(evergreen).

Law: every row keeps its text and label; `part` depends on its probability, the parameters and, where
the threshold is `auto`, the out-of-fold scores of the train questions alone. A row too near the
threshold is rejected unless people gave its label, which outranks the part downstream. No test and no
dev row takes part in the choice: what the threshold comes to on them is told, and nothing follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pipelines.data.config import Share
from pipelines.data.tables import read_parquet
from pipelines.errors import ConfigError, InputError, StageError, nearest
from pipelines.evergreen import shares
from pipelines.evergreen.schema import (
    CLASSIFIED,
    EVERGREEN,
    FILTERED,
    MUTABLE,
    POOL,
    TRAIN,
    TRUSTED_ORIGINS,
    questions,
)
from pipelines.evergreen.threshold import Point, Scored, at, choose
from pipelines.step import Step

SCHEMA = questions("evergreen.filter", FILTERED)
OUT_OF_FOLD = "data/training/evergreen/out_of_fold.parquet"
COLUMNS = ("question_id", "label", "p", "source")


@dataclass(frozen=True)
class Params:
    """threshold: least P(evergreen) of the evergreen part; auto: the smallest that is precise enough.
    undecided: rows nearer to the threshold than this are rejected where no one gave a label; 0 rejects none.
    precision: of the evergreen part, by its lower bound at `confidence`, where `prior` of all questions
    are evergreen (null: as many as among the train questions).
    sources: of the train questions that choose; empty: all. Intervals are of `confidence` too.
    """

    threshold: Share | Literal["auto"] = 0.5
    undecided: Share = 0.0
    precision: Share = 0.95
    confidence: Share = 0.95
    prior: Share | None = None
    sources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, value in (("confidence", self.confidence), ("prior", self.prior)):
            if value in (0.0, 1.0):
                what = f"{name} lies between 0 and 1, is {value:g}"
                raise ConfigError(what, where="params.yaml: evergreen.filter")


def part_of(p: float, threshold: float, undecided: float) -> str | None:
    """evergreen | mutable, None inside the undecided band."""
    if abs(p - threshold) < undecided:
        return None
    return EVERGREEN if p >= threshold else MUTABLE


def run(step: Step, params: Params) -> None:
    """Reads evergreen/classify and the out-of-fold scores; reports the parts by set and by split."""
    rows = step.read("evergreen/classify").to_dicts()
    odd = next((r for r in rows if not is_probability(r["p_evergreen"])), None)
    if odd is not None:
        what = f"P(evergreen) of row {odd['row_id']} is {odd['p_evergreen']}, not in [0, 1]"
        raise StageError(what, where=step.name, cure="headrace run --force evergreen.classify")
    step.plan(r["row_id"] for r in rows)
    point = chosen_point(step, params)
    threshold = float(params.threshold) if point is None else point.threshold
    parts = [part_of(r["p_evergreen"], threshold, params.undecided) for r in rows]
    for row, part in zip(rows, parts, strict=True):
        parents = [row["row_id"]]
        kept = part_of(row["p_evergreen"], threshold, 0.0) if is_known(row) else part
        if kept is None:
            detail = f"P(evergreen) = {row['p_evergreen']:.4f}, threshold {threshold:.4f}"
            step.reject(row["row_id"], "undecided", detail=detail, raw=row["question"], parents=parents)
            continue
        values = {c: row[c] for c in CLASSIFIED}
        made = SCHEMA.row(**values, part=kept, parents=parents)
        step.accept(row["row_id"], made, note=MUTABLE if kept == MUTABLE else "")
    step.metrics = {
        "threshold": {"value": threshold, **_how(point, params)},
        "held_out": held_out(rows, threshold, params),
        **{f"by_{column}": told(rows, parts, column, params.confidence) for column in ("source", "split")},
    }


def chosen_point(step: Step, params: Params) -> Point | None:
    """The threshold chosen and what holds at it; None for a stated one. Raises HeadraceError."""
    if params.threshold != "auto":
        return None
    try:
        return choose(out_of_fold(step, params), params.precision, params.prior, params.confidence)
    except StageError as e:
        cure = e.cure or "give more labelled questions, or state evergreen.filter.threshold"
        raise StageError(e.what, where=e.where or f"{step.name}, threshold: auto", cure=cure) from e


def _how(point: Point | None, params: Params) -> dict[str, Any]:
    """How the threshold was found."""
    if point is None:
        return {"chosen": False}
    return {
        "chosen": True,
        "wanted": params.precision,
        "confidence": params.confidence,
        "prior": params.prior,
        **_plain(point),
        "questions": {EVERGREEN: point.evergreen, MUTABLE: point.mutable},
    }


def out_of_fold(step: Step, params: Params) -> list[Scored]:
    """The scores of train questions by models that had not seen them."""
    frame = read_parquet(step.root / OUT_OF_FOLD, "training.evergreen")
    missing = [c for c in COLUMNS if c not in frame.columns]
    if missing:
        raise InputError(f"has no column {missing[0]!r}", where=OUT_OF_FOLD, cure="headrace run")
    known = frame["source"].drop_nulls().unique().to_list()
    for source in params.sources:
        if source not in known:
            where = "params.yaml: evergreen.filter.sources"
            raise ConfigError(f"no train question is of {source!r}", where=where, cure=nearest(source, known))
    rows = frame.select(COLUMNS).rows(named=True)
    for n, r in enumerate(rows, 1):
        if not is_probability(r["p"]) or r["label"] not in (EVERGREEN, MUTABLE) or r["question_id"] is None:
            what = f"row {n}: label {r['label']!r}, p {r['p']!r}"
            raise InputError(what, where=OUT_OF_FOLD, cure="headrace run --force training.evergreen")
    return [
        Scored(r["question_id"], r["p"], r["label"] == EVERGREEN)
        for r in rows
        if not params.sources or r["source"] in params.sources
    ]


def is_probability(p: object) -> bool:
    """Whether it is a number in [0, 1]: NaN would be below each threshold, and so mutable."""
    return isinstance(p, float) and 0.0 <= p <= 1.0


def held_out(rows: Sequence[Mapping[str, Any]], threshold: float, params: Params) -> dict[str, Any]:
    """What the threshold comes to on the labelled questions outside train, at their own prior.

    By split, and by source for those in none.
    """
    found: dict[str, list[Scored]] = {}
    for r in rows:
        if is_known(r) and r["split"] != TRAIN:
            one = Scored(f"{r['question_id']} {r['label']}", r["p_evergreen"], r["label"] == EVERGREEN)
            found.setdefault(r["source"] if r["split"] == POOL else r["split"], []).append(one)
    return {
        name: _plain(at(scored, threshold, None, params.confidence))
        for name, scored in sorted(found.items())
        if len({s.evergreen for s in scored}) == 2
    }


def told(
    rows: Sequence[Mapping[str, Any]], parts: Sequence[str | None], column: str, confidence: float
) -> dict[str, Any]:
    """The shares of the parts in each set that a column names; see `shares.Counted`."""
    pairs = (
        (r[column], r["question_id"], r["p_evergreen"], part, r["label"] if is_known(r) else None)
        for r, part in zip(rows, parts, strict=True)
    )
    return {name: counted.plain(confidence) for name, counted in shares.by(pairs).items()}


def is_known(row: Mapping[str, Any]) -> bool:
    """Whether people, not a model, gave its label."""
    return row["label_origin"] in TRUSTED_ORIGINS and row["label"] in (EVERGREEN, MUTABLE)


def _plain(point: Point) -> dict[str, float]:
    told = asdict(point)
    return {name: round(told[name], 4) for name in ("precision", "low", "kept", "passed")}
