"""The answers that rows reach travel with them: a clone without a store traces and replays."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import yaml
from answering import Answering, lay, pulled

from pipelines.llm.request import named_request
from pipelines.llm.store import Kept, Record, Store
from tests.llm.questions import question
from tests.llm.scripted_server import ScriptedServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ANSWERS = Path(__file__).parents[1] / "chaos" / "answers.py"
FILE = "data/answers/answers.parquet"
STAGES = ["trit.feedback", "cbu.score", "evaluation.answers"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answering]:
    """Run once, by a shell, against an endpoint that is gone afterwards."""
    with ScriptedServer(answers=ANSWERS) as server:
        workspace = lay(tmp_path_factory.mktemp("answering") / "first", server.url)
        workspace.dvc("repro")
    workspace.url = ""
    yield workspace


@pytest.fixture
def clone(made: Answering, tmp_path: Path) -> Answering:
    return pulled(made, tmp_path / "clone")


def used(folder: Path) -> set[str]:
    """Ids in the `responses` of every row and reject, read without the project's lineage."""
    files = [
        p for p in (folder / "data").rglob("*.parquet") if p.name in ("rows.parquet", "rejected.parquet")
    ]
    return {k for p in files for ids in pl.read_parquet(p).get_column("responses").to_list() for k in ids}


def embedded(folder: Path) -> set[str]:
    return {k for p in (folder / "data").rglob("embedded.parquet") for k in pl.read_parquet(p)["key"]}


def a_row_with_an_answer(folder: Path) -> dict[str, object]:
    return pl.read_parquet(folder / "data/trit/translate/fr/rows.parquet").row(0, named=True)


def a_reject_with_an_answer(folder: Path) -> dict[str, object]:
    rejects = pl.read_parquet(folder / "data/trit/translate/fr/rejected.parquet")
    return rejects.filter(pl.col("responses").list.len() > 0).row(0, named=True)


def test_the_file_holds_exactly_what_rows_rejects_and_stages_used(made: Answering) -> None:
    table = pl.read_parquet(made.folder / FILE)
    vectors = table.filter(pl.col("kind") == "embedding")
    assert len(used(made.folder)) > 10
    assert len(embedded(made.folder)) > 2
    assert set(table["key"]) == used(made.folder) | embedded(made.folder)
    assert set(vectors["key"]) == embedded(made.folder)
    told = json.loads((made.folder / "data/evaluation/answers/outcomes.json").read_text())
    assert (told["items"], told["accepted"], told["failed"]) == (len(table), len(table), 0)


def test_a_pulled_clone_is_fresh_and_traces_rows_and_rejects_without_a_store(clone: Answering) -> None:
    assert "nothing to be done" in clone.run("run")
    for row in (a_row_with_an_answer(clone.folder), a_reject_with_an_answer(clone.folder)):
        tree = clone.run("trace", str(row["row_id"]))
        assert f"answer {row['responses'][0][:16]} by gemma3-270m" in tree  # type: ignore[index]
        assert "prompt: " in tree
        assert "not in this store" not in tree
    assert not (clone.folder / ".headrace" / "responses.sqlite").exists()


def test_a_pulled_clone_replays_every_stage_to_the_same_bytes_without_an_endpoint(
    made: Answering, clone: Answering
) -> None:
    before = clone.outs()
    assert before == made.outs()
    said = clone.run("run", "--force", HEADRACE_LLM_BACKEND="replay")
    assert "9 stages made" in said
    assert clone.outs() == before


def test_a_run_in_a_clone_asks_only_what_is_new(clone: Answering) -> None:
    """Its answers came by the pull: of one rollout more, only that is asked."""
    params = yaml.safe_load((clone.folder / "params.yaml").read_text())
    params["cbu"]["rollout"]["rollouts"] = 3
    (clone.folder / "params.yaml").write_text(yaml.safe_dump(params))
    before = used(clone.folder)
    with ScriptedServer(answers=ANSWERS) as server:
        clone.url = server.url
        clone.dvc("repro")
        asked = set(server.asked())
    assert asked
    assert asked.isdisjoint(before)
    assert asked <= used(clone.folder)
    assert set(pl.read_parquet(clone.folder / FILE)["key"]) == used(clone.folder) | embedded(clone.folder)


def test_other_clocks_and_another_store_give_the_same_file(made: Answering, tmp_path: Path) -> None:
    with ScriptedServer(answers=ANSWERS, latency_ms=30) as server:
        again = lay(tmp_path / "again", server.url)
        again.dvc("repro")
    assert again.outs() == made.outs()


def test_an_export_of_the_run_replays_it_by_its_path(made: Answering, tmp_path: Path) -> None:
    store = made.folder / ".headrace" / "responses.sqlite"
    copy = shutil.copytree(made.folder, tmp_path / "copy", symlinks=True)
    there = Answering(copy)
    with Store(copy / ".headrace" / "responses.sqlite") as opened:
        opened.put([unreached()])
    said = there.run("store", "export", "--run", "run.parquet")
    table = pl.read_parquet(copy / "run.parquet")
    assert set(table["key"]) == used(copy) | embedded(copy)
    assert f"{len(used(copy))} answers" in said
    there.run("store", "export", "all.parquet")
    assert len(pl.read_parquet(copy / "all.parquet")) == len(table) + 1
    assert set(table.filter(pl.col("kind") != "embedding")["body"].bin.size()) != {0}
    assert store.is_file()
    shutil.rmtree(copy / "data" / "answers")
    shutil.rmtree(copy / ".headrace")
    export = {"HEADRACE_STORE": "run.parquet", "HEADRACE_LLM_BACKEND": "replay"}
    before = there.outs()
    there.run("run", "--force", "trit.feedback", "cbu.score", **export)
    assert there.outs() == before
    there.run("run", "evaluation.answers", **export)
    assert there.outs() == made.outs()
    assert not (copy / ".headrace" / "responses.sqlite").exists()


