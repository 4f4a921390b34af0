"""What the demo must show, seen on a live run with embedded models."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.lineage import Tracer
from pipelines.llm.store import Store
from tests.demo import Demo

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(2400)]
OUTCOMES = ("accepted", "rejected", "refused", "unparsable", "unverified", "failed", "over_budget")
MOST_TOKENS = 15_000


def rows(demo: Demo, artifact: str, name: str = "rows") -> pl.DataFrame:
    return pl.read_parquet(demo.folder / "data" / artifact / f"{name}.parquet")


def outcomes(demo: Demo) -> dict[str, dict[str, Any]]:
    found = sorted((demo.folder / "data").glob("*/**/outcomes.json"))
    return {p.parent.relative_to(demo.folder / "data").as_posix(): json.loads(p.read_text()) for p in found}


def test_the_rerun_after_the_kill_asked_nothing_that_was_stored(demo: Demo) -> None:
    assert len(demo.stored_at_kill) > 20
    later = demo.requests()[demo.asked_before_kill :]
    assert later
    assert demo.stored_at_kill & set(later) == set()


def test_the_run_ends_with_a_table_of_every_stage_and_the_report(demo: Demo) -> None:
    assert "reports/index.html" in demo.output
    for stage in (
        "evergreen.refresh",
        "egoavu.questions",
        "trit.feedback@fr",
        "cbu.score",
        "training.evergreen",
    ):
        assert re.search(rf"^{re.escape(stage)} .* fresh$", demo.output, re.M), stage


def test_a_second_run_has_nothing_to_do_and_dvc_agrees(demo: Demo) -> None:
    before = len(demo.requests())
    assert "nothing to be done: 34 stages up to date" in demo.run("make run")
    assert "up to date" in demo.run(".venv/bin/dvc status")
    assert "up to date" in demo.run(". .venv/bin/activate && dvc repro")
    assert len(demo.requests()) == before


def test_the_counts_of_every_stage_add_up_against_its_own_files(demo: Demo) -> None:
    told = json.loads(demo.run(".venv/bin/headrace status --json").strip().split("\n")[-1])["stages"]
    assert len(told) == 34
    for line in told:
        if line["stage"] == "evaluation.report":
            assert line["rows_in"] is None
            continue
        folder = line["stage"].replace(".", "/").replace("@", "/")
        seen = outcomes(demo)[folder]
        assert sum(seen[o] for o in OUTCOMES) == seen["items"] == line["items"], line
        assert line["accepted"] + line["rejected"] + line["other"] == line["items"], line
        assert len(rows(demo, folder, "rejected")) == line["rejected"] + line["other"], line
        if line["rows_out"] is not None:
            assert len(rows(demo, folder)) == line["rows_out"], line
        assert line["fresh"] is True


@pytest.mark.parametrize(
    "artifact",
    """
    evergreen/ingest evergreen/curate evergreen/filter evergreen/refresh training/evergreen
    egoavu/ingest egoavu/filter egoavu/graph egoavu/narrate egoavu/questions
    trit/ingest trit/translate/fr trit/translate/pt cbu/ingest cbu/neighbors
    """.split(),
)
def test_a_step_that_can_reject_rejects_something_and_accepts_something(demo: Demo, artifact: str) -> None:
    seen = outcomes(demo)[artifact]
    assert seen["accepted"] > 0
    assert seen["rejected"] > 0


def numbers(text: str) -> set[float]:
    """Values of the numerals of a text, read without the project: 2,400 and 2.400 and 2 400 are one."""
    plain = re.sub(r"(?<=\d)[.,\s\u202f](?=\d{3}\b)", "", text)
    return {float(n.replace(",", ".")) for n in re.findall(r"\d+(?:[.,]\d+)?", plain)}


@pytest.mark.parametrize("language", ["fr", "pt"])
def test_translations_are_accepted_and_rejected_and_come_from_the_model(demo: Demo, language: str) -> None:
    accepted = rows(demo, f"trit/translate/{language}")
    assert len(accepted) >= 3
    assert len(rows(demo, f"trit/translate/{language}", "rejected")) >= 3
    tracer = Tracer(demo.folder, demo.folder / ".headrace" / "responses.sqlite")
    for row in accepted.to_dicts():
        node = tracer.trace(row["row_id"])
        (response,) = node.responses
        assert response.text.strip() == row["translation"]
        assert node.parents[0].origin.startswith("data/raw/trit/problems.jsonl:")
        assert numbers(row["english"]) <= numbers(row["translation"])
        assert row["translation"].casefold() != row["english"].casefold()


def test_rollouts_are_right_sometimes(demo: Demo) -> None:
    for language in ("fr", "pt"):
        r_acc = rows(demo, f"trit/reason/{language}")["r_acc"]
        assert 0 < r_acc.sum() < len(r_acc)


def test_how_unsure_the_model_was_is_measured_on_answers_of_which_some_are_right(demo: Demo) -> None:
    asked = rows(demo, "evaluation/uncertainty")
    assert len(asked) == 20 and set(asked["origin"]) == {"asked"}
    assert 0 < asked["correct"].sum() < 20
    names = asked["scores"].list.eval(pl.element().struct.field("name")).list.len()
    assert (names == 7).sum() >= 15  # all estimates, but where samples came empty
    for job in ("training/self_knowledge", "evaluation/implicit", "evaluation/retrieval_explained"):
        told = json.loads((demo.folder / "data" / job / "metrics.json").read_text())
        assert told["sample"]["demo"] is True
    assert "too few to speak of quality" in told["sample"]["what"]


def test_candidates_of_at_least_two_problems_differ_in_utility(demo: Demo) -> None:
    score = rows(demo, "cbu/score").filter(pl.col("utility").is_not_null())
    spread = score.group_by("question").agg(pl.col("utility").n_unique().alias("levels"))
    assert spread.filter(pl.col("levels") > 1).height >= 2


def test_the_demo_stays_within_its_tokens(demo: Demo) -> None:
    with Store(demo.folder / ".headrace" / "responses.sqlite") as store:
        used = [store.record(k) for k in set(demo.requests())]
    assert sum(r.kept.usage.completion_tokens for r in used if r is not None) <= MOST_TOKENS
    assert sum(o["tokens"]["completion"] for o in outcomes(demo).values()) <= MOST_TOKENS


def test_the_report_is_one_page_that_loads_nothing_and_shows_ten_rows_an_engine(demo: Demo) -> None:
    html = (demo.folder / "reports" / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"""(src|href)=["']https?:""", html)
    assert html.count("<svg") == 7
    assert html.count("<summary>trace</summary>") == 50
    assert "problems.jsonl:" in html


