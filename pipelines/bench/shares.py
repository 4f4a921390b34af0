"""How many questions of a QA set can change: NQ-open, SQuAD, HotpotQA and AdaRAGUE through the filter.

Of each set three shares are told, each with its interval: `expected_mutable`, how many are expected to be
mutable by their probabilities; `corrected_mutable`, the same by how often the threshold errs on labelled
questions; `mutable_part`, how many lie below the threshold. The last is the largest, since above it nearly
all are evergreen: what is not surely evergreen need not be mutable. The first two rest on different things
(that P holds for these questions too; that they look like EverGreenQA's), and where they differ, neither
is sure.

Law: every row that is read ends accepted or rejected in each stage, every question accepted is classified
and split, and the threshold is that of a stated precision, chosen on out-of-fold scores of EverGreenQA's
train questions alone. No row of these sets has a label, and none takes part in training or in the choice.

The classifier is trained by its own stage, with a frozen encoder, beside the response store; then each set
goes alone through ingest, curate, classify and filter (AdaRAGUE holds questions of the others).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.bench import Figures
from pipelines.bench.stages import run_stage, store_at
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
SHARES = ("expected_mutable", "corrected_mutable", "mutable_part")
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
    with store_at(store.resolve()):
        _lay(root, data, TRAIN)
        for stage in ("evergreen.ingest", "evergreen.curate", "training.evergreen"):
            run_stage(root, stage, params)
        return _figures({name: _split(root, data, files, params) for name, files in SETS.items()})


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
    names = ("questions", *(f"{n}{end}" for n in SHARES for end in ("", "_low", "_high")))
    first = next(iter(told.values()))["evergreen.filter"]
    return {
        "threshold": first["threshold"],
        "shares": {n: {k: s[k] for k in names} for n, s in sorted(shares.items())},
        "rows_read": sum(stages["evergreen.ingest"]["items"] for stages in told.values()),
        "rows_split": sum(stages["evergreen.filter"]["accepted"] for stages in told.values()),
        "unaccounted": sum(abs(c["items"] - c["accepted"] - c["rejected"]) for c in counts),
    }


def _split(root: Path, data: Path, files: tuple[str, ...], params: Mapping[str, Any]) -> dict[str, Any]:
    """One set through the four stages: what each of them counted."""
    _lay(root, data, files)
    return {stage: run_stage(root, stage, params) for stage in STAGES}


def _lay(root: Path, data: Path, patterns: tuple[str, ...]) -> None:
    """Lays the files as the raw files of a workspace; nobody has decided anything there."""
    raw = root / "data" / "raw" / "evergreen"
    shutil.rmtree(raw, ignore_errors=True)
    raw.mkdir(parents=True)
    (root / "data" / "review" / "evergreen").mkdir(parents=True, exist_ok=True)
    for pattern in patterns:
        found = sorted(data.glob(pattern))
        if not found:
            raise InputError(f"no {pattern} below this folder", where=str(data))
        for path in found:
            shutil.copyfile(path, raw / path.name)
