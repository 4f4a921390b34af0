"""Classify and filter, and bad input to the stages as a shell gives it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from evergreen_rows import FILTER, filtered, raw_folder

from pipelines.asking import AskingStep
from pipelines.cli import main
from pipelines.data.config import load
from pipelines.data.tables import write_parquet
from pipelines.errors import ConfigError, HeadraceError, StageError
from pipelines.evergreen import classify
from pipelines.evergreen import filter as parts
from pipelines.evergreen.eg_e5 import classifier
from pipelines.evergreen.schema import CLASSIFIED, CURATED, questions
from pipelines.step import Step
from tests.scripted_client import Scripted

ROOT = Path(__file__).parents[2]
CURATE = questions("evergreen.curate", CURATED)
GOOD = {"a.csv": "en,label\nA?,1\n"}
STRANGE = {"a.csv": "x,y\n1,2\n"}
CLASSIFY = questions("evergreen.classify", CLASSIFIED)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder is a workspace with the project's graph and without parameters of its own."""
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    (tmp_path / "params.yaml").write_text("seed: 7\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lay(root: Path, schema: Any, step: str, rows: Sequence[dict[str, Any]]) -> None:
    made = [schema.row(**{c: r[c] for c in schema.columns}) for r in rows]
    write_parquet(schema.frame(made), root / f"data/evergreen/{step}/rows.parquet")


@pytest.mark.parametrize(
    ("p", "threshold", "undecided", "part"),
    [
        (0.5, 0.5, 0.0, "evergreen"),
        (0.4999, 0.5, 0.0, "mutable"),
        (0.51, 0.5, 0.02, None),
        (0.49, 0.5, 0.02, None),
        (0.53, 0.5, 0.02, "evergreen"),
        (0.7, 0.8, 0.0, "mutable"),
    ],
)
def test_the_part_depends_on_probability_and_threshold(
    p: float, threshold: float, undecided: float, part: str | None
) -> None:
    assert parts.part_of(p, threshold, undecided) == part


def test_the_filter_keeps_both_parts_and_rejects_the_undecided(tmp_path: Path) -> None:
    rows = [
        filtered("a", p_evergreen=0.9),
        filtered("b", p_evergreen=0.2),
        filtered("c", p_evergreen=0.505, label="unknown", label_origin=None),
        filtered("d", p_evergreen=0.1, split="test"),
        filtered("e", p_evergreen=0.505, source="labelled"),
    ]
    lay(tmp_path, CLASSIFY, "classify", rows)
    step = Step("evergreen.filter", None, tmp_path, 7)
    parts.run(step, parts.Params(0.5, 0.02))
    step.finish(parts.SCHEMA)
    got = pl.read_parquet(step.folder / "rows.parquet").sort("question").select("question", "part", "label")
    assert got.rows() == [
        ("a", "evergreen", "mutable"),
        ("b", "mutable", "mutable"),
        ("d", "mutable", "mutable"),
        ("e", "evergreen", "mutable"),
    ], "a row whose label people gave is kept, for its label outranks its part in a refresh"
    assert step.ledger.summary()["reasons"] == {"rejected(undecided)": 1}
    assert step.ledger.notes == {"mutable": 2}
    told = step.metrics["by_split"]
    assert (told["train"]["mutable_part"], told["train"]["undecided_rows"]) == (0.5, 0.5)
    names = ("mutable_part", "questions", "expected_mutable")
    assert [told["test"][n] for n in names] == [1.0, 1, 0.9]
    assert step.metrics["by_source"]["real"]["mutable_part"] == 0.6667
    assert step.metrics["threshold"] == {"value": 0.5, "chosen": False}
    assert step.metrics["held_out"] == {}, "the one test question has one label"


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"threshold": 1.5}, r"filter.threshold: must lie in \[0, 1\], is 1.5"),
        ({"threshold": "automatic"}, "filter.threshold: must be float, is 'automatic'"),
        ({"confidence": 1}, "confidence lies between 0 and 1, is 1"),
        ({"prior": 0.0}, "prior lies between 0 and 1, is 0"),
    ],
)
def test_an_impossible_split_is_refused(told: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load(parts.Params, told, "evergreen.filter")


def out_of_fold(root: Path, rows: Sequence[tuple[str, str, float, str]]) -> None:
    """Lays the scores of train questions: (question, label, P(evergreen), source)."""
    frame = pl.DataFrame(
        [(q, "en", label, p, source) for q, label, p, source in rows],
        schema=["question_id", "language", "label", "p", "source"],
        orient="row",
    )
    write_parquet(frame, root / parts.OUT_OF_FOLD)


def split_by(root: Path, **told: Any) -> Step:
    step = Step("evergreen.filter", None, root, 7)
    parts.run(step, load(parts.Params, told, "evergreen.filter"))
    step.finish(parts.SCHEMA)
    return step


def test_an_automatic_threshold_comes_from_the_out_of_fold_scores_and_is_told(tmp_path: Path) -> None:
    lay(tmp_path, CLASSIFY, "classify", [
        filtered("a", p_evergreen=0.61, split="test", label="evergreen"),
        filtered("b", p_evergreen=0.59, split="test"),
        filtered("c", p_evergreen=0.70, split="test"),
        filtered("d", p_evergreen=0.05, label="evergreen"),
    ])  # fmt: skip
    real = [(f"e{n}", "evergreen", 0.6 + n / 1000, "real") for n in range(100)]
    real += [(f"m{n}", "mutable", 0.599 - n / 1000, "real") for n in range(100)]
    out_of_fold(tmp_path, [*real, *((f"s{n}", "mutable", 0.99, "synth") for n in range(50))])
    told = {"threshold": "auto", "precision": 0.9, "confidence": 0.9, "prior": 0.75, "undecided": 0.0}
    step = split_by(tmp_path, **told, sources=["real"])
    chosen = step.metrics["threshold"]
    # All 100 evergreen ones from .600 on, and mutable ones down from .599 as far as the bound allows:
    # k of 100 may pass while .75 x .9736 / (.75 x .9736 + .25 x high(k)) is at least .9:
    # high(k) <= .3245; Wilson's high(24) is .3165, high(25) .3272.
    assert chosen["value"] == pytest.approx(0.576)
    assert (chosen["kept"], chosen["passed"], chosen["questions"]) == (
        1.0,
        0.24,
        {"evergreen": 100, "mutable": 100},
    )
    assert chosen["low"] >= 0.9 > chosen["low"] - 0.01
    rows = pl.read_parquet(step.folder / "rows.parquet").sort("question")
    assert rows["part"].to_list() == ["evergreen", "evergreen", "evergreen", "mutable"]
    assert step.metrics["held_out"]["test"]["precision"] == pytest.approx(1 / 3, abs=1e-4)
    with pytest.raises(StageError, match="no threshold has a precision of 0.9"):
        split_by(tmp_path, **told)


@pytest.mark.parametrize(
    ("rows", "told", "says"),
    [
        (None, {}, r"out_of_fold.parquet: the artifact is not there \(headrace run training.evergreen\)"),
        ([("a", "evergreen", 0.9, "real")], {"sources": ["reel"]}, "no train question is of 'reel'"),
        (
            [("a", "evergreen", 0.9, "real")],
            {},
            r"^evergreen.filter, threshold: auto: .* 1 evergreen and 0 mutable questions \(give more",
        ),
        ([("a", "evergreen", None, "real")], {}, "out_of_fold.parquet: row 1: label 'evergreen', p None"),
        ([("a", "evergreen", float("nan"), "real")], {}, "row 1: label 'evergreen', p nan"),
        ([("a", "unknown", 0.5, "real")], {}, "row 1: label 'unknown', p 0.5"),
        ([("a", "evergreen", 0.9, None)], {"sources": ["reel"]}, "no train question is of 'reel'"),
        (
            [("a", "evergreen", 0.9, "real"), ("b", "mutable", 0.1, "real")],
            {"precision": 1.0},
            r"^evergreen.filter, threshold: auto: no threshold has a precision of 1: the highest lower bound",
        ),
    ],
)
def test_a_threshold_that_cannot_be_chosen_says_why(
    tmp_path: Path, rows: Any, told: dict[str, Any], says: str
) -> None:
    lay(tmp_path, CLASSIFY, "classify", [filtered("a")])
    if rows is not None:
        out_of_fold(tmp_path, rows)
    with pytest.raises(HeadraceError, match=says):
        split_by(tmp_path, threshold="auto", **told)


def test_a_question_counts_once_in_the_shares_however_many_wordings_it_has(tmp_path: Path) -> None:
    wordings = [
        filtered("a", question_id="a", language=c, p_evergreen=p) for c, p in (("en", 0.9), ("fr", 0.2))
    ]
    others = [filtered(q, p_evergreen=0.9, source="nq_open", split="pool") for q in ("b", "c", "d")]
    lay(tmp_path, CLASSIFY, "classify", [*wordings, filtered("e", p_evergreen=0.1), *others])
    told = split_by(tmp_path).metrics["by_source"]
    assert (told["real"]["questions"], told["real"]["rows"], told["real"]["mutable_part"]) == (2, 3, 0.75)
    assert told["real"]["expected_mutable"] == pytest.approx((0.45 + 0.9) / 2)
    assert (told["nq_open"]["mutable_part"], told["nq_open"]["mutable_part_low"]) == (0.0, 0.0)
    assert told["nq_open"]["mutable_part_high"] == pytest.approx(0.5615, abs=1e-4)  # Wilson, 0 of 3
    assert told["real"]["labelled_mutable"] == 1.0


def test_what_is_not_surely_evergreen_is_not_told_as_mutable(tmp_path: Path) -> None:
    """A tenth can change; the threshold keeps but a third of the evergreen questions: 70 % lie below it."""
    scores = [(f"e{n}", "evergreen", 0.7 if n % 3 else 0.95, "real") for n in range(600)]
    out_of_fold(tmp_path, [*scores, *((f"m{n}", "mutable", 0.2, "real") for n in range(120)),
                           *((f"h{n}", "mutable", 0.7, "real") for n in range(80))])  # fmt: skip
    asked = [
        *(filtered(f"e{n}", label="evergreen", p_evergreen=0.92 if n % 3 else 0.95) for n in range(270)),
        *(filtered(f"m{n}", p_evergreen=0.4) for n in range(30)),
        filtered("by a model", label_origin="model", source="nq_open", split="pool", p_evergreen=0.4),
    ]
    lay(tmp_path, CLASSIFY, "classify", asked)
    step = split_by(tmp_path, threshold="auto", precision=0.98, prior=0.9, undecided=0.0)
    shares = step.metrics["by_source"]["real"]
    assert step.metrics["threshold"]["value"] == 0.95
    assert (shares["mutable_part"], shares["labelled_mutable"], shares["labelled_questions"]) == (
        0.7,
        0.1,
        300,
    )
    expected = (90 * 0.05 + 180 * 0.08 + 30 * 0.6) / 300
    assert shares["expected_mutable"] == pytest.approx(expected, abs=1e-4)
    assert shares["expected_mutable_low"] < 0.1 < shares["expected_mutable_high"] < shares["mutable_part_low"]
    other = step.metrics["by_source"]["nq_open"]
    assert (other["labelled_questions"], other["labelled_mutable"]) == (0, None)


@pytest.mark.parametrize("p", [None, float("nan"), -0.1, 1.1])
def test_a_row_without_a_probability_stands_in_no_part(tmp_path: Path, p: float | None) -> None:
    lay(tmp_path, CLASSIFY, "classify", [filtered("a"), filtered("b", p_evergreen=p)])
    with pytest.raises(StageError, match=r"evergreen.filter: P\(evergreen\) of row .* not in \[0, 1\]"):
        split_by(tmp_path)


class Told:
    """A classifier whose probabilities are given; it embeds as a real one would."""

    def __init__(self, of: Callable[[str], float]) -> None:
        self.of = of

    def predict(self, asked: list[str], languages: list[str], embed: Callable[..., Any]) -> np.ndarray:
        assert len(embed(asked)) == len(asked) == len(languages)
        return np.array([self.of(q) for q in asked])


@pytest.fixture
def classified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Step]:
    @contextmanager
    def client(self: AskingStep, backend: str) -> Any:
        assert backend == "embedded"
        yield Scripted()

    def act(of: Callable[[str], float], *wordings: dict[str, Any], over_translations: bool = False) -> Step:
        rows = [filtered("aa"), filtered("b", label="evergreen"), *wordings]
        lay(tmp_path, CURATE, "curate", rows)
        monkeypatch.setattr(AskingStep, "client", client)
        monkeypatch.setattr(classifier, "load", lambda folder, cache: Told(of))
        step = AskingStep("evergreen.classify", None, tmp_path, 7)
        classify.run(step, classify.Params(over_translations))
        step.finish(classify.SCHEMA)
        return step

    return act


