"""What is known of a test question from other rows: its graded change rate, its twins in train, its form.

Law: joined by question and wording, never by position; a rate that the rows contradict is none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

import polars as pl

from pipelines.data.duplicates import question_key
from pipelines.evaluation.strata import RATES
from pipelines.evaluation.systems import described

LABEL_OF = {"never": "evergreen", "slow": "mutable", "fast": "mutable"}


def graded_rates(curated: pl.DataFrame, ingested: pl.DataFrame) -> dict[str, str]:
    """Question id -> never | slow | fast, for the curated questions that a row grades.

    EverGreenQA's dev split is FreshQA with slow and fast merged into one class. So where FreshQA's own
    file is ingested, too, its rates are joined by equal wordings of the same language. Two different
    rates, or one against the question's own label, grade nothing.
    """
    by_key: dict[tuple[str, str], set[str]] = defaultdict(set)
    graded = ingested.filter(pl.col("change_rate").is_in(RATES))
    for language, question, rate in graded.select("language", "question", "change_rate").rows():
        by_key[language, question_key(question)].add(rate)
    found: dict[str, set[str]] = defaultdict(set)
    labels: dict[str, str] = {}
    columns = ("question_id", "language", "question", "label", "change_rate")
    for question_id, language, question, label, own in curated.select(columns).rows():
        labels[question_id] = label
        found[question_id] |= by_key.get((language, question_key(question)), set())
        if own in RATES:
            found[question_id].add(own)
    return {
        q: rate
        for q, rates in found.items()
        if len(rates) == 1 and LABEL_OF[rate := next(iter(rates))] == labels[q]
    }


def leaked(curated: pl.DataFrame, left_out: pl.DataFrame) -> dict[str, str]:
    """Test question id -> equal | near: a train question says the same, or nearly, in some language.

    Equal: the same language and `question_key`. Near: training left a question out on its account
    (`left_out`: the rejects of training.evergreen, whose parents name the test row).
    """
    columns = ("language", "question", "question_id")
    train, test = (curated.filter(pl.col("split") == s).select(columns).rows() for s in ("train", "test"))
    keys = {(language, question_key(text)) for language, text, _ in train}
    equal = {q for language, text, q in test if (language, question_key(text)) in keys}
    named = curated.filter(pl.col("split") == "test").select("row_id", "question_id").rows()
    question_of = dict(named)
    near = {question_of[p] for parents in left_out["parents"].to_list() for p in parents if p in question_of}
    return {**dict.fromkeys(sorted(near), "near"), **dict.fromkeys(sorted(equal), "equal")}


def form_table(train: pl.DataFrame) -> Callable[[str, str], float]:
    """P(evergreen) of a question by its lead and tense alone: the blindest of baselines.

    The share of evergreen among the train questions of that form, with one more question of the
    overall share, so that a form never seen has the overall share.
    """
    once = described(train).unique("question_id", keep="first", maintain_order=True)
    seen: Counter[tuple[str, str]] = Counter()
    fixed: Counter[tuple[str, str]] = Counter()
    for lead, tense, label in once.select("lead", "tense", "label").rows():
        seen[lead, tense] += 1
        fixed[lead, tense] += label == "evergreen"
    overall = sum(fixed.values()) / sum(seen.values()) if seen else 0.5

    def share(lead: str, tense: str) -> float:
        return (fixed[lead, tense] + overall) / (seen[lead, tense] + 1)

    return share
