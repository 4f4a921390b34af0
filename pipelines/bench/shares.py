"""How many questions of a QA set can change: NQ-open, SQuAD, HotpotQA and AdaRAGUE through the filter.

Of each set two shares are told, each with its interval. `expected_mutable`: how many are expected to be
mutable, by their probabilities. `mutable_part`: how many lie below the threshold; above it nearly all are
evergreen, so this is what is not surely evergreen, and no estimate of what can change. The first is as
right as the probabilities are on such questions, so both stand beside the truth on two sets with labels,
EverGreenQA's test and dev questions in English. From these nothing follows: they are not for choosing.

Law: every row that is read ends accepted or rejected in each stage, every question accepted is classified
and split, and the threshold is that of a stated precision, chosen on out-of-fold scores of EverGreenQA's
train questions alone. No row of the sets takes part in training or in the choice.

The classifier is trained by its own stage, with a frozen encoder, beside the response store; then each set
goes alone through ingest, curate, classify and filter (AdaRAGUE holds questions of the others).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.bench import Figures
from pipelines.bench.stages import run_stage
from pipelines.environment import variables
from pipelines.errors import InputError

ROWS = 0  # records from the head of each file; 0: all
DATA = "evergreenqa/train.csv"
TRAIN = ("evergreenqa/train.csv", "evergreenqa/train_synth.csv")
SETS = {
    "nq_open": ("nq_open/*.jsonl",),
    "squad": ("xquad/xquad.en.json",),
    "hotpotqa": ("hotpotqa/*.json",),
    "adarague": ("adarague/SeaKR/*.jsonl", "adarague/test_no_retrieval_llama8b/ground_truth__*.json"),
}
PRECISION, PRIOR = 0.95, 0.9  # of the evergreen part, where so many questions are evergreen
SHARES = ("expected_mutable", "mutable_part")
NAMES = tuple(f"{name}{end}" for name in SHARES for end in ("", "_low", "_high"))
LABELLED = ("test", "dev")  # splits of EverGreenQA
STAGES = ("evergreen.ingest", "evergreen.curate", "evergreen.classify", "evergreen.filter")
PROJECT = Path(__file__).resolve().parents[2]


def run(rows: int, data: Path, store: Path) -> Figures:
    """The figures. Trains once, a few minutes where no embedding is stored."""
    from pipelines.data.config import read_params

    root = store.resolve().parent / "bench-shares"
    params = read_params(PROJECT / "params.yaml")
    params["evergreen"]["ingest"]["limit"] = rows
    params["evergreen"]["filter"] |= {
        "threshold": "auto", "precision": PRECISION, "prior": PRIOR, "undecided": 0.0, "sources": [],
    }  # fmt: skip
    params["training"]["evergreen"] |= {"languages_per_question": 1}
    params["training"]["evergreen"]["encoder"]["kind"] = "frozen"
    with variables(HEADRACE_STORE=str(store.resolve())):
        _lay(root, data, TRAIN)
        for stage in ("evergreen.ingest", "evergreen.curate", "training.evergreen"):
            run_stage(root, stage, params)
        told = {name: _split(root, data, files, params) for name, files in SETS.items()}
        _lay_english(root, data)
        known = {stage: run_stage(root, stage, params) for stage in STAGES}
        return {**_figures(told), "beside_labels": _beside(known["evergreen.filter"]["by_split"])}


def laws(figures: Figures) -> Mapping[str, bool]:
    return {
        "the evergreen part is as precise as stated, by its lower bound": figures["threshold"]["low"]
        >= PRECISION,
        "accepted and rejected rows are those read, in each stage": figures["unaccounted"] == 0,
        "each set is expected to hold mutable questions, and fewer of them than of the others": all(
            0 < s["expected_mutable"] < 0.5 for s in figures["shares"].values()
        ),
    }


def _figures(told: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    shares = {n: s for stages in told.values() for n, s in stages["evergreen.filter"]["by_source"].items()}
    counts = [c for stages in told.values() for c in stages.values()]
    names = ("questions", *NAMES)
    first = next(iter(told.values()))["evergreen.filter"]
    return {
        "threshold": first["threshold"],
        "shares": {n: {k: s[k] for k in names} for n, s in sorted(shares.items())},
        "rows_read": sum(stages["evergreen.ingest"]["items"] for stages in told.values()),
        "rows_split": sum(stages["evergreen.filter"]["accepted"] for stages in told.values()),
        "unaccounted": sum(abs(c["items"] - c["accepted"] - c["rejected"]) for c in counts),
    }


def _beside(by_split: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The shares beside those of the labels."""
    names = ("questions", "labelled_mutable", *NAMES)
    return {split: {k: by_split[split][k] for k in names} for split in LABELLED if split in by_split}


def _split(root: Path, data: Path, files: tuple[str, ...], params: Mapping[str, Any]) -> dict[str, Any]:
    """One set through the four stages: what each of them counted."""
    _lay(root, data, files)
    return {stage: run_stage(root, stage, params) for stage in STAGES}


def _lay_english(root: Path, data: Path) -> None:
    """Lays the labelled questions in one language: seven would take seven times as long to embed."""
    import polars as pl

    raw = _empty(root)
    for split in LABELLED:
        rows = pl.read_csv(data / "evergreenqa" / f"{split}.csv", infer_schema_length=0)
        rows.select("", "is_evergreen", "English").write_csv(raw / f"{split}.csv")


def _empty(root: Path) -> Path:
    """The folder of raw files with none in it, in a workspace where nobody has decided anything."""
    raw = root / "data" / "raw" / "evergreen"
    shutil.rmtree(raw, ignore_errors=True)
    raw.mkdir(parents=True)
    (root / "data" / "review" / "evergreen").mkdir(parents=True, exist_ok=True)
    return raw


def _lay(root: Path, data: Path, patterns: tuple[str, ...]) -> None:
    """Lays the files as the raw files of a workspace."""
    raw = _empty(root)
    for pattern in patterns:
        found = sorted(data.glob(pattern))
        if not found:
            raise InputError(f"no {pattern} below this folder", where=str(data))
        for path in found:
            shutil.copyfile(path, raw / path.name)
