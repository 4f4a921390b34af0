"""A question is asked once greedily and m times at random, and its row holds what followed from that."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scripted_answers import Said, ScriptedModel, ScriptedStep

from pipelines import tracking
from pipelines.data.told import Record as Told
from pipelines.errors import ConfigError, StageError
from pipelines.evaluation import uncertainty as u
from pipelines.llm.answer import Failure
from pipelines.llm.request import Request

HALF = math.log(0.5)


def told(text: str, logprob: float = HALF) -> Said:
    """Each word a token, as likely as one other."""
    words = [w if i == 0 else f" {w}" for i, w in enumerate(text.split())]
    return [(w, logprob, {w: logprob, "other": HALF}) for w in words]


def by_sample(*texts: str) -> Callable[[Request], Said | Failure]:
    return lambda request: told(texts[request.sample])


class ByFirstWord:
    """A classifier: "who" is evergreen."""

    def predict(self, questions: list[str], languages: list[str], embed: Any) -> np.ndarray:
        return np.array([0.9 if q.startswith("Who") else 0.2 for q in questions])


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a classifier in the place of the trained one."""
    model = tmp_path / "data" / "training" / "evergreen" / "model"
    monkeypatch.setattr(u, "load", lambda folder: ByFirstWord() if folder == model else None)
    return tmp_path


@pytest.fixture
def tracked(monkeypatch: pytest.MonkeyPatch) -> list[Told]:
    runs: list[Told] = []
    monkeypatch.setattr(tracking, "record", lambda _, one, *more: runs.append(one))
    return runs