def test_each_row_gets_its_own_probability(classified: Callable[..., Step]) -> None:
    step = classified(lambda question: len(question) / 4)
    rows = pl.read_parquet(step.folder / "rows.parquet").sort("question")
    assert rows.select("question", "p_evergreen").rows() == [("aa", 0.5), ("b", 0.25)]
    assert step.metrics == {"agrees_with_label": 0.0}
    curated = pl.read_parquet(step.root / "data/evergreen/curate/rows.parquet")
    assert sorted(p for row in rows["parents"] for p in row) == sorted(curated["row_id"])


def test_the_wordings_of_a_question_share_their_mean_where_that_is_wanted(
    classified: Callable[..., Step],
) -> None:
    french = filtered("bbb", question_id="b", language="fr", label="evergreen")
    step = classified(lambda question: len(question) / 4, french, over_translations=True)
    rows = pl.read_parquet(step.folder / "rows.parquet").sort("question")
    assert rows.select("question", "p_evergreen").rows() == [("aa", 0.5), ("b", 0.5), ("bbb", 0.5)]


@pytest.mark.parametrize("p", [float("nan"), 1.5, -0.1])
def test_a_probability_that_is_none_stops_the_stage(classified: Callable[..., Step], p: float) -> None:
    with pytest.raises(StageError, match="P\\(evergreen\\) of row"):
        classified(lambda question: p)


