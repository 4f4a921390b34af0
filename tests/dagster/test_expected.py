"""The checks of meaning: each passes on a sound artifact and fails on a damaged one, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.expected import Expectation, Seen, look
from assets.history_plot import history_plot
from assets.soundness import (
    CALIBRATED,
    CLASS_BALANCE,
    FRESH_ANSWERS,
    NO_CONFLICT,
    NO_LEAK,
    NO_LEAK_IN_TRAINING,
    leaking,
)
from dagster_project.judged import check_results, expected
from dagster_project.versions import Graph
from pipelines.cli.params import check_params
from pipelines.errors import ConfigError

ROOT = Path(__file__).parents[2]
TODAY = date(2026, 3, 1)
Rows = list[dict[str, Any]]


def curated(*rows: tuple[str, str, str, str, str], marked: str = "") -> Rows:
    """Rows of evergreen.curate: question id, split, language, label, question."""
    return [
        {
            "row_id": f"{q}/{language}", "question_id": q, "split": split, "language": language,
            "label": label, "question": text, "leaks_into_test": q in marked.split(),
        }
        for q, split, language, label, text in rows
    ]  # fmt: skip


SOUND = curated(
    ("a", "train", "en", "evergreen", "Who wrote Emma?"),
    ("a", "train", "fr", "evergreen", "Qui a écrit Emma ?"),
    ("b", "train", "en", "mutable", "Who is the mayor of Rome?"),
    ("c", "dev", "en", "mutable", "How old is the pope?"),
    ("d", "test", "en", "evergreen", "Who discovered radium?"),
    ("d", "test", "fr", "evergreen", "Qui a découvert le radium ?"),
)
ANSWERS = [
    {
        "question_id": q, "language": "en", "question": f"Who leads {q}?", "answer": "Ann", "version": 0,
        "can_change": True, "valid_from": None, "valid_to": None, "as_of": date(2026, 2, 1),
        "refresh_after": due, "seen": 1,
    }
    for q, due in (("a", date(2026, 3, 1)), ("b", date(2026, 4, 1)), ("c", date(2026, 2, 28)))
]  # fmt: skip


class Workspace:
    """Artifacts that a test lays, and what a check finds of them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def lay(self, artifact: str, rows: Rows, file: str = "rows.parquet") -> Workspace:
        path = self.root / "data" / artifact / file
        path.parent.mkdir(parents=True, exist_ok=True)
        pl.DataFrame(rows, infer_schema_length=None).write_parquet(path)
        return self

    def params(self, text: str = "") -> Workspace:
        (self.root / "params.yaml").write_text(text or "checks: {}\n")
        return self

    def judge(self, expectation: Expectation) -> dg.AssetCheckResult:
        if not (self.root / "params.yaml").is_file():
            self.params()
        return expectation.result(lambda: look(self.root, "evergreen", TODAY))


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.fixture(scope="module")
def project() -> Graph:
    """The project's own graph."""
    return Graph.read(ROOT)


def test_a_sound_set_has_no_leak_no_conflict_and_is_balanced(workspace: Workspace) -> None:
    workspace.lay("evergreen/curate", SOUND)
    for expectation in (NO_LEAK, NO_CONFLICT, CLASS_BALANCE):
        result = workspace.judge(expectation)
        assert result.passed, result.description


def test_a_train_question_that_equals_a_test_question_in_one_language_is_a_leak(workspace: Workspace) -> None:
    twin = curated(
        ("e", "train", "en", "evergreen", "Radium was found by whom?"),
        ("e", "train", "fr", "evergreen", "qui a DÉCOUVERT le radium"),
    )
    result = workspace.lay("evergreen/curate", SOUND + twin).judge(NO_LEAK)
    assert not result.passed and result.severity == dg.AssetCheckSeverity.ERROR
    assert result.description == "1 train questions equal a test question and are not marked"
    told = str(result.metadata["wrong"].value)
    assert "Radium was found by whom?" in told and "Qui a découvert le radium ?" in told


def test_a_marked_leak_is_none_and_half_a_mark_is_one(workspace: Workspace) -> None:
    twin = curated(("e", "train", "fr", "evergreen", "Qui a découvert le radium"), marked="e")
    result = workspace.lay("evergreen/curate", SOUND + twin).judge(NO_LEAK)
    assert result.passed and result.metadata["marked questions"].value == 1
    other = curated(("e", "train", "en", "evergreen", "Who found radium?"))  # its other wording, unmarked
    assert not workspace.lay("evergreen/curate", SOUND + twin + other).judge(NO_LEAK).passed