@pytest.fixture
def stage(root: Path, tracked: list[Told]) -> Callable[..., tuple[dict[str, Any], list[dict[str, Any]]]]:
    def run(
        lines: list[dict[str, Any]], script: Callable[[Request], Said | Failure], **params: Any
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        raw = root / "data" / "raw" / "self_knowledge"
        raw.mkdir(parents=True, exist_ok=True)
        (raw / "mine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        step = ScriptedStep("evaluation.uncertainty", None, root, 7)
        ways = {k: params.pop(k) for k in ("reverse", "cut", "silent") if k in params}
        step.scripted = ScriptedModel(script, **ways)
        u.run(step, u.Params(**{"samples": 2, **params}))
        step.finish(u.SCHEMA, None, params.get("allow_failed", 0.0))
        folder = root / "data" / "evaluation" / "uncertainty"
        rows = pl.read_parquet(folder / "rows.parquet").sort("key").to_dicts()
        return json.loads((folder / "outcomes.json").read_text()), rows

    return run


Stage = Callable[..., tuple[dict[str, Any], list[dict[str, Any]]]]


def scores(row: dict[str, Any]) -> dict[str, float]:
    return {s["name"]: s["value"] for s in row["scores"]}


def test_a_row_holds_the_greedy_answer_its_verdict_and_every_estimate(
    stage: Stage, tracked: list[Told]
) -> None:
    line = {"question": "Who wrote it?", "answers": ["Ann Lee"], "label": "evergreen", "searched": "no"}
    seen, (row,) = stage([line], by_sample("by Ann Lee", "Ann Lee", "Bob"))
    assert (row["answer"], row["correct"], row["origin"], row["samples"]) == ("by Ann Lee", True, "asked", 2)
    assert (row["label"], row["searched"], row["dataset"]) == ("evergreen", False, "mine")
    assert row["p_evergreen"] == 0.9
    found = scores(row)
    assert found["perplexity"] == pytest.approx(2.0)
    assert found["mean_entropy"] == found["max_entropy"] == pytest.approx(math.log(2))
    assert found["lexical_similarity"] == 0.0
    assert found["eigval_laplacian"] == pytest.approx(2.0)
    assert found["token_sar"] == pytest.approx(math.log(2))  # all tokens are alike unsure: no weight matters
    assert math.isfinite(found["sar"]) and len(row["responses"]) == 3
    assert seen["accepted"] == seen["items"] == 1 and seen["tokens"]["completion"] == 3 + 2 + 1
    assert tracked[0].metrics["sample"]["demo"] is True


def test_the_greedy_answer_is_told_with_alternatives_and_samples_have_seeds_of_their_own(
    root: Path, tracked: list[Told]
) -> None:
    raw = root / "data" / "raw" / "self_knowledge"
    raw.mkdir(parents=True)
    (raw / "q.csv").write_text("question,answers\nWho wrote it?,Ann\n")
    step = ScriptedStep("evaluation.uncertainty", None, root, 7)
    step.scripted = ScriptedModel(by_sample("Ann", "Ann", "Bob"))
    u.run(step, u.Params(samples=2))
    greedy, *samples = sorted(step.scripted.asked, key=lambda r: r.sample)
    assert greedy.sampling is not None and (greedy.sampling.temperature, greedy.sampling.logprobs) == (
        0.0,
        20,
    )
    assert all(r.sampling is not None and r.sampling.temperature == 1.0 for r in samples)
    assert len({r.seed for r in (greedy, *samples)}) == 3
    assert all("Question: Who wrote it?\nAnswer:" in str(r.prompt) for r in (greedy, *samples))


def test_the_order_of_the_answers_changes_no_byte(stage: Stage, root: Path) -> None:
    lines = [{"question": f"Who wrote book {n}?", "answers": ["Ann"]} for n in range(4)]
    path = root / "data" / "evaluation" / "uncertainty" / "rows.parquet"
    stage(lines, by_sample("Ann", "Ann", "Bob"))
    first = path.read_bytes()
    stage(lines, by_sample("Ann", "Ann", "Bob"), reverse=True)
    assert path.read_bytes() == first


def test_what_a_file_tells_of_an_answer_is_taken_and_not_asked_again(stage: Stage) -> None:
    lines = [
        {"question": "Who wrote it?", "answers": ["Ann"], "response": "It was Ann.", "perplexity": 1.25},
        {"question": "Who was it?", "correct": "no", "energy_score": 4, "p_evergreen": 0.25},
    ]
    seen, rows = stage(lines, lambda request: pytest.fail("asked"))
    assert [r["origin"] for r in rows] == ["told", "told"]
    assert [r["correct"] for r in rows] == [True, False]
    assert [scores(r) for r in rows] == [{"perplexity": 1.25}, {"energy_score": -4.0}]
    assert rows[1]["p_evergreen"] == 0.25
    assert seen["notes"] == {"told": 2} and seen["answers"] == 0


def test_every_record_ends_once(stage: Stage) -> None:
    def script(request: Request) -> Said | Failure:
        ends = {"filtered": Failure.FILTERED, "empty": Failure.EMPTY}
        word = next((w for w in ends if w in str(request.prompt)), "")
        if word:
            return ends[word] if request.sample == 0 else told("x")
        return Failure.EMPTY if request.sample == 2 else told("Ann")

    lines = [
        {"question": "Who wrote it?", "answers": ["Ann"]},
        {"question": "Who filtered it?", "answers": ["Ann"]},
        {"question": "Who is empty?", "answers": ["Ann"]},
        {"question": "Bad?", "searched": "perhaps"},
        {"question": "Who WROTE it?", "answers": ["Ann"]},
    ]
    seen, (row,) = stage(lines, script)
    assert {k: seen[k] for k in ("items", "accepted", "rejected", "refused", "unparsable")} == {
        "items": 5, "accepted": 1, "rejected": 2, "refused": 1, "unparsable": 1,
    }  # fmt: skip
    assert (row["samples"], "sar" in scores(row)) == (1, False)  # one sample has no likeness to another
    assert {"perplexity", "token_sar"} <= scores(row).keys()


def test_an_answer_without_a_gold_one_is_measured_and_not_judged(stage: Stage) -> None:
    seen, (row,) = stage([{"question": "Who wrote it?"}], by_sample("Ann", "Ann", "Ann"))
    assert (row["correct"], seen["notes"]) == (None, {"asked": 1})
    assert scores(row)["lexical_similarity"] == -1.0
    assert scores(row)["eigval_laplacian"] == pytest.approx(1.0)


def test_a_cut_answer_counts_and_says_so(stage: Stage) -> None:
    line = {"question": "Who wrote it?", "answers": ["Ann"]}
    seen, (row,) = stage([line], by_sample("It was Ann", "Ann", "Bob"), cut=True)
    assert (row["correct"], seen["notes"]) == (True, {"asked, cut": 1})


def test_without_log_probabilities_the_samples_alone_are_measured_and_it_is_said(stage: Stage) -> None:
    line = {"question": "Who wrote it?", "answers": ["Ann"]}
    seen, (row,) = stage([line], by_sample("Ann", "Ann", "Bob"), silent=True)
    assert scores(row).keys() == {"lexical_similarity", "eigval_laplacian"} and row["correct"] is True
    assert seen["notes"] == {"asked, no log probabilities": 1}


def test_wrong_parameters_and_a_missing_source_are_one_line(root: Path) -> None:
    for wrong in (
        {"style": "chant"},
        {"correct": "maybe"},
        {"alternatives": 0},
        {"samples": -1},
        {"limit": -1},
    ):
        with pytest.raises(ConfigError):
            u.Params(**wrong)  # type: ignore[arg-type]
    step = ScriptedStep("evaluation.uncertainty", None, root, 7)
    with pytest.raises(StageError, match="--source self_knowledge=PATH"):
        u.run(step, u.Params())
