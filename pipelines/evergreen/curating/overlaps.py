"""How many questions of one set stand in another, by language.

Law: counted are questions, not wordings; equal is equal in the same language, case, width, blanks,
punctuation and symbols aside (`question_key`). A set is the questions of one split and source.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

ANY = "any"


def overlaps(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """ "test real in train synth" -> language -> questions of the first set that stand in the second; `any`.

    rows: question_id, language, question_key, split, source. Pairs of sets without overlap are left out.
    """
    holders: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for row in rows:
        if row["question_key"]:
            of = f"{row['split']} {row['source']}"
            holders[row["language"], row["question_key"]][of].add(row["question_id"])
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for (language, _), by_set in holders.items():
        for ours, questions in by_set.items():
            for theirs in by_set:
                if ours != theirs:
                    found[f"{ours} in {theirs}"][language] |= questions
                    found[f"{ours} in {theirs}"][ANY] |= questions
    return {pair: {x: len(q) for x, q in sorted(told.items())} for pair, told in sorted(found.items())}