def test_what_was_trained_on_must_not_leak_even_when_it_is_marked(workspace: Workspace) -> None:
    twin = curated(("e", "train", "fr", "evergreen", "Qui a découvert le radium"), marked="e")
    workspace.lay("evergreen/curate", SOUND + twin)
    workspace.lay("training/evergreen", [{"item": "e", "parents": ["e/fr"]}], "rejected.parquet")
    result = workspace.judge(NO_LEAK_IN_TRAINING)
    assert result.passed and result.metadata["questions left out"].value == 1
    workspace.lay("training/evergreen", [{"item": "a", "parents": ["a/en"]}], "rejected.parquet")
    result = workspace.judge(NO_LEAK_IN_TRAINING)
    assert not result.passed and result.description == "1 questions trained on equal a test question"


def test_one_wording_with_two_labels_is_a_conflict_across_splits_too(workspace: Workspace) -> None:
    twin = curated(("e", "dev", "en", "mutable", "who wrote emma"))
    result = workspace.lay("evergreen/curate", SOUND + twin).judge(NO_CONFLICT)
    assert not result.passed and result.description == "1 times one question has two labels"
    assert '"dev", "train"' in str(result.metadata["wrong"].value).replace("\\", "")


def test_wordings_of_one_question_with_two_labels_are_a_conflict(workspace: Workspace) -> None:
    other = curated(("a", "train", "de", "mutable", "Wer schrieb Emma?"))
    assert not workspace.lay("evergreen/curate", SOUND + other).judge(NO_CONFLICT).passed


def test_an_unknown_label_is_in_conflict_with_none(workspace: Workspace) -> None:
    pool = curated(("e", "pool", "en", "unknown", "Who wrote Emma?"))
    assert workspace.lay("evergreen/curate", SOUND + pool).judge(NO_CONFLICT).passed


def test_a_train_split_of_one_class_is_out_of_balance_and_params_say_what_balance_is(
    workspace: Workspace,
) -> None:
    workspace.lay("evergreen/curate", [r for r in SOUND if r["question_id"] != "b"])
    result = workspace.judge(CLASS_BALANCE)
    assert not result.passed and result.severity == dg.AssetCheckSeverity.WARN
    assert result.description == "100.0% of 1 train questions are evergreen, 25% to 75% is asked for"
    workspace.params("checks: {evergreen: {most_evergreen: 1.0}}\n")
    assert workspace.judge(CLASS_BALANCE).passed


def test_leaking_questions_count_in_no_balance(workspace: Workspace) -> None:
    leaks = curated(
        *((f"m{i}", "train", "en", "mutable", f"How high is rent {i}?") for i in range(20)),
        marked=" ".join(f"m{i}" for i in range(20)),
    )
    assert workspace.lay("evergreen/curate", SOUND + leaks).judge(CLASS_BALANCE).passed


def test_answers_past_their_day_are_counted_and_a_day_is_not_past_while_it_lasts(
    workspace: Workspace,
) -> None:
    workspace.lay("evergreen/refresh", ANSWERS)
    result = workspace.judge(FRESH_ANSWERS)
    assert result.passed
    assert {k: v.value for k, v in result.metadata.items() if k != "wrong"} == {
        "overdue": 1, "answers": 3, "share overdue": 0.3333,
    }  # fmt: skip
    workspace.lay("evergreen/refresh", [{**r, "refresh_after": date(2026, 1, 1)} for r in ANSWERS])
    result = workspace.judge(FRESH_ANSWERS)
    assert not result.passed
    assert "3 of 3 answers that can change are overdue on 2026-03-01" in str(result.description)


@pytest.mark.parametrize(
    "change", [{"valid_to": date(2026, 1, 5)}, {"can_change": False}, {"answer": None}], ids=str
)
def test_answers_that_hold_no_more_or_cannot_change_are_never_overdue(
    workspace: Workspace, change: dict[str, Any]
) -> None:
    workspace.lay("evergreen/refresh", [{**ANSWERS[2], **change}, ANSWERS[0], ANSWERS[1]])
    assert workspace.judge(FRESH_ANSWERS).metadata["overdue"].value == 0


def scored(*rows: tuple[float | None, str]) -> Rows:
    return [{"p_evergreen": p, "label": label} for p, label in rows]


def test_ece_is_counted_again_and_held_against_its_bound(workspace: Workspace) -> None:
    right = scored(
        *[(0.75, "evergreen")] * 3, (0.75, "mutable"), *[(0.25, "mutable")] * 3, (0.25, "evergreen")
    )
    result = workspace.lay("evaluation/evergreen", right).judge(CALIBRATED)
    assert result.passed and result.metadata["ece"].value == 0.0
    wrong = scored(*[(0.9, "evergreen")] * 3, *[(0.9, "mutable")] * 3)  # told .9, seen .5
    result = workspace.lay("evaluation/evergreen", wrong).judge(CALIBRATED)
    assert not result.passed and result.metadata["ece"].value == 0.4
    assert result.description == "ECE 0.4000 on 6 test rows, at most 0.1"


