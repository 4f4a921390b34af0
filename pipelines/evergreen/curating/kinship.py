"""Which questions nearly equal each other: in a language by their words, across languages by meaning.

Law: what is found is a function of the set of wordings; neither their order nor a question unrelated to
two changes whether these two are kin, but as `pipelines.data.near` says of crowds. Across languages only
questions that have no language in common are compared, and only each other's nearest are kin.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from pipelines.data.duplicates import UNSPACED_LANGUAGES
from pipelines.data.near import pairs
from pipelines.evergreen.curating.curation import Kin

if TYPE_CHECKING:
    import numpy as np

UNSPACED_LEAST = 0.75  # one ideograph more can be another word
BLOCK = 2048  # wordings against all others at a time
Row = Mapping[str, Any]
Embed = Callable[[Sequence[str]], "np.ndarray"]


def kin_by_words(rows: Iterable[Row], threshold: float) -> list[Kin]:
    """Questions with near wordings in one language. `rows`: of CURATED, with or without `benchmark`.

    Of questions with the same wording one of each split, label and benchmark stands for the others, so that
    many equal ones give few kin. `threshold` in (0, 1]; see `pipelines.data.near`.
    """
    by_language: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["question_key"]:
            by_language[row["language"]][row["question_key"]].append(row)
    found: dict[tuple[str, str], Kin] = {}
    for language, by_key in sorted(by_language.items()):
        keys = sorted(by_key)
        texts = [min(r["question"] for r in by_key[key]) for key in keys]
        standing = [_standing(by_key[key]) for key in keys]
        least = max(threshold, UNSPACED_LEAST) if language in UNSPACED_LANGUAGES else threshold
        for pair in pairs(texts, threshold=least, language=language):
            for a in standing[pair.first]:
                for b in standing[pair.second]:
                    if a != b:
                        _note(found, Kin(min(a, b), max(a, b), pair.similarity, language))
    return [kin for _, kin in sorted(found.items())]


def _standing(rows: Sequence[Row]) -> list[str]:
    """One question of each split, label and benchmark: that with the smallest id."""
    found: dict[tuple[str, str, str], str] = {}
    for row in rows:
        kind = (row["split"], row["label"], row.get("benchmark", ""))
        found[kind] = min(found.get(kind, row["question_id"]), row["question_id"])
    return list(found.values())


def _note(found: dict[tuple[str, str], Kin], kin: Kin) -> None:
    known = found.get((kin.a, kin.b))
    if known is None or (-kin.similarity, kin.languages) < (-known.similarity, known.languages):
        found[kin.a, kin.b] = kin


def apart(rows: Iterable[Row]) -> dict[tuple[str, ...], list[Row]]:
    """The wordings of questions that have no language in common with some other, by their languages."""
    languages: dict[str, set[str]] = defaultdict(set)
    listed = [row for row in rows if row["question_key"]]
    for row in listed:
        languages[row["question_id"]].add(row["language"])
    of = {question: tuple(sorted(spoken)) for question, spoken in languages.items()}
    kinds = set(of.values())
    lonely = {a for a in kinds if any(not set(a) & set(b) for b in kinds)}
    found: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in sorted(listed, key=lambda r: (r["question_id"], r["language"])):
        if of[row["question_id"]] in lonely:
            found[of[row["question_id"]]].append(row)
    return dict(sorted(found.items()))


def kin_by_meaning(rows: Iterable[Row], embed: Embed, bound: float) -> list[Kin]:
    """Questions without a common language whose embeddings are each other's nearest, at `bound` or above.

    `embed`: texts -> unit rows [n, D]; called once with what must be compared, not at all if that is none.
    """
    groups = apart(rows)
    if not groups:
        return []
    listed = [row for group in groups.values() for row in group]
    vectors = embed([row["question"] for row in listed])
    places, start = {}, 0
    for spoken, group in groups.items():
        places[spoken] = range(start, start + len(group))
        start += len(group)
    found: dict[tuple[str, str], Kin] = {}
    for (a, ours), (b, theirs) in combinations(places.items(), 2):
        if not set(a) & set(b):
            for i, j, cosine in _nearest(vectors, ours, theirs, bound):
                one, other = sorted((listed[i], listed[j]), key=lambda r: str(r["question_id"]))
                if _numbers(one["question"]) == _numbers(other["question"]):
                    languages = "~".join(sorted((one["language"], other["language"])))
                    _note(found, Kin(one["question_id"], other["question_id"], round(cosine, 4), languages))
    return [kin for _, kin in sorted(found.items())]


def _nearest(
    vectors: np.ndarray, ours: range, theirs: range, bound: float
) -> Iterable[tuple[int, int, float]]:
    """Places (i, j) of wordings that are each other's nearest, and their cosine."""
    import numpy as np

    there = vectors[theirs.start : theirs.stop]
    best = np.empty(len(ours), dtype=np.int64)
    back_cosine, back = np.full(len(theirs), -2.0), np.zeros(len(theirs), dtype=np.int64)
    cosines = np.empty(len(ours))
    for at in range(0, len(ours), BLOCK):
        block = vectors[ours.start + at : min(ours.start + at + BLOCK, ours.stop)] @ there.T
        best[at : at + len(block)], cosines[at : at + len(block)] = block.argmax(axis=1), block.max(axis=1)
        nearer = block.max(axis=0) > back_cosine
        back[nearer] = at + block.argmax(axis=0)[nearer]
        back_cosine = np.maximum(back_cosine, block.max(axis=0))
    mutual = np.flatnonzero((back[best] == np.arange(len(ours))) & (cosines >= bound))
    for i in mutual.tolist():
        yield ours.start + i, theirs.start + int(best[i]), float(cosines[i])


def _numbers(text: str) -> list[str]:
    """The numbers of a text in digits, sorted; other digits (Arabic-Indic) count as ours."""
    digits = "".join(str(int(c)) if c.isdecimal() else " " for c in text)
    return sorted(digits.split())