@pytest.mark.parametrize(
    ("stage", "files", "params", "says"),
    [
        ("evergreen.ingest", {}, "", "data/raw/evergreen: no raw files here"),
        ("evergreen.ingest", {"a.txt": "x"}, "", "holds no data files"),
        ("evergreen.ingest", STRANGE, "", "(the file has: 'x', 'y'; evergreen.ingest.columns says"),
        ("evergreen.ingest", GOOD, "evergreen: {ingest: {limits: 3}}", "did you mean 'limit'?"),
        ("evergreen.ingest", GOOD, "evergreen: {ingest: {limit: -1}}", "must not be negative"),
        ("evergreen.curate", {}, "", "headrace run evergreen.ingest"),
        ("evergreen.classify", {}, "", "headrace run evergreen.curate"),
        ("evergreen.filter", {}, "", "headrace run evergreen.classify"),
        ("evergreen.refresh", {}, "", "headrace run evergreen.filter"),
        ("evergreen.refine", {}, "", "unknown stage 'evergreen.refine'"),
    ],
)  # fmt: skip
def test_a_stage_that_cannot_run_says_why_in_one_line(
    workspace: Path,
    capsys: pytest.CaptureFixture[str],
    stage: str,
    files: dict[str, str],
    params: str,
    says: str,
) -> None:
    raw_folder(workspace, files)
    (workspace / "params.yaml").write_text(f"seed: 7\n{params}\n")
    assert main([stage]) == 1
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1
    assert not list(workspace.rglob("rows.parquet"))


def test_a_refresh_without_its_folder_of_observations_says_so(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_parquet(FILTER.frame([filtered("a")]), workspace / "data/evergreen/filter/rows.parquet")
    assert main(["evergreen.refresh"]) == 1
    assert "data/observations/evergreen: the folder of observations is not there" in capsys.readouterr().err


def test_a_bad_line_in_the_middle_is_a_reject_and_the_stage_goes_on(workspace: Path) -> None:
    raw_folder(workspace, {"train.csv": 'en,label\nA?,1\nB?,1,2\n"C?,0\nD?,0\n'})
    assert main(["evergreen.ingest"]) == 0
    told = json.loads((workspace / "data/evergreen/ingest/outcomes.json").read_text())
    assert (told["accepted"], told["reasons"]) == (2, {"rejected(unreadable)": 2})
