"""Questions made, verified, translated and aliased by a scripted model, through the command line."""

from __future__ import annotations

import importlib
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.cli import main
from pipelines.data.tables import write_parquet
from tests.llm.scripted_server import ScriptedServer

pytestmark = pytest.mark.slow
STAGES = ("ingest", "synthesize", "verify", "translate", "aliases")
RAW = (
    "question,language,label,change_rate,split,answer\n"
    "Who dug the old mill stream?,en,1,never,train,monks\n"
    "Who was the first miller?,en,1,never,train,Ane Berg\n"
    "Who is the miller?,en,0,slow,train,\n"
    "What does flour cost?,en,0,fast,train,\n"
    "Who is the keeper of the lock?,en,0,slow,test,\n"
)
SETS = {
    "synthesize.languages": "[en]",
    "synthesize.balance": "{never: 0.4, slow: 0.3, fast: 0.3}",
    "synthesize.questions": "30",
    "synthesize.by_model": "1.0",
    "synthesize.per_answer": "3",
    "synthesize.topics": "[rivers, faults, more, noise]",
    "translate.languages": "[fr, de]",
    "translate.sources": "[model]",
    "translate.limit": "0",
    "aliases.sources": "[model]",
    "aliases.limit": "0",
    "aliases.fewest": "2",
    "aliases.least": "2",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The workspace after all stages, and what the model was asked."""
    with pytest.MonkeyPatch.context() as patch:
        folder = lay(tmp_path_factory.mktemp("made"), patch)
        with served(patch) as server:
            for stage in STAGES:
                assert main([f"evergreen.{stage}"]) == 0
            yield folder, server.requests()


def lay(folder: Path, patch: pytest.MonkeyPatch, **more: str) -> Path:
    patch.chdir(folder)
    (folder / "raw.csv").write_text(RAW)
    sets = [w for k, v in {**SETS, **more}.items() for w in ("--set", f"evergreen.{k}={v}")]
    assert main(["init", "w", "--source", "evergreen=raw.csv", *sets]) == 0
    patch.chdir(folder / "w")
    for name in ("HEADRACE_LLM_MODEL", "HEADRACE_STORE", "HEADRACE_RUN_ID"):
        patch.delenv(name, raising=False)
    return folder / "w"


def served(patch: pytest.MonkeyPatch, **script: Any) -> ScriptedServer:
    server = ScriptedServer(script or None, answers=Path(__file__).with_name("made_answers.py"))
    patch.setenv("HEADRACE_LLM_BACKEND", "openai")
    patch.setenv("HEADRACE_LLM_BASE_URL", server.url)
    return server


def outcomes(folder: Path, stage: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((folder / f"data/evergreen/{stage}/outcomes.json").read_text())
    return told


def rows(folder: Path, stage: str, name: str = "rows") -> pl.DataFrame:
    return pl.read_parquet(folder / f"data/evergreen/{stage}/{name}.parquet")


def reasons(folder: Path, stage: str) -> Counter[str]:
    told = outcomes(folder, stage)
    ends = ("accepted", "rejected", "unparsable", "failed", "refused", "unverified", "over_budget")
    assert sum(told[e] for e in ends) == told["items"]
    return Counter(told["reasons"])


def test_candidates_are_accepted_or_refused_each_by_its_rule(made: Any) -> None:
    folder, _ = made
    told = outcomes(folder, "synthesize")
    assert told["metrics"]["train_before"] == {"fast": 1, "never": 2, "slow": 1}
    assert told["metrics"]["lacking"] == {"fast": 8, "never": 10, "slow": 8}
    assert told["metrics"]["by_model"] == {"fast": 3, "never": 3, "slow": 3}
    assert told["metrics"]["by_template"] == {"fast": 5, "never": 7, "slow": 5}
    assert reasons(folder, "synthesize") == {
        "rejected(not_a_question)": 1,
        "rejected(about_the_instruction)": 1,
        "rejected(copies_prompt)": 1,
        "rejected(too_long)": 1,
        "rejected(too_short)": 1,
        "rejected(wrong_language)": 1,
        "rejected(empty_answer)": 1,
        "rejected(no_answer)": 1,
        "rejected(not_given)": 3,  # one of "faults", two of "more"
        "rejected(against_its_rate)": 2,
        "rejected(duplicate)": 3,  # of a row of this run twice, of an ingested one
        "rejected(empty_question)": 1,
        "rejected(says_its_answer)": 1,
        "unparsable(no_value)": 3,
    }


def test_with_what_was_made_the_train_split_is_balanced(made: Any) -> None:
    folder, _ = made
    train = pl.concat(
        [
            rows(folder, "ingest").filter(split="train").select("question_id", "change_rate"),
            rows(folder, "synthesize").select("question_id", "change_rate"),
        ]
    ).unique("question_id")
    assert dict(train["change_rate"].value_counts().iter_rows()) == {"never": 12, "slow": 9, "fast": 9}


def test_a_made_row_says_who_made_it_and_how_sure_its_label_is(made: Any) -> None:
    folder, _ = made
    made_rows = rows(folder, "synthesize")
    by = {s: f for (s,), f in made_rows.partition_by("source", as_dict=True).items()}
    assert set(by) == {"model", "template"}
    assert set(by["model"]["label_origin"]) == {"model"} and set(by["template"]["label_origin"]) == {"gold"}
    assert by["model"]["template"].null_count() == len(by["model"])
    assert by["model"]["responses"].list.len().to_list() == [1] * 9
    assert by["template"]["responses"].list.len().to_list() == [0] * 17
    assert set(made_rows["split"]) == {"train"} and made_rows["as_of"].null_count() == len(made_rows)


def test_verdicts_make_labels_and_what_they_leave_open_is_a_case(made: Any) -> None:
    folder, _ = made
    assert reasons(folder, "verify") == {"rejected(disagreement)": 1, "rejected(unparsed)": 1}
    passed = rows(folder, "verify")
    agreed = passed.filter(source="model")
    assert set(agreed["label_origin"]) == {"agreement"} and set(agreed["agreement"]) == {1.0}
    assert agreed["verdicts"].list.len().to_list() == [3] * 7
    assert set(passed.filter(source="template")["label_origin"]) == {"gold"}
    cases = [json.loads(x) for x in (folder / "data/evergreen/verify/review.jsonl").read_text().splitlines()]
    assert {(c["kind"], c["question"]) for c in cases} == {
        ("disagreement", "Which barge holds the record on the river Orrin?"),
        ("unparsed", "What does a ticket for the river bus cost now?"),
    }
    assert outcomes(folder, "verify")["metrics"]["verdicts"] == {
        "evergreen": 12, "mutable": 12, "unparsed": 3,
    }  # fmt: skip


def test_translations_stand_or_fall_each_by_its_check(made: Any) -> None:
    folder, _ = made
    assert reasons(folder, "translate") == {
        "rejected(lost_number)": 1,
        "rejected(untranslated)": 1,
        "rejected(leaked_instruction)": 1,
        "rejected(wrong_language)": 1,
        "rejected(not_a_question)": 1,
        "rejected(added_number)": 1,
        "rejected(length_ratio)": 1,
        "rejected(empty)": 1,
        "rejected(not_alike)": 1,
    }
    told = rows(folder, "translate").filter(pl.col("translated_from").is_not_null())
    assert sorted(told["question"]) == [
        "Combien de ponts traversaient le Tibre en 1500 ?",
        "Dans quelle mer le Danube se jette-t-il ?",
        "En quelle année le canal de Suez a-t-il été ouvert ?",
        "In welches Meer mündet die Donau?",
        "Wann fährt die nächste Fähre nach Halden ab?",
    ]
    assert set(told["translated_from"]) == {"en"} and told["similarity"].min() >= 0.8  # type: ignore[operator]
    given = rows(folder, "translate").filter(pl.col("translated_from").is_null())
    assert set(given["question"]) == set(rows(folder, "verify")["question"])


def test_an_alias_list_is_made_or_fails_and_its_row_says_which(made: Any) -> None:
    folder, _ = made
    assert reasons(folder, "aliases") == {"rejected(too_few)": 6, "unparsable(no_value)": 1}
    told = rows(folder, "aliases")
    assert len(told) == len(rows(folder, "translate"))
    lists = {r["answer"]: r["aliases"] for r in told.filter(alias_state="made").to_dicts()}
    assert lists == {
        "It was opened in 1869.": ["1869", "in 1869"],
        "It flows into the Black Sea.": ["Black Sea", "the Black Sea"],
        "There were 4 bridges.": ["4", "four", "4 bridges"],
        "The chair is Odile Marchetti.": ["Odile Marchetti", "Marchetti", "O. Marchetti"],
        "Il se jette dans la mer Noire.": ["mer Noire", "la mer Noire"],
    }
    refused = {w for r in told["aliases_refused"].to_list() for w in r}
    assert {"added_number: 1870", "repeats: in 1869.", "not_said: Red Sea"} <= refused
    assert told.filter(alias_state="failed")["aliases"].list.len().sum() == 0
    assert outcomes(folder, "aliases")["metrics"]["refused_forms"]["not_said"] >= 3


def test_a_translated_row_is_traced_to_every_answer_that_made_it(
    made: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = made
    monkeypatch.chdir(folder)
    row = rows(folder, "aliases").filter(question="In welches Meer mündet die Donau?").to_dicts()[0]
    capsys.readouterr()
    assert main(["trace", row["row_id"]]) == 0
    tree = capsys.readouterr().out
    for artifact in ("aliases", "translate", "verify", "synthesize"):
        assert f"evergreen/{artifact}  " in tree
    assert tree.count("answer ") >= 1 + 1 + 3 + 1  # aliases, translation, verdicts, pair
    assert "not in this store" not in tree


def test_asked_again_in_any_order_the_bytes_are_the_same(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, asked = made
    mine = lay(tmp_path, monkeypatch)
    with served(monkeypatch, shares={"429": 0.3}, seed=3) as server:
        for stage in STAGES:
            assert main([f"evergreen.{stage}"]) == 0
        assert len({r["key"] for r in server.requests()}) == len({r["key"] for r in asked})
    for stage in STAGES[1:]:
        for name in ("rows.parquet", "rejected.parquet", "outcomes.json"):
            below = f"data/evergreen/{stage}/{name}"
            assert (mine / below).read_bytes() == (folder / below).read_bytes(), below


def put(folder: Path, stage: str, made_rows: list[dict[str, Any]]) -> None:
    """Lays an artifact with these rows for the stage below it to read."""
    schema = importlib.import_module(f"pipelines.evergreen.{stage}").SCHEMA
    plain = {"aliases": [], "label": "mutable", "change_rate": "slow", "split": "train", "source": "model"}
    full = [schema.row(**{**dict.fromkeys(schema.columns), **plain, **row}) for row in made_rows]
    write_parquet(schema.frame(full), folder / f"data/evergreen/{stage}/rows.parquet")


def test_a_source_in_another_language_goes_by_way_of_english_and_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = lay(tmp_path, monkeypatch)
    told = [("a", "Кто вырыл канал Халден в 1700 году?", "Монахи."), ("b", "Сколько шлюзов на канале?", "7")]
    put(
        mine,
        "verify",
        [{"question_id": i, "language": "ru", "question": q, "answer": a} for i, q, a in told],
    )
    with served(monkeypatch) as server:
        assert main(["evergreen.translate"]) == 0
        assert [list(_schema(r)["required"]) for r in server.requests()] == [["en"], ["en"], ["fr", "de"]]
    assert reasons(mine, "translate") == {"rejected(added_number)": 1, "rejected(no_english)": 2}
    found = {(r["question_id"], r["language"]): r for r in rows(mine, "translate").to_dicts()}
    assert found.keys() == {("a", "ru"), ("a", "en"), ("a", "fr"), ("a", "de"), ("b", "ru")}
    assert found["a", "ru"]["question"] == told[0][1] and found["a", "ru"]["translated_from"] is None
    assert found["a", "en"]["translated_from"] == "ru" and found["a", "de"]["translated_from"] == "en"
    assert found["a", "de"]["parents"] == [found["a", "en"]["row_id"]]


def test_ingested_questions_of_a_split_are_translated_and_stay_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = lay(tmp_path, monkeypatch, **{"translate.splits": "[train]"})
    told = {"a": ("train", "ru", "Кто вырыл канал Халден в 1700 году?"), "b": ("test", "en", "Who is it?")}
    told |= {"c": ("train", "sv", "Vem grävde kanalen?")}
    put(mine, "verify", [])
    put(
        mine,
        "ingest",
        [
            {"question_id": i, "split": s, "language": k, "question": q, "source": "real"}
            for i, (s, k, q) in told.items()
        ],
    )
    with served(monkeypatch):
        assert main(["evergreen.translate"]) == 0
    assert reasons(mine, "translate") == {"rejected(unknown_language)": 3}
    found = rows(mine, "translate")
    assert sorted(found["language"]) == ["de", "en", "fr"] and set(found["question_id"]) == {"a"}
    assert set(found["source"]) == {"real"} and found["answer"].null_count() == 3


def _schema(request: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = request["body"]["response_format"]["json_schema"]["schema"]
    return schema


def test_what_comes_back_as_another_question_is_no_translation(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = made
    mine = lay(tmp_path, monkeypatch, **{"translate.back": "true"})
    shutil.copytree(folder / "data/evergreen/verify", mine / "data/evergreen/verify")
    with served(monkeypatch):
        assert main(["evergreen.translate"]) == 0
    told = reasons(mine, "translate") - reasons(folder, "translate")
    assert told == {"rejected(not_alike_back)": 1, "unparsable(no_value)": 2}  # two came back as no JSON
    back = rows(mine, "translate").filter(pl.col("back_similarity").is_not_null())
    assert sorted(back["question"]) == [
        "Dans quelle mer le Danube se jette-t-il ?",
        "Wann fährt die nächste Fähre nach Halden ab?",
    ]
    assert back["responses"].list.len().to_list() == [2, 2]


def test_a_base_model_is_asked_by_completion_and_an_answer_is_asked_for_again(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = made
    mine = lay(tmp_path, monkeypatch, **{"verify.style": "completion"})
    for stage in ("ingest", "synthesize"):
        shutil.copytree(folder / f"data/evergreen/{stage}", mine / f"data/evergreen/{stage}")
    with served(monkeypatch) as server:
        assert main(["evergreen.verify"]) == 0
        assert {r["path"] for r in server.requests()} == {"/v1/completions"}
    assert rows(mine, "verify")["question"].equals(rows(folder, "verify")["question"])
    params = mine / "params.yaml"
    text = params.read_text().replace("style: completion", "style: chat")
    params.write_text(text.replace("answers: 0", "answers: 2"))
    with served(monkeypatch):
        assert main(["evergreen.verify"]) == 0
    assert reasons(mine, "verify")["rejected(answer_disagreement)"] == 1
    found = rows(mine, "verify").filter(pl.col("answer_agreement").is_not_null())
    assert found["answer_agreement"].to_list() == [1.0, 1.0] and set(found["label"]) == {"evergreen"}


def test_a_person_outranks_the_verdicts(made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = lay(tmp_path, monkeypatch)
    said = [
        {"question": "which barge holds the record on the river orrin", "decision": "slow-changing"},
        {"question": "What does a ticket for the river bus cost now?", "decision": "drop"},
        {"question": "Which sea does the river Danube flow into?", "decision": "mutable", "answer": "None."},
    ]
    lines = [{"language": "en", "who": "Ann", "when": "2026-11-30", **one} for one in said]
    path = mine / "data/review/evergreen/ann.jsonl"
    path.write_text("".join(json.dumps(x) + "\n" for x in lines))
    with served(monkeypatch):
        for stage in STAGES[:3]:
            assert main([f"evergreen.{stage}"]) == 0
    assert reasons(mine, "verify") == {"rejected(dropped_by_person)": 1}
    decided = {r["question"]: r for r in rows(mine, "verify").filter(label_origin="human").to_dicts()}
    assert len(decided) == 2
    barge = decided["Which barge holds the record on the river Orrin?"]
    assert (barge["label"], barge["change_rate"], barge["decided_by"]) == ("mutable", "slow", "Ann")
    sea = decided["Which sea does the river Danube flow into?"]
    assert (sea["label"], sea["change_rate"], sea["answer"]) == ("mutable", "unknown", "None.")
    assert outcomes(mine, "verify")["metrics"]["asked"] == 6