@pytest.mark.parametrize("label", [None, "unknown"])
def test_a_test_row_without_a_label_is_not_calibrated(workspace: Workspace, label: str | None) -> None:
    rows = [{"p_evergreen": p, "label": x} for p, x in ((1.0, "evergreen"), (0.0, "mutable"), (0.0, label))]
    result = workspace.lay("evaluation/evergreen", rows).judge(CALIBRATED)
    assert not result.passed
    assert result.description == "not every test row is labelled evergreen or mutable"


def test_a_leak_without_a_mark_is_none_that_is_marked(workspace: Workspace) -> None:
    twin = curated(("e", "train", "fr", "evergreen", "Qui a découvert le radium"))
    unmarked = [{**r, "leaks_into_test": None} for r in twin]
    result = workspace.lay("evergreen/curate", SOUND + unmarked).judge(NO_LEAK)
    assert not result.passed and "1 train questions equal a test question" in str(result.description)
    assert workspace.judge(CLASS_BALANCE).metadata["questions"].value == 3


def test_a_label_that_is_not_there_is_in_conflict_with_one_that_is(workspace: Workspace) -> None:
    twin = [{**curated(("e", "dev", "en", "mutable", "who wrote emma"))[0], "label": None}]
    assert not workspace.lay("evergreen/curate", SOUND + twin).judge(NO_CONFLICT).passed


def test_an_answer_from_a_day_to_come_is_of_no_known_age(workspace: Workspace) -> None:
    ahead = {**ANSWERS[0], "as_of": date(2062, 1, 1), "refresh_after": date(2062, 2, 1)}
    result = workspace.lay("evergreen/refresh", [ahead]).judge(FRESH_ANSWERS)
    assert not result.passed
    assert str(result.description).endswith("; 1 of them bear a day that is still to come")
    tomorrow = {**ahead, "as_of": date(2026, 3, 2)}  # where a day begins before UTC's
    assert workspace.lay("evergreen/refresh", [tomorrow]).judge(FRESH_ANSWERS).passed


@pytest.mark.parametrize("p", [None, float("nan"), 1.2, -0.1])
def test_a_row_without_a_probability_is_not_calibrated(workspace: Workspace, p: float | None) -> None:
    workspace.lay("evaluation/evergreen", scored((0.5, "evergreen"), (p, "mutable")))
    assert not workspace.judge(CALIBRATED).passed


@pytest.mark.parametrize("expectation", [NO_LEAK, NO_CONFLICT, CLASS_BALANCE, FRESH_ANSWERS, CALIBRATED])
@pytest.mark.parametrize("damage", ["absent", "torn", "other columns", "other types", "no rows"])
def test_what_cannot_be_read_is_a_failed_check_with_words(
    workspace: Workspace, expectation: Expectation, damage: str
) -> None:
    for artifact in ("evergreen/curate", "evergreen/refresh", "evaluation/evergreen"):
        path = workspace.root / "data" / artifact / "rows.parquet"
        if damage == "torn":
            path.parent.mkdir(parents=True)
            path.write_bytes(b"PAR1 and no more")
        elif damage == "other columns":
            workspace.lay(artifact, [{"something": 1}])
        elif damage == "other types":
            rows = {"evergreen/curate": SOUND, "evergreen/refresh": ANSWERS}.get(artifact, scored((0.5, "x")))
            workspace.lay(artifact, [dict.fromkeys(r, 7.5) for r in rows])
        elif damage == "no rows":
            workspace.lay(artifact, [])
    result = workspace.judge(expectation)
    assert not result.passed and len(str(result.description)) > 20
    assert str(workspace.root) not in str(result.description)


def test_a_bad_bound_is_refused_before_a_run_and_a_failed_check_after_one(workspace: Workspace) -> None:
    workspace.lay("evaluation/evergreen", scored((0.5, "evergreen"), (0.5, "mutable")))
    workspace.params("checks: {evergreen: {most_ecce: 0.1}}\n")
    result = workspace.judge(CALIBRATED)
    assert not result.passed and "unknown key 'most_ecce' (did you mean 'most_ece'?)" in str(
        result.description
    )
    (workspace.root / "dvc.yaml").write_text("stages: {}\n")
    with pytest.raises(ConfigError, match="checks.evergreen: unknown key 'most_ecce'"):
        check_params(workspace.root)
    workspace.params("checks: {evergreenn: {}}\n")
    with pytest.raises(ConfigError, match=r"checks: unknown key 'evergreenn' \(did you mean 'evergreen'\?\)"):
        check_params(workspace.root)


