"""The self-knowledge section of the report: what P(evergreen) adds to uncertainty, what explains a search.

Law: a table says what its figures were measured on, AUPRC stands beside its base rate and PRR beside
its cap; where the rows are too few to speak of quality, every table says so. Nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipelines.evaluation.report_tables import BLANK, Figures, Table, bounded, figures, number, warning, words

TRAINING, IMPLICIT = "training/self_knowledge", "evaluation/implicit"
EXPLAINED = "evaluation/retrieval_explained"
FIGURES = ("auroc", "auprc", "prr")


def plots(data: Path) -> list[str]:
    """None beside the section's own plot."""
    return []


def tables(data: Path) -> list[Table]:
    """All tables of the section, in the order of the page."""
    told = {name: figures(data / name) for name in (TRAINING, IMPLICIT, EXPLAINED)}
    return [_arms(told[TRAINING]), _implicit(told[IMPLICIT]), _explained(told[EXPLAINED])]


def _arms(told: Figures) -> Table:
    wins = told["best_uses_p_evergreen"]
    return Table(
        "Is the answer right? Predicted from uncertainty, with and without P(evergreen)",
        "Mean over the repeats, on test rows, of the soft vote of the best two of seven models "
        f"(grid: {told['grid']}). In brackets the bounds of a paired bootstrap over rows. Of "
        f"{wins['of']} pairs of a set and a figure, {wins['won']} are best with P(evergreen).",
        ["set, features", "AUROC", "AUPRC", "base rate", "PRR", "rejected at most"],
        [row for name, one in sorted(told["sets"].items()) for row in _set(name, one)],
        warning(told),
    )


def _set(name: str, one: Figures) -> Iterator[list[str]]:
    """A line an arm, the difference below its two arms."""
    if one.get("p_evergreen"):
        yield _line(f"{name}, P(evergreen) alone", one["p_evergreen"])
    for estimate, told in sorted(one["estimates"].items()):
        for arm, said in (("without", words(estimate)), ("with", f"{words(estimate)} and P(evergreen)")):
            if arm in told:
                yield _line(f"{name}, {said}", told[arm])
        if "with_minus_without" in told:
            apart = [_apart(told["with_minus_without"][f]) for f in FIGURES]
            yield [f"{name}, {words(estimate)}: difference", *apart[:2], BLANK, apart[2], BLANK]


def _line(name: str, told: Figures) -> list[str]:
    names = ("auroc", "auprc", "base_rate", "prr", "prr_rejected")
    return [name, *(number(told[key]) for key in names)]


def _apart(told: Figures) -> str:
    return BLANK if None in (told["value"], told["low"], told["high"]) else bounded(told)


def _implicit(told: Figures) -> Table:
    return Table(
        "Does the model know of itself that a question is evergreen?",
        "The label regressed on each estimate: McFadden's pseudo-R2 of an unpenalised logistic fit, and "
        f"Pearson's r. {told['evergreen']} evergreen, {told['mutable']} mutable questions.",
        ["estimate", "questions", "McFadden R2", "Pearson r"],
        [_worth(name, one) for name, one in sorted(told["estimates"].items())],
        warning(told),
    )


def _explained(told: Figures) -> Table:
    versus = told["evergreen_minus_best_estimate"]
    said = (
        "" if versus is None else f" |r| of evergreen-ness minus that of the best estimate: {_apart(versus)}."
    )
    return Table(
        "What makes an assistant look an answer up?",
        f"A logged search flag ({told['searched']} searched) against every signal of the question.{said}",
        ["signal", "questions", "McFadden R2", "Pearson r"],
        [_worth(name, one) for name, one in sorted(told["signals"].items())],
        warning(told),
    )


def _worth(name: str, one: Figures) -> list[str]:
    r = {"value": one["pearson"], "low": one["low"], "high": one["high"]}
    fit = "separated" if one["separated"] else number(one["mcfadden"])
    return [words(name), number(one["rows"]), fit, _apart(r)]
