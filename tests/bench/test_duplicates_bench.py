"""The bench of near duplicates counts for itself, on texts that hold what it looks for."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from pipelines.bench import duplicates
from pipelines.bench.questions import questions
from pipelines.cli import main
from pipelines.data import near
from pipelines.data.duplicates import question_key
from pipelines.data.near import same_words


def test_it_prints_its_figures_as_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    ended = main(["bench", "duplicates", "--json", "--rows", "1500"])
    figures = json.loads(capsys.readouterr().out)
    assert ended == int(not all(duplicates.laws(figures).values()))
    assert list(figures)[:3] == ["docs_per_cpu_s", "recall", "precision"]
    assert figures["recall"] >= 0.98 and figures["precision"] == 1
    assert figures["docs"] == figures["docs_compared"] == 1500
    assert figures["pairs"] > 60


def test_its_count_is_that_of_the_definition() -> None:
    texts = list({question_key(q): q for q in questions(150)}.values())

    def shingles(text: str) -> set[str]:
        key = question_key(text)
        return {key[i : i + 3] for i in range(len(key) - 2)}

    near_pairs = {
        (i, j)
        for (i, a), (j, b) in itertools.combinations(enumerate(texts), 2)
        if len(shingles(a) & shingles(b)) / len(shingles(a) | shingles(b)) >= near.THRESHOLD
        and same_words(a, b)
    }
    assert len(near_pairs) >= 10
    assert set(duplicates.by_counting(texts, near.THRESHOLD)) == near_pairs


def test_its_questions_are_the_same_for_ever_and_as_told() -> None:
    found = questions(2000)
    assert found == questions(2500)[:2000]
    assert found[:2] == [
        "After which cradle is the square in Wanria named?",
        "Which music label represents Vean Worpaitaimar?",
    ]
    distinct = {question_key(q) for q in found}
    assert 1900 < len(distinct) < 1980
    words = [len(q.split()) for q in found]
    assert 7 < sum(words) / len(words) < 10


def test_it_is_judged_by_speed_recall_and_precision() -> None:
    good = {"docs_per_cpu_s": 50_000, "recall": 0.98, "precision": 1.0}
    assert list(duplicates.laws(good).values()) == [True, True, True]
    for worse in ({"docs_per_cpu_s": 49_999}, {"recall": 0.979}, {"precision": 0.999}):
        assert list(duplicates.laws({**good, **worse}).values()).count(False) == 1


@pytest.mark.real
def test_on_real_questions_it_finds_what_comparing_all_pairs_finds(real_data: Path) -> None:
    figures = duplicates.run(4000, real_data)
    assert figures["docs_compared"] == 4000
    assert figures["pairs"] > 300
    assert figures["recall"] >= 0.98 and figures["precision"] == 1
