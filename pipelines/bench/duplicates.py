"""How fast near duplicates are found, and how many of those that there are.

Law: what is found is judged by this module's own count. Every pair of distinct texts is compared by the
definition: shingles cut in plain Python, common ones counted by a product of sparse matrices. The texts are
generated; with --data the pairs, not the speed, are those of real questions and of edits of them.
"""

from __future__ import annotations

import csv
import json
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.bench import Figures
from pipelines.bench.questions import edited, questions
from pipelines.data.duplicates import question_key

if TYPE_CHECKING:
    import numpy as np

ROWS = 100_000  # questions that the speed is measured on
COMPARED = 20_000  # of them, each with each
DATA, DATA_NEEDED = "evergreenqa/test.csv", False
BLOCK = 500  # rows of the product at a time
WIDTH = 3  # letters of a shingle, as `pipelines.data.shingles` cuts English
SEED = 4


def run(rows: int = ROWS, data: Path | None = None, store: Path | None = None) -> Figures:
    """Figures of `headrace bench duplicates`: texts a CPU-second, shares and numbers of pairs.

    The pairs are those of texts that differ in more than manner of writing.
    """
    from pipelines.data import near

    texts = questions(rows, SEED)
    near.pairs(texts[:100])  # what a first call loads is not what is measured
    began = time.process_time()
    near.pairs(texts)
    spent = time.process_time() - began
    few = (texts if data is None else real_questions(data, rows))[:COMPARED]
    distinct = list({question_key(text): text for text in few}.values())
    found = {(p.first, p.second) for p in near.pairs(distinct)}
    there = set(by_counting(distinct, near.THRESHOLD))
    return {
        "docs_per_cpu_s": round(rows / spent),
        "recall": round(len(found & there) / len(there), 5) if there else 1.0,
        "precision": round(len(found & there) / len(found), 5) if found else 1.0,
        "docs": rows,
        "docs_compared": len(few),
        "pairs": len(there),
    }


def laws(figures: Figures) -> dict[str, bool]:
    return {
        "at least 50,000 short texts a CPU-second": figures["docs_per_cpu_s"] >= 50_000,
        "at least 98 in 100 of the near pairs are found": figures["recall"] >= 0.98,
        "no pair is found that counting does not confirm": figures["precision"] == 1,
    }


def by_counting(texts: Sequence[str], threshold: float) -> Iterator[tuple[int, int]]:
    """The near pairs of distinct texts: all pairs compared, in time that grows with the square."""
    import numpy as np

    from pipelines.data.near import same_words

    held, sizes = _shingle_matrix(texts)
    turned = held.T.tocsr()
    for start in range(0, len(texts), BLOCK):
        common = (held[start : start + BLOCK] @ turned).tocoo()
        first, second = common.row + start, common.col
        jaccard = common.data / (sizes[first] + sizes[second] - common.data)
        near = np.flatnonzero((jaccard >= threshold) & (first < second))
        for a, b in zip(first[near].tolist(), second[near].tolist(), strict=True):
            if same_words(texts[a], texts[b]):
                yield a, b


def _shingle_matrix(texts: Sequence[str]) -> tuple[Any, np.ndarray]:
    """Sparse 0/1 matrix [texts, shingles], and how many shingles each text has."""
    import numpy as np
    from scipy.sparse import csr_matrix

    numbers: dict[str, int] = {}
    columns: list[int] = []
    starts = [0]
    for text in texts:
        key = question_key(text)
        there = sorted({key[i : i + WIDTH] for i in range(max(1, len(key) - WIDTH + 1))})
        columns += [numbers.setdefault(shingle, len(numbers)) for shingle in there]
        starts.append(len(columns))
    ones = np.ones(len(columns), dtype=np.int32)
    held = csr_matrix((ones, columns, starts), shape=(len(texts), len(numbers)))
    return held, np.diff(starts)


def real_questions(data: Path, rows: int) -> list[str]:
    """English questions of the public sets, and edits of them until there are `COMPARED`, or `rows`."""
    found = [*_of_tables(data), *_of_lines(data), *_of_trees(data)]
    chance = random.Random(SEED)
    chance.shuffle(found)
    count = min(rows, COMPARED)
    real = found[: max(1, count * 3 // 4)]
    return [*real, *(edited(chance.choice(real), chance) for _ in range(count - len(real)))]


def _of_tables(data: Path) -> Iterator[str]:
    names = ("train", "train_synth", "dev", "test")
    for path, column in [
        *((f"evergreenqa/{n}.csv", "English") for n in names),
        ("freshqa/freshqa.csv", "question"),
    ]:
        with open(data / path, encoding="utf-8", newline="") as file:
            yield from (row[column] for row in csv.DictReader(file) if row[column])


def _of_lines(data: Path) -> Iterator[str]:
    for path in sorted((data / "nq_open").glob("*.jsonl")):
        yield from (json.loads(line)["question"] for line in path.read_text(encoding="utf-8").splitlines())


def _of_trees(data: Path) -> Iterator[str]:
    hotpot = json.loads((data / "hotpotqa/hotpot_dev_v1_simplified.json").read_text(encoding="utf-8"))
    yield from (one["question"] for one in hotpot)
    xquad = json.loads((data / "xquad/xquad.en.json").read_text(encoding="utf-8"))
    for article in xquad["data"]:
        yield from (qa["question"] for part in article["paragraphs"] for qa in part["qas"])