def unreached() -> Record:
    named = named_request(question(1), "scripted", "name:scripted")
    return Record(
        named.key, "completion", "scripted", "name:scripted", named.canonical, Kept("x", "stop"), b"{}"
    )


def test_a_replay_that_misses_names_stage_row_and_field(clone: Answering) -> None:
    params = yaml.safe_load((clone.folder / "params.yaml").read_text())
    params["trit"]["translate"]["temperature"] = 0.5
    (clone.folder / "params.yaml").write_text(yaml.safe_dump(params))
    said = clone.run("run", "trit.translate", HEADRACE_LLM_BACKEND="replay", expect=1)
    keys = pl.read_parquet(clone.folder / "data/trit/ingest/rows.parquet")["problem_key"].to_list()
    assert "replay: no stored answer of gemma3-270m to trit.translate@fr of row" in said
    assert any(f"of row {key}#0, sample 0: " in said for key in keys)
    assert "differs from the stored one in sampling.temperature: 0.5 where " in said
    assert "more of the requests at hand are not stored" in said


def test_prune_asks_first_and_keeps_what_rows_and_locks_reach_or_a_stale_stage_may_use(
    made: Answering, tmp_path: Path
) -> None:
    there = Answering(shutil.copytree(made.folder, tmp_path / "copy", symlinks=True))
    path = there.folder / ".headrace" / "responses.sqlite"
    with Store(path) as store:
        store.put([unreached()])
        kept = store.count() - 1
    told = there.run("store", "prune", expect=1)
    assert (
        f"would take away 1 of {kept + 1} answers and 0 of {len(embedded(there.folder))} embeddings" in told
    )
    with Store(path) as store:
        assert store.count() == kept + 1
    assert "took away 1 of" in there.run("store", "prune", "--yes")
    with Store(path) as store:
        assert set(store.answers(used(there.folder))) == used(there.folder)
        assert store.count() == kept
    assert "nothing to prune" in there.run("store", "prune")
    with Store(path) as store:  # a run of other parameters that was killed, and what nobody needs
        half = replace(unreached(), purpose="trit.translate@fr")
        named = named_request(question(2), "scripted", "name:scripted")
        store.put([half, replace(unreached(), key=named.key, request=named.canonical)])
    (there.folder / "data/trit/translate/fr/rows.parquet").unlink()
    shutil.rmtree(there.folder / "data/trit/reason/fr")
    said = there.run("store", "prune", "--yes")
    assert f"took away 1 of {kept + 2} answers and 0 of {len(embedded(made.folder))} embeddings" in said
    assert "keeps every answer of 4 stages: evaluation.answers, trit.feedback@fr, trit.reason@fr, ..." in said
    with Store(path) as store:
        assert set(store.answers(used(made.folder))) == used(made.folder), "dvc.lock reaches them"
        assert half.key in store.answers([half.key])


def test_answers_that_are_lost_stop_the_stage_and_an_import_brings_them_back(
    made: Answering, tmp_path: Path
) -> None:
    there = Answering(shutil.copytree(made.folder, tmp_path / "copy", symlinks=True))
    there.run("store", "export", "kept.parquet")
    (key,) = a_row_with_an_answer(there.folder)["responses"]  # type: ignore[misc]
    (there.folder / FILE).unlink()
    with sqlite3.connect(there.folder / ".headrace" / "responses.sqlite") as raw:
        raw.execute("UPDATE answers SET text = 'wrong' WHERE key = ?", (bytes.fromhex(key),))
    said = there.run("run", "evaluation.answers", expect=1)
    assert f"1 of {len(used(there.folder)) + len(embedded(there.folder))} answers that rows use" in said
    assert key[:16] in said
    said = there.run("store", "verify", expect=1)
    assert "1 damaged, 1 set aside" in said
    assert "all sound" in there.run("store", "verify")
    assert there.run("store", "import", "kept.parquet").startswith("1 new, ")
    there.run("run", "evaluation.answers")
    assert there.outs() == made.outs()


def test_stats_tell_models_stages_and_tokens(made: Answering) -> None:
    told = json.loads(made.run("store", "stats", "--json").split("\n")[0])
    assert told["answers"] == len(used(made.folder))
    assert told["embeddings"] == len(embedded(made.folder))
    assert set(told["purposes"]) == {"trit.translate@fr", "trit.reason@fr", "cbu.rollout"}
    assert sum(m["answers"] for m in told["models"].values()) == told["answers"]
    assert "purpose trit.reason@fr" in made.run("store", "stats")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["export", "run.csv"], "run.csv: an export ends in .parquet (name it run.csv.parquet)"),
        (["export", "data/trit/ingest/rows.parquet"], "exists and is no export (name another file)"),
        (["import", "absent.parquet"], "absent.parquet: there is no such file"),
        (["import", "params.yaml"], "params.yaml: the export is damaged or no Parquet file"),
        (["import", "data/trit/ingest/rows.parquet"], "is no export of a response store"),
        (["verfy"], "invalid choice: 'verfy'"),
    ],
)
def test_what_is_wrong_is_one_line(made: Answering, arguments: list[str], says: str) -> None:
    said = made.run("store", *arguments, expect=1)
    assert says in said
    assert said.strip().count("\n") == 0
