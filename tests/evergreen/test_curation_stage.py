"""The stage curate, end to end: decisions, benchmarks, near duplicates, caps, and what is left to people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from evergreen_rows import raw_folder, run_curate, run_ingest

from pipelines.data.tables import write_parquet
from pipelines.errors import ConfigError, InputError
from pipelines.evergreen.curate import Params
from pipelines.evergreen.making.made import ALIASED
from pipelines.evergreen.reviewing.review import FOLDER
from pipelines.evergreen.schema import questions
from pipelines.step import Step

HEAD = "split,label,language,question\n"


def curate(root: Path, lines: Sequence[str], params: Params | None = None, **files: str) -> Step:
    """Ingests and curates lines of `split,label,language,question`, and further raw files."""
    more = {f"{name}.csv": text for name, text in files.items()}
    run_ingest(raw_folder(root, {"all.csv": HEAD + "".join(x + "\n" for x in lines), **more}))
    return run_curate(root, params)


def decide(root: Path, *lines: dict[str, Any]) -> None:
    (root / FOLDER).mkdir(parents=True, exist_ok=True)
    path = root / FOLDER / "cases.jsonl"
    path.write_text("".join(json.dumps({"who": "Ann", "when": "2026-11-30", **x}) + "\n" for x in lines))


def kept(step: Step) -> list[str]:
    return sorted(pl.read_parquet(step.folder / "rows.parquet")["question"])


def reasons(step: Step) -> dict[str, str]:
    rejected = pl.read_parquet(step.folder / "rejected.parquet")
    return dict(rejected.select("raw", "reason").iter_rows())


def cases(step: Step) -> list[dict[str, Any]]:
    return [json.loads(x) for x in (step.folder / "review.jsonl").read_text().splitlines()]


CONFLICT = (
    "train,1,en,How many people are there in the world?",
    "dev,0,en,how many people are there in the world",
)


def test_a_conflict_goes_to_review_and_into_no_split(tmp_path: Path) -> None:
    step = curate(tmp_path, CONFLICT)
    assert kept(step) == []
    assert set(reasons(step).values()) == {"label_conflict"}
    (case,) = cases(step)
    assert (case["kind"], case["language"], len(case["also"])) == ("label_conflict", "en", 1)


def test_a_decision_settles_the_conflict_for_both_sides_with_who_decided(tmp_path: Path) -> None:
    decide(
        tmp_path,
        {"question": "How many people are there in the world?", "language": "en", "decision": "slow"},
    )
    step = curate(tmp_path, CONFLICT)
    rows = pl.read_parquet(step.folder / "rows.parquet")
    assert rows.select("split", "label", "change_rate", "label_origin").sort("split").rows() == [
        ("dev", "mutable", "slow", "human"),
        ("train", "mutable", "slow", "human"),
    ]
    assert cases(step) == []
    assert step.ledger.summary()["notes"] == {"decided": 1, "decided by Ann": 2}


def test_a_person_may_drop_even_a_test_question_and_correct_an_answer(tmp_path: Path) -> None:
    french = {"question": "Qui est-ce ?", "language": "fr"}
    decide(
        tmp_path,
        {"question": "Where is it?", "language": "en", "decision": "drop"},
        {**french, "decision": "mutable", "answer": "Bo"},
    )
    wide = "split,label,en,fr,en_Answer,fr_Answer\ntrain,1,Who is it?,Qui est-ce ?,Al,Al\n"
    step = curate(tmp_path, ["test,1,en,Where is it?"], wide=wide)
    rows = {r["language"]: r for r in pl.read_parquet(step.folder / "rows.parquet").iter_rows(named=True)}
    assert reasons(step) == {"Where is it?": "dropped_by_person"}
    assert [(rows[x]["answer"], rows[x]["label"], rows[x]["change_rate"]) for x in ("en", "fr")] == [
        ("Al", "mutable", "unknown"),
        ("Bo", "mutable", "unknown"),
    ]
    assert str(rows["fr"]["as_of"]) == "2026-11-30" and rows["en"]["as_of"] is None


def test_translations_decided_differently_on_one_day_wait(tmp_path: Path) -> None:
    decide(
        tmp_path,
        {"question": "Who is it?", "language": "en", "decision": "mutable"},
        {"question": "Qui est-ce ?", "language": "fr", "decision": "evergreen"},
    )
    step = curate(
        tmp_path, ["train,1,en,Where?"], wide="split,label,en,fr\ntrain,1,Who is it?,Qui est-ce ?\n"
    )
    assert kept(step) == ["Where?"]
    assert set(reasons(step).values()) == {"decisions_differ"}
    assert [c["kind"] for c in cases(step)] == ["decisions_differ"]


def test_a_bad_line_of_the_reviews_is_refused_with_its_place(tmp_path: Path) -> None:
    decide(tmp_path, {"question": "Where?", "language": "en", "decision": "perhaps"})
    step = curate(tmp_path, ["train,1,en,Where?"])
    (bad,) = pl.read_parquet(step.folder / "rejected.parquet").iter_rows(named=True)
    assert (bad["reason"], bad["file"], bad["line"], bad["column"]) == (
        "unknown_decision",
        "data/review/evergreen/cases.jsonl",
        1,
        "decision",
    )
    assert step.ledger.summary()["items"] == step.rows_in == 2


NEAR = (
    "train,0,en,What is the population of Pakistan?",
    "train,0,en,Tell me what is the population of Pakistan?",
    "train,0,en,What is the population of Kirgistan?",
)


def test_of_near_questions_in_train_one_stays_and_another_place_is_another_question(tmp_path: Path) -> None:
    step = curate(tmp_path, NEAR)
    assert len(kept(step)) == 2 and "What is the population of Kirgistan?" in kept(step)
    assert list(reasons(step).values()) == ["near_duplicate"]
    assert kept(curate(tmp_path, NEAR, Params(near=0.0))) == sorted(x.split(",")[3] for x in NEAR)


def test_near_a_test_question_train_is_marked_and_test_is_never_touched(tmp_path: Path) -> None:
    test = [
        "test,0,en,So what is the population of Pakistan?",
        "test,0,en,And what is the population of Pakistan?",
    ]
    step = curate(tmp_path, [*NEAR, *test])
    rows = pl.read_parquet(step.folder / "rows.parquet")
    assert len(rows.filter(split="test")) == 2
    marked = rows.filter(split="train").select("question", "leaks_into_test").rows()
    assert dict(marked).pop("What is the population of Kirgistan?") is False
    assert sorted(leaks for _, leaks in marked) == [False, True]


def test_near_questions_of_opposite_label_stay_and_are_a_case(tmp_path: Path) -> None:
    lines = [
        "train,0,en,What is the height of the Ostankino Tower?",
        "test,1,en,The height of the Ostankino Tower.",
    ]
    step = curate(tmp_path, lines)
    assert len(kept(step)) == 2
    (case,) = cases(step)
    assert case["kind"] == "near_conflict"
    assert case["question"] == "What is the height of the Ostankino Tower?"
    assert case["why"].startswith("nearly equals 'The height of the Ostankino Tower.' (test real, evergreen)")


POOL = '{"question": "What is the population of Pakistan", "answer": ["1"]}\n'


def test_train_loses_what_equals_or_nearly_equals_a_registered_benchmark(tmp_path: Path) -> None:
    folder = tmp_path / "data/raw/benchmarks/sets"
    folder.mkdir(parents=True)
    (folder / "mine.csv").write_text("language,question\nen,what is the population of pakistan\n")
    lines = [*NEAR, "dev,0,en,What is the population of Pakistan?"]
    step = curate(tmp_path, lines, Params(benchmarks={"mine": "sets/mine.csv"}))
    assert kept(step) == ["What is the population of Kirgistan?", "What is the population of Pakistan?"]
    assert sorted(reasons(step).values()) == ["in_benchmark", "near_benchmark"]
    assert step.metrics["questions"]["in_benchmarks"] == {"mine": 2}
    assert step.metrics["overlaps"]["pool mine in train real"] == {"en": 1, "any": 1}


def test_the_sources_of_the_pool_are_benchmarks_by_default(tmp_path: Path) -> None:
    raw_folder(tmp_path, {"NQ-open.dev.jsonl": POOL})
    step = curate(tmp_path, NEAR)
    assert kept(step) == ["What is the population of Kirgistan?", "What is the population of Pakistan"]
    assert sorted(reasons(step).values()) == ["in_benchmark", "near_benchmark"]
    assert len(kept(curate(tmp_path, NEAR, Params(benchmarks={}, near=0.0)))) == 4


@pytest.mark.parametrize(
    ("benchmarks", "kind", "says"),
    [
        ({"mine": "gone.csv"}, ConfigError, "evergreen.curate.benchmarks.mine: no file 'gone.csv' below"),
        ({"mine": "../facts.csv"}, ConfigError, "no file '../facts.csv' below data/raw/benchmarks"),
        ({"nq_open": "pool"}, ConfigError, "no source 'nq_open' was read into the pool"),
        ({"mine": "torn.jsonl"}, InputError, "data/raw/benchmarks/torn.jsonl:2: unreadable"),
    ],
)
def test_a_benchmark_that_cannot_be_looked_at_is_an_error(
    tmp_path: Path, benchmarks: dict[str, str], kind: type[Exception], says: str
) -> None:
    (tmp_path / "data/raw/benchmarks").mkdir(parents=True)
    (tmp_path / "data/raw/facts.csv").write_text("language,question\nen,Why?\n")
    good = '{"question": "Why?", "language": "en"}\n'
    (tmp_path / "data/raw/benchmarks/torn.jsonl").write_text(good + '{"question": \n' + good * 3)
    with pytest.raises(kind) as raised:
        curate(tmp_path, NEAR, Params(benchmarks=benchmarks))
    assert says in str(raised.value)


def test_a_form_is_capped_in_train_alone_and_the_same_ones_stay(tmp_path: Path) -> None:
    old = [f"How old is {name}?" for name in ("Ada", "Bert", "Carl", "Dora", "Emil", "Fred", "Gina", "Hugo")]
    rest = [
        f"Who leads {place} today?"
        for place in ("Oslo", "Rome", "Bern", "Lima", "Bonn", "Kyiv", "Cork", "Riga")
    ]
    lines = [f"{split},0,en,{q}" for split in ("train", "test") for q in old]
    lines += [f"train,0,en,{q}" for q in rest]
    params = Params(templates={"age": {"en": ("how old",)}}, template_share=0.2)
    step = curate(tmp_path, lines, params)
    rows = pl.read_parquet(step.folder / "rows.parquet")
    assert len(rows.filter(split="test")) == 8
    stay = set(rows.filter(pl.col("question").str.starts_with("How old"), split="train")["question"])
    assert len(stay) == 2  # 2 of 10
    assert list(step.metrics["questions"]["over_the_cap"].items()) == [("age", 6)]
    fewer = curate(tmp_path, [x for x in lines if "Oslo" not in x and "Rome" not in x], params)
    again = pl.read_parquet(fewer.folder / "rows.parquet").filter(split="train")["question"]
    assert {q for q in again if q.startswith("How old")} < stay


def test_what_was_made_is_curated_with_what_was_read(tmp_path: Path) -> None:
    schema = questions("evergreen.aliases", ALIASED)
    values = dict.fromkeys(ALIASED) | {"aliases": [], "verdicts": [], "aliases_refused": []}
    told = {"label": "mutable", "change_rate": "slow", "source": "model", "split": "train", "language": "en"}
    made = [
        schema.row(**values | told | {"question_id": str(n), "question": q, "label_origin": "agreement"})
        for n, q in enumerate(("Who leads Oslo?", "What is the population of Pakistan today?"))
    ]
    write_parquet(schema.frame(made), tmp_path / "data/evergreen/aliases/rows.parquet")
    step = curate(tmp_path, ["test,0,en,What is the population of Pakistan?"])
    rows = pl.read_parquet(step.folder / "rows.parquet").filter(source="model")
    assert dict(rows.select("question", "leaks_into_test").iter_rows()) == {
        "Who leads Oslo?": False,
        "What is the population of Pakistan today?": True,
    }
    assert step.rows_in == 3
