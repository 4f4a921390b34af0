"""The evergreen section of the report: the classifier beside all it must beat, and where it errs.

Law: a table says what its figures were measured on; where that is too little to speak of quality, every
table of the section says so in its note. Nothing is computed here: figures are those of metrics.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from pipelines.evaluation.question_kinds import KINDS
from pipelines.evaluation.report_tables import (
    BLANK,
    Figures,
    Table,
    bounded,
    figures,
    in_order,
    number,
    warning,
    whole,
    words,
)
from pipelines.evaluation.systems import CONSTANT, NAMES
from pipelines.evergreen.schema import SPLITS

EVALUATION, VERBAL = "evaluation/evergreen", "evaluation/verbal"
PLOTS = ("reliability.svg", "accept.svg")
SHOWN = 2  # errors of a kind and direction


def plots(data: Path) -> list[str]:
    """The SVG files of the evaluation, as text."""
    return [(data / EVALUATION / name).read_text(encoding="utf-8") for name in PLOTS]


def tables(data: Path) -> list[Table]:
    """All tables of the section, in the order of the page."""
    told = figures(data / EVALUATION)
    verbal = figures(data / VERBAL)
    found = [
        _systems(told),
        _languages(told),
        _decontamination(told),
        _accepting(told),
        _kinds(told),
        *_examples(pl.read_parquet(data / EVALUATION / "rows.parquet"), told),
        _forms(told),
        _splits(told),
        *_change_rates(told),
        _verbal(verbal),
    ]
    return found


def systems(told: Figures) -> list[str]:
    """The scored systems of metrics.json: what has a confusion by language, the classifier first."""
    found = [
        k for k, v in told.items() if isinstance(v, Mapping) and "confusion" in v and "templates" not in v
    ]
    return in_order(found, (*NAMES.values(), CONSTANT))


def _systems(told: Figures) -> Table:
    rows = []
    for name in systems(told):
        own = told[name]
        minus = told["classifier"]["minus"].get(name)
        rows.append(
            [
                words(name),
                bounded(own["weighted_f1"]["mean"]),
                BLANK if minus is None else bounded(minus),
                *(number(own["classes"][c]["precision"]) for c in ("evergreen", "mutable")),
                *(number(own["classes"][c]["recall"]) for c in ("evergreen", "mutable")),
                *(number(own.get(f)) for f in ("auroc", "ece", "brier")),
            ]
        )
    for name in ("averaged_over_languages", "without_templates"):
        own = told.get(name, {})
        if "weighted_f1" in own:
            rows.append([f"classifier, {words(name)}", bounded(own["weighted_f1"]["mean"]), *[BLANK] * 8])
    return Table(
        "The classifier and what it must beat",
        "Weighted F1, the mean over languages, with the bounds of a bootstrap of questions; how much the "
        "classifier is better (the same questions drawn for both); precision and recall of both classes.",
        ["system", "weighted F1", "classifier better by", "precision evergreen", "precision mutable",
         "recall evergreen", "recall mutable", "AUROC", "ECE", "Brier"],
        rows,
        warning(told),
    )  # fmt: skip


def _languages(told: Figures) -> Table:
    own = told["classifier"]
    rows = [
        [
            language,
            bounded(own["weighted_f1"][language]),
            *(
                whole(counts[n])
                for n in ("true_positives", "false_negatives", "false_positives", "true_negatives")
            ),
        ]
        for language, counts in sorted(own["confusion"].items())
    ]
    return Table(
        "By language",
        "A false positive is a mutable question taken for evergreen.",
        ["language", "weighted F1", "evergreen found", "evergreen missed", "mutable missed", "mutable found"],
        rows,
        warning(told),
    )


def _decontamination(told: Figures) -> Table:
    own = told["decontamination"]
    counts = own["leaked_questions"]
    parts = ("whole", "without_leaked", "leaked_alone")
    rows = [
        [words(name), *(bounded(own[name][p]) if p in own[name] else BLANK for p in parts)]
        for name in ("trained_without_leaks", "trained_with_leaks")
    ]
    return Table(
        "Full and decontaminated",
        f"{counts['equal']} test questions stand in train, {counts['near']} more nearly. The first model was "
        "trained without those, the second with them.",
        ["weighted F1 on", "all test questions", "those in no training text", "those that leaked"],
        rows,
        warning(told),
    )


def _accepting(told: Figures) -> Table:
    own = told["classifier"]["accept"]
    verdicts = ("evergreen", "mutable")
    rows = [
        [f"{float(share.removeprefix('at_')):.0%}", *(bounded(own[v]["precision"][share]) for v in verdicts)]
        for share in own["evergreen"]["precision"]
    ]
    return Table(
        "How right the surest verdicts are",
        "Precision of a verdict against the share of wordings that get it, the surest first; at 100 % it is "
        "the base rate.",
        ["share accepted", *verdicts],
        rows,
        warning(told),
    )


def _kinds(told: Figures) -> Table:
    names = ("questions", "rows", "evergreen_share", "false_positives", "false_positive_rate",
             "false_negatives", "false_negative_rate", "weighted_f1")  # fmt: skip
    rows = [
        [words(kind), *(number(told["errors_by_kind"][kind].get(n)) for n in names)]
        for kind in ("any", *KINDS, "none")
    ]
    return Table(
        "Errors by kind of question",
        "Kinds by rules over the English wording, which took part in no training; a question may be of two. "
        "False positives: mutable wordings taken for evergreen, and their share of the mutable ones.",
        ["kind", "questions", "wordings", "evergreen", "false positives", "of the mutable", "false negatives",
         "of the evergreen", "weighted F1"],
        rows,
        warning(told),
    )  # fmt: skip


def _examples(rows: pl.DataFrame, told: Figures) -> Iterator[Table]:
    """The surest errors, a question in its surest wording, at most `SHOWN` a kind and direction."""
    wrong = rows.filter(pl.col("prediction") != pl.col("label"))
    wrong = wrong.sort((pl.col("p_evergreen") - 0.5).abs(), "row_id", descending=[True, False])
    wrong = wrong.unique("question_id", keep="first", maintain_order=True)
    shown = [
        [words(kind), row["prediction"], number(row["p_evergreen"]), row["language"], row["question"]]
        for kind in (*KINDS, "none")
        for prediction in ("evergreen", "mutable")
        for row in wrong.filter(pl.col("prediction") == prediction)
        .filter(pl.col("kinds").list.contains(kind) if kind in KINDS else pl.col("kinds").list.len() == 0)
        .head(SHOWN)
        .to_dicts()
    ]
    if shown:
        yield Table(
            "Examples of errors",
            f"The surest ones, a question in its surest wording, at most {SHOWN} of each kind and direction; "
            "the rows of the stage hold all.",
            ["kind", "taken for", "P(evergreen)", "language", "question"],
            shown,
            warning(told),
        )


def _forms(told: Figures) -> Table:
    named = [n for n in systems(told) if n != "without_decontamination"]
    rows = [
        [words(form), whole(own["questions"]), number(own["evergreen_share"]),
         *(number(own["weighted_f1"].get(n)) for n in named)]
        for group in ("lead", "tense")
        for form, own in told["forms"][group].items()
    ]  # fmt: skip
    within = told["forms"]["auroc_within"]
    rows.append(["AUROC within forms", BLANK, BLANK, *(number(within.get(n)) for n in named)])
    return Table(
        "By form of the question",
        "Weighted F1 among the questions that begin alike, and of one tense. Much of the task is form: a "
        "system counts by what it adds to the constant answer of a form.",
        ["form", "questions", "evergreen", *map(words, named)],
        rows,
        warning(told),
    )


def _splits(told: Figures) -> Table:
    rows = [
        [split, whole(own["questions"]), number(own["evergreen_share"]),
         *(number(own.get(n)) for n in ("mean_p", "ece", "brier", "auroc", "weighted_f1", "constant"))]
        for split in in_order(told["splits"], SPLITS)
        for own in [told["splits"][split]]
    ]  # fmt: skip
    return Table(
        "Base rates and calibration by split",
        "The share of evergreen questions differs by split, so calibration is told with it. What training "
        "saw is not scored; nothing is tuned on any of them.",
        [
            "split",
            "questions",
            "evergreen",
            "mean P",
            "ECE",
            "Brier",
            "AUROC",
            "weighted F1",
            "constant answer",
        ],
        rows,
        warning(told),
    )


def _change_rates(told: Figures) -> Iterator[Table]:
    rows = [
        [f"{split}, {rate}", whole(own[rate]["questions"]), bounded(own[rate]["mean_p"]),
         bounded(own[rate]["called_evergreen"])]
        for split in in_order(told["change_rate"], SPLITS)
        for own in [told["change_rate"][split]]
        for rate in ("never", "slow", "fast")
        if rate in own
    ]  # fmt: skip
    if rows:
        yield Table(
            "P(evergreen) by graded change rate",
            "Questions whose source grades how fast the answer changes (FreshQA's file grades dev).",
            ["split and rate", "questions", "mean P(evergreen)", "called evergreen"],
            rows,
            warning(told),
        )


def _verbal(told: Figures) -> Table:
    rows = []
    for name in in_order(told["methods"], ("verbal", "uar", "mulan")):
        own = told["methods"][name]
        cost = own["cost_per_1000"]
        rows.append(
            [
                name,
                bounded(own["weighted_f1"]["mean"]),
                number(own["classifier"]),
                number(own["constant"]),
                f"{own['unparsed']} of {own['rows']}",
                *(f"{cost[c]:,.0f}" for c in ("prompt_tokens", "generated_tokens")),
                f"{cost['usd']:.3f}",
            ]
        )
    return Table(
        f"Asked of {told['sample']['model']}",
        "The paper's verbalised classifier and prompts after UAR and MuLan, on the same questions as the "
        "classifier beside. An unparsed reply is wrong. Cost by the stored usage; the classifier generates "
        "no token, its time is measured by `headrace bench evergreen`.",
        [
            "method",
            "weighted F1",
            "classifier",
            "constant",
            "unparsed",
            "tokens read per 1,000",
            "written",
            "USD",
        ],
        rows,
        warning(told),
    )