WORDS = st.sampled_from(["Who wrote Emma?", "who wrote emma", "Wer schrieb Emma?", "What is rain?", "?!"])


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from(["train", "dev", "test"]), st.sampled_from("xy"), WORDS),
        min_size=1,
        max_size=9,
    )
)
def test_leaks_are_those_that_comparing_every_pair_finds(rows: list[tuple[int, str, str, str]]) -> None:
    from pipelines.data.duplicates import question_key

    made = curated(
        *((f"{split}{q}", split, language, "evergreen", text) for q, split, language, text in rows)
    )
    equal = {
        a["question_id"]
        for a in made
        for b in made
        if (a["split"], b["split"]) == ("train", "test")
        and a["language"] == b["language"]
        and question_key(a["question"])
        and question_key(a["question"]) == question_key(b["question"])
    }
    assert set(leaking(pl.DataFrame(made))["question_id"]) == equal


def test_dagster_shows_them_on_their_assets_and_evaluates_them_after_a_stage(
    workspace: Workspace, project: Graph
) -> None:
    graph = replace(project, root=workspace.params().root)
    names = {(s.name, e.name) for s in graph.stages for e in expected(s)}
    assert names == {
        ("evergreen.curate", "no_leak"), ("evergreen.curate", "no_conflict"),
        ("evergreen.curate", "class_balance"), ("evergreen.refresh", "fresh_answers"),
        ("training.evergreen", "no_leak"), ("evaluation.evergreen", "calibrated"),
    }  # fmt: skip
    workspace.lay("evergreen/curate", SOUND)
    results = {r.check_name: r.passed for r in check_results(graph, graph.by_name["evergreen.curate"])}
    assert results == {"outcomes_add_up": False, "no_leak": True, "no_conflict": True, "class_balance": True}


def test_a_day_that_passes_makes_answers_overdue(workspace: Workspace) -> None:
    workspace.lay("evergreen/refresh", ANSWERS).params()

    def on(day: date) -> Callable[[], Seen]:
        return lambda: look(workspace.root, "evergreen", day)

    shares = [FRESH_ANSWERS.result(on(date(2026, m, 15))).metadata["share overdue"].value for m in (2, 3, 4)]
    assert shares == [0.0, 0.6667, 1.0]


def test_a_history_of_another_shape_is_told_without_its_plot(workspace: Workspace, project: Graph) -> None:
    from dagster_project.metadata import describe

    workspace.lay("evergreen/refresh", [{"question": "Who leads a?", "answer": "Ann"}])
    told = describe(workspace.root, project.by_name["evergreen.refresh"], {})
    assert told["plot/refresh_history"] == "not drawn: ColumnNotFoundError"
    assert "Who leads a?" in str(told["preview"].value)
    workspace.lay("evergreen/refresh", ANSWERS)
    drawn = describe(workspace.root, project.by_name["evergreen.refresh"], {})["plot/refresh_history"]
    assert str(drawn.value).startswith("![refresh_history](data:image/svg+xml;base64,")


def test_the_history_shows_each_answer_for_the_time_it_held(workspace: Workspace, tmp_path: Path) -> None:
    changed = [
        {**ANSWERS[0], "answer": "Old & <b>", "valid_to": date(2026, 1, 1), "version": 0},
        {**ANSWERS[0], "answer": "New", "valid_from": date(2026, 1, 1), "version": 1, "seen": 2},
    ]
    workspace.lay("evergreen/refresh", [*changed, ANSWERS[1]])
    rows = tmp_path / "data/evergreen/refresh/rows.parquet"
    svg = history_plot(rows)
    assert svg is not None and svg == history_plot(rows)
    import xml.etree.ElementTree as ET

    drawn = ET.fromstring(svg)
    bars = [e for e in drawn.iter() if e.tag.endswith("rect") and e.get("rx")]
    titles = ["".join(b.itertext()) for b in bars]
    assert titles == [
        "Old & <b>: ever to 2026-01-01, seen on 1 days",
        "New: 2026-01-01 to now, seen on 2 days",
        "Ann: ever to now, seen on 1 days",
    ]
    left, width = float(bars[0].get("x") or 0), float(bars[0].get("width") or 0)
    assert abs(left + width - float(bars[1].get("x") or 0)) < 0.2, "no gap and no overlap"
    workspace.lay("evergreen/refresh", [{**ANSWERS[0], "answer": None}])
    assert history_plot(rows) is None
    ends = {**ANSWERS[0], "valid_from": date.min, "as_of": date.max}
    workspace.lay("evergreen/refresh", [ends])
    drawn_to_the_ends = history_plot(rows)
    assert drawn_to_the_ends is not None and "0001-01-01 to now" in drawn_to_the_ends
