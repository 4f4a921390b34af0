"""Every problem and every candidate of the files is read once, and a bad one is a reject with its place."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from cbu_workspace import Workspace, problem

from pipelines.errors import InputError, StageError

ROOT = Path(__file__).parents[2]
GSM8K = {
    "question": "Two robes take 3 bolts each. How many bolts?",
    "ground_truth": "2*3=<<2*3=6>>6 bolts\nA: 6",
    "6b_finetuning": {"is_correct": False, "solution": "2+3=5\nA: 5"},
    "175b_verification": {"is_correct": True, "solution": "2*3=6\nA: 6"},
}
CHAMP = {
    "problems": {
        "P_A_1": {
            "_text": "How many?",
            "_answer": "C(10, 5), or equivalently 252",
            "ch_list": ["H_A_1_1", "C_comb"],
            "fws_annotations": {
                "M|direct": {"text": "It is 252.", "start_idx": None, "end_idx": None},
                "M|hint": {"text": "It is 10.", "start_idx": 0, "end_idx": 4},
            },
        },
        "P_A_2": {"_text": "Which n?", "_answer": "7", "ch_list": [], "fws_annotations": {}},
    }
}


def test_a_problem_gives_its_own_row_and_one_for_each_candidate(workspace: Workspace) -> None:
    workspace.put_rows("a.jsonl", [problem(1, "2 + 2?", 4, "It is 4.", "It is 5.", concepts=["sum"])])
    workspace.run("ingest")
    rows = workspace.rows("ingest")
    assert rows["problem"].n_unique() == 1
    assert sorted(rows.select("solution", "label").rows(), key=str) == sorted(
        [(None, None), ("It is 4.", "right"), ("It is 5.", "wrong")], key=str
    )
    own = rows.filter(rows["solution"].is_null())["row_id"][0]
    assert {tuple(p) for p in rows.filter(rows["solution"].is_not_null())["parents"]} == {(own,)}


def test_gsm8k_model_solutions_keep_their_labels_and_the_gold_answer(workspace: Workspace) -> None:
    workspace.put_rows("solutions.jsonl", [GSM8K])
    workspace.run("ingest")
    rows = workspace.rows("ingest")
    assert set(rows["answer"]) == {"6"}
    assert set(rows.select("author", "label").rows()) == {
        (None, None),
        ("6b_finetuning", "wrong"),
        ("175b_verification", "right"),
    }


def test_a_champ_solution_is_right_when_no_step_was_marked(workspace: Workspace) -> None:
    workspace.put("v0.json", json.dumps(CHAMP, indent=1))
    workspace.run("ingest")
    rows = workspace.rows("ingest")
    assert set(rows.select("author", "label").rows()) == {
        (None, None),
        ("M|direct", "right"),
        ("M|hint", "wrong"),
    }
    assert set(rows.filter(rows["name"] == "v0/P_A_1")["concepts"].list.join(",")) == {"C_comb"}
    origin = {Path(f).name: n for f, n in _origin(workspace)}
    line = json.dumps(CHAMP, indent=1).split("\n").index('  "P_A_2": {') + 1
    assert origin["v0.json"] == line


def test_a_champ_problem_that_cannot_be_written_costs_itself(workspace: Workspace) -> None:
    odd = {**CHAMP["problems"], "P_A_3\udc00": {"_text": "How?", "_answer": "1"}}
    odd["P_A_4"] = {"_text": "How \ud800?", "_answer": "1"}
    workspace.put("v0.json", json.dumps({"problems": odd}, indent=1))
    workspace.run("ingest")
    bad = workspace.rejected("ingest").select("item", "reason").sort("item").rows()
    assert bad == [("cbu/v0.json:P_A_3\\udc00", "unreadable"), ("cbu/v0.json:P_A_4", "unreadable")]
    assert len(workspace.rows("ingest")) == 4


def test_a_first_line_without_its_question_costs_itself(workspace: Workspace) -> None:
    good = json.dumps(problem(1, "What is 1 + 1?", 2, "It is 2."))
    workspace.put("a.jsonl", f'{{"id": "x", "answer": 5}}\n{good}\n')
    workspace.run("ingest")
    bad = workspace.rejected("ingest").select("line", "column", "reason").rows()
    assert bad == [(1, "question", "missing_value")]
    assert len(workspace.rows("ingest")) == 2


def _origin(workspace: Workspace) -> list[tuple[str, int]]:
    frame = pl.read_parquet(workspace.root / "data/cbu/ingest/origin.parquet").sort("line")
    return [(str(f), int(n)) for f, n in frame.select("file", "line").rows()]


@pytest.mark.parametrize(
    ("line", "reason", "column"),
    [
        ('{"id": "x", "answer": 5}', "missing_value", "question"),
        ('{"id": "x", "question": "  ", "answer": 5}', "missing_value", "question"),
        ('{"id": "x", "question": 5, "answer": 5}', "wrong_type", "question"),
        ('{"id": "x", "question": "Why?", "answer": [5]}', "wrong_type", "answer"),
        ('{"id": "x", "question": "Why?", "answer": 5, "concepts": "sum"}', "wrong_type", "concepts"),
        ('{"id": "x", "question": "Why?", "answer": 5, "candidates": {}}', "wrong_type", "candidates"),
        ('{"id": "x", "question": "Half a li', "unreadable", None),
        ("[1, 2]", "unreadable", None),
        ('{"id": "x", "question": "\\ud800", "answer": 5}', "unreadable", None),
        ('{"id": "x", "question": "Why?", "ground_truth": 5}', "wrong_type", "ground_truth"),
        ('{"id": "p1", "question": "Another one?", "answer": 5}', "id_used_twice", None),
    ],
)
def test_a_bad_line_in_the_middle_is_a_reject_with_its_place_and_costs_no_other(
    workspace: Workspace, line: str, reason: str, column: str | None
) -> None:
    good = [json.dumps(problem(n, f"What is {n} + {n}?", 2 * n, f"It is {2 * n}.")) for n in (1, 2)]
    workspace.put("a.jsonl", "\n".join([good[0], line, good[1]]))
    step = workspace.run("ingest")
    assert len(workspace.rows("ingest")) == 4
    bad = workspace.rejected("ingest").select("file", "line", "column", "reason").rows()
    assert bad == [("cbu/a.jsonl", 2, column, reason)]
    assert step.rows_in == 3


@pytest.mark.parametrize(
    ("candidate", "reason", "column"),
    [
        ({"solution": ""}, "empty_solution", "candidates[2].solution"),
        ({"label": "right"}, "empty_solution", "candidates[2].solution"),
        ({"solution": None}, "empty_solution", "candidates[2].solution"),
        ({"solution": 5}, "wrong_type", "candidates[2].solution"),
        ("It is 4.", "wrong_type", "candidates[2]"),
        ({"solution": "It is 4.", "label": "maybe"}, "unknown_label", "candidates[2].label"),
    ],
)
def test_a_bad_candidate_is_a_reject_and_never_an_empty_solution(
    workspace: Workspace, candidate: object, reason: str, column: str
) -> None:
    row = problem(1, "2 + 3?", 5, "It is 5.")
    row["candidates"].append(candidate)
    workspace.put_rows("a.jsonl", [row])
    workspace.run("ingest")
    rows = workspace.rows("ingest")
    assert rows["solution"].drop_nulls().to_list() == ["It is 5."]
    bad = workspace.rejected("ingest").select("line", "column", "reason").rows()
    assert bad == [(1, column, reason)]


def test_the_candidates_of_a_rejected_problem_are_rejected_too(workspace: Workspace) -> None:
    row = {"answer": 5, "candidates": [{"solution": "It is 5."}, {"solution": "It is 6."}]}
    workspace.put_rows("a.jsonl", [problem(1, "Fine?", 1), row])
    workspace.run("ingest")
    assert sorted(workspace.rejected("ingest")["reason"]) == [
        "missing_value",
        "problem_rejected",
        "problem_rejected",
    ]


def test_one_question_in_two_files_is_one_problem(workspace: Workspace) -> None:
    workspace.put_rows("a.jsonl", [problem(1, "2 + 3?", 5, "It is 5.")])
    workspace.put_rows("b.jsonl", [problem(9, " 2 + 3? ", "5.0", wrong="It is 6.")])
    workspace.run("ingest")
    rows = workspace.rows("ingest")
    assert rows["problem"].n_unique() == 1
    assert sorted(rows["solution"].drop_nulls()) == ["It is 5.", "It is 6."]
    assert workspace.rejected("ingest")["reason"].to_list() == ["duplicate"]


def test_two_answers_to_one_question_are_a_conflict(workspace: Workspace) -> None:
    workspace.put_rows("a.jsonl", [problem(1, "2 + 3?", 5), problem(2, "2 + 3?", 6, "It is 6.")])
    workspace.run("ingest")
    assert sorted(workspace.rejected("ingest")["reason"]) == ["conflicting_answers", "problem_rejected"]
    assert workspace.rows("ingest")["answer"].to_list() == ["5"]


def test_equal_solutions_of_one_problem_are_both_kept(workspace: Workspace) -> None:
    row = problem(1, "2 + 3?", 5)
    row["candidates"] = [{"solution": "5", "author": "a"}, {"solution": "5", "author": "b"}]
    workspace.put_rows("a.jsonl", [row])
    workspace.run("ingest")
    assert sorted(workspace.rows("ingest")["author"].drop_nulls()) == ["a", "b"]


def test_a_row_put_in_above_changes_no_other(workspace: Workspace) -> None:
    rows = [problem(n, f"What is {n} + 1?", n + 1, "So.", "No.") for n in range(4)]
    workspace.put_rows("a.jsonl", rows)
    workspace.run("ingest")
    before = set(workspace.rows("ingest")["row_id"])
    workspace.put_rows("a.jsonl", [problem(9, "New?", 1), *rows])
    workspace.run("ingest")
    assert before < set(workspace.rows("ingest")["row_id"])


def test_limit_reads_the_first_problems_of_each_file(workspace: Workspace) -> None:
    workspace.put_rows("a.jsonl", [problem(n, f"What is {n} + 1?", n + 1) for n in range(4)])
    workspace.put_rows("b.jsonl", [problem(n, f"What is {n} + 2?", n + 2) for n in range(4)])
    step = workspace.run("ingest", limit=3)
    assert (step.rows_in, len(workspace.rows("ingest"))) == (6, 6)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.jsonl", "", "empty"),
        ("a.jsonl", '{"answer": 5}\n', "column 'question' is missing"),
        ("a.jsonl", '[{"question": "Why?"}]', "name it .json"),
        ("a.json", '[{"question": "Why?"}]', "no object 'problems'"),
        ("a.json", "{", "is not JSON"),
        ("a.csv", "question,answer\nWhy?,5\n", "no reader for this suffix"),
    ],
)
def test_a_file_of_another_kind_is_one_line_that_names_it(
    workspace: Workspace, name: str, text: str, says: str
) -> None:
    workspace.put(name, text)
    with pytest.raises(InputError) as caught:
        workspace.run("ingest")
    assert says in str(caught.value) and f"cbu/{name}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (workspace.root / "data/cbu").exists()


def test_broken_utf8_names_the_line(workspace: Workspace) -> None:
    (workspace.raw / "a.jsonl").write_bytes(b'{"question": "Why?"}\n{"question": "\xff"}\n')
    with pytest.raises(InputError, match=r"cbu/a\.jsonl:2: is not UTF-8"):
        workspace.run("ingest")


def test_no_files_at_all_is_said(workspace: Workspace) -> None:
    with pytest.raises(StageError, match="no raw files here"):
        workspace.run("ingest")


def test_the_demo_has_sixty_problems_each_with_a_right_and_a_wrong_solution(workspace: Workspace) -> None:
    text = (ROOT / "data/raw/cbu/problems.jsonl").read_text(encoding="utf-8")
    workspace.put("problems.jsonl", text)
    workspace.run("ingest")
    rows = workspace.rows("ingest")
    assert sum(set(both) == {"right", "wrong"} for both in _labels(rows).values()) >= 60
    assert len(workspace.rejected("ingest")) >= 8


def _labels(rows: pl.DataFrame) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, label in rows.select("problem", "label").rows():
        if label is not None:
            found.setdefault(key, []).append(label)
    return {k: sorted(v) for k, v in found.items()}


@pytest.mark.real
def test_champ_adds_up(workspace: Workspace, real_data: Path) -> None:
    source = real_data / "champ" / "v0_without_conversations.json"
    (workspace.raw / "champ.json").symlink_to(source)
    workspace.run("ingest")
    rows, counts = workspace.rows("ingest"), workspace.outcomes("ingest")
    marks = [
        a for p in json.loads(source.read_text())["problems"].values() for a in p["fws_annotations"].values()
    ]
    assert len(marks) == 540 and sum(a["start_idx"] is None for a in marks) == 96
    assert counts["items"] == 270 + 540 == counts["accepted"] + counts["rejected"]
    assert (rows["label"] == "right").sum() == 96
    assert (rows["label"] == "wrong").sum() == 540 - 96
    assert rows["solution"].is_null().sum() == 270
    assert rows.filter(rows["solution"].is_null())["concepts"].list.len().eq(0).sum() == 47


@pytest.mark.real
def test_gsm8k_adds_up(workspace: Workspace, real_data: Path) -> None:
    folder = real_data / "gsm8k"
    for name in ("example_model_solutions_first200.jsonl", "test.jsonl"):
        (workspace.raw / name).symlink_to(folder / name)
    workspace.run("ingest")
    rows, counts = workspace.rows("ingest"), workspace.outcomes("ingest")
    raw = [json.loads(line) for line in (folder / "example_model_solutions_first200.jsonl").open()]
    right = sum(v["is_correct"] for r in raw for v in r.values() if isinstance(v, dict))
    assert (rows["label"] == "right").sum() == right
    assert rows["solution"].is_not_null().sum() == 800
    assert rows["solution"].is_null().sum() == 1319
    assert counts["items"] == 200 + 800 + 1319
    assert counts["reasons"] == {"rejected(duplicate)": 200}
    gold = dict(rows.filter(rows["solution"].is_null()).select("question", "answer").rows())
    assert "1450000" in gold.values() and not any("####" in a for a in gold.values())