def test_a_preview_after_the_run_finds_every_answer_stored(demo: Demo) -> None:
    said = demo.run(". .venv/bin/activate && headrace preview --json")
    told = json.loads(said.strip().split("\n")[-1])["stages"]
    counts = {line["stage"]: line["models"] for line in told if line["models"]}
    assert {"evergreen.translate", "trit.reason@pt", "cbu.rollout"} <= counts.keys()
    assert all(count["new"] == 0 < count["stored"] for models in counts.values() for count in models)
    assert all(line["texts_new"] == 0 and not line["fault"] for line in told)


def test_the_clone_is_as_clean_as_before_but_for_the_lock(demo: Demo) -> None:
    assert set(demo.run("git status --porcelain").split("\n")) <= {"?? dvc.lock", "?? .venv", ""}


def test_the_verbal_baselines_of_a_tiny_model_are_called_what_they_are_and_cost_few_tokens(
    demo: Demo,
) -> None:
    told = json.loads((demo.folder / "data/evaluation/verbal/metrics.json").read_text())
    assert "too few questions and too small a model to speak of quality" in told["sample"]["what"]
    assert told["sample"]["what"] in (demo.folder / "reports/index.html").read_text()
    replies = rows(demo, "evaluation/verbal")
    assert len(replies) == 3 * 12 == outcomes(demo)["evaluation/verbal"]["accepted"]
    assert replies["completion_tokens"].sum() <= 300
    for name, own in told["methods"].items():
        unparsed = replies.filter((pl.col("method") == name) & (pl.col("verdict") == "unparsed"))
        assert (own["rows"], own["unparsed"]) == (12, len(unparsed))


def test_the_commands_of_the_readme_do_what_they_say(demo: Demo) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (demo.folder / "README.md").read_text(encoding="utf-8"), re.S)
    script = "\n".join(blocks)
    assert script.startswith("make run\nmake test\n")
    own = Path(demo.folder / "run-readme.sh")
    own.write_text("set -euo pipefail\nexport PYTEST_ADDOPTS=--collect-only\n" + script)
    assert "tests collected" in demo.run("bash run-readme.sh")
    own.unlink()
