"""Every public file of questions is read whole: its records, counted by other means, all have an outcome."""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.evergreen import ingest
from pipelines.evergreen.readers.seam import Aliases
from pipelines.step import Step

pytestmark = pytest.mark.real
SETS = (
    *(
        "evergreenqa",
        "freshqa",
        "adarague",
        "nq_open",
        "xquad",
        "hotpotqa",
        "chinese_simpleqa",
        "crag_example",
    ),
)
OF_MODELS = ("/outputs_", "/prediction__", "_option_")  # files of answers and scores, without questions


@pytest.fixture(scope="module")
def taken(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Step]:
    """Ingests a public set; each once."""
    done: dict[str, Step] = {}

    def take(name: str) -> Step:
        if name not in done:
            root = tmp_path_factory.mktemp(name)
            (root / "data/raw").mkdir(parents=True)
            (root / "data/raw/evergreen").symlink_to(real_data / name)
            step = Step("evergreen.ingest", None, root, 7)
            ingest.run(step, ingest.Params())
            step.finish(ingest.SCHEMA)
            done[name] = step
        return done[name]

    return take


def frame(step: Step, name: str = "rows") -> pl.DataFrame:
    return pl.read_parquet(step.folder / f"{name}.parquet")


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as f:
        return list(csv.DictReader(f))


def objects(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def squad_questions(path: Path) -> Iterator[dict[str, Any]]:
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            for one in paragraph["qas"]:
                yield one | {"context": paragraph["context"]}


def items_of(path: Path) -> int:
    """How many outcomes a file must have: one a wording of a row of EverGreenQA, else one a record."""
    if path.suffix == ".csv":
        rows = table(path)
        return len(rows) * (7 if path.parent.name == "evergreenqa" else 1)
    if path.suffix == ".jsonl":
        return len(objects(path))
    return (
        sum(1 for _ in squad_questions(path))
        if "xquad" in path.name
        else len(json.loads(path.read_text("utf-8")))
    )


@pytest.mark.parametrize("name", SETS)
def test_read_is_accepted_and_rejected_for_every_file(
    name: str, real_data: Path, taken: Callable[[str], Step]
) -> None:
    step = taken(name)
    files = [p for p in sorted((real_data / name).rglob("*")) if p.suffix in (".csv", ".json", ".jsonl")]
    expected = {p.relative_to(real_data / name).as_posix(): items_of(p) for p in files}
    ended = Counter(item.split(":")[0] for item in step.ledger.planned)
    assert ended == expected
    told = step.ledger.summary()
    assert told["items"] == sum(expected.values()) == told["accepted"] + told["rejected"]
    assert all(step.ledger.planned.values())
    of_models = sum(n for file, n in expected.items() if any(w in file for w in OF_MODELS))
    assert told["reasons"] == ({"rejected(model_output)": of_models} if of_models else {})


def test_the_files_of_evergreenqa_give_a_row_a_wording(real_data: Path, taken: Callable[[str], Step]) -> None:
    folder, rows = real_data / "evergreenqa", frame(taken("evergreenqa"))
    for name, split, source in (
        *(("train", "train", "real"), ("test", "test", "real"), ("dev", "dev", "real")),
        ("train_synth", "train", "synth"),
    ):
        told = table(folder / f"{name}.csv")
        mine = rows.filter(split=split, source=source)
        assert len(mine) == 7 * len(told)
        labels = Counter({"1": "evergreen", "0": "mutable"}[r["is_evergreen"]] for r in told)
        assert Counter(mine.filter(language="he")["label"]) == labels
        for language, column in (("en", "English"), ("zh", "Chinese"), ("ar", "Arabic")):
            assert sorted(mine.filter(language=language)["question"]) == sorted(r[column] for r in told)


def test_aliases_of_evergreenqa_join_by_index_over_gaps(
    real_data: Path, taken: Callable[[str], Step]
) -> None:
    folder, step = real_data / "evergreenqa", taken("evergreenqa")
    asked = {r[""]: r for r in table(folder / "test.csv")}
    told = {r[""]: r for r in table(folder / "aliases/test_aliases.csv")}
    assert len(told) == 1659
    assert asked.keys() <= told.keys()
    assert int(max(asked, key=int)) >= len(asked)  # gaps, so that no position would do
    train = len(table(folder / "aliases/train_aliases.csv"))
    assert train == 2008
    # 389 of the whole set; of a part of test.csv more
    assert step.ledger.notes == {
        "aliases": train + len(asked),
        "aliases of no question here": len(told) - len(asked),
    }
    rows = frame(step).filter(split="test", language="en")
    assert rows["aliases"].list.len().min() > 0
    first = rows.filter(question=asked["0"]["English"]).to_dicts()[0]
    assert set(first["aliases"]) == {a.strip() for a in json.loads(told["0"]["English"].replace("'", '"'))}


def test_packed_aliases_of_arabic_and_chinese_come_apart(taken: Callable[[str], Step]) -> None:
    rows = frame(taken("evergreenqa")).explode("aliases").filter(pl.col("aliases").is_not_null())
    assert rows.filter(pl.col("aliases").str.contains("[;\u061b\uff1b]")).is_empty()
    assert rows.filter(pl.col("aliases").str.starts_with("['")).is_empty()  # lists printed inside a list
    one = frame(taken("evergreenqa")).filter(pl.col("language").is_in(["ar", "zh"]), source="real")
    one = one.filter(pl.col("split") != "dev")
    assert (one["aliases"].list.len() > 1).mean() > 0.85  # 90 to 95 % are one packed text in the file


def test_restarted_ids_of_the_synthetic_set_stay_apart(real_data: Path, taken: Callable[[str], Step]) -> None:
    told = table(real_data / "evergreenqa/train_synth.csv")
    assert len({r[""] for r in told}) == len(told) - 160
    assert [r["question"] for r in told[-160:]] == [""] * 160
    assert Counter(r["is_evergreen"] for r in told[-160:]) == {"0": 130, "1": 30}
    rows = frame(taken("evergreenqa")).filter(source="synth")
    assert rows["question_id"].n_unique() == len(told) == 1479


def test_wordings_of_evergreenqa_stay_as_they_are_stored(taken: Callable[[str], Step]) -> None:
    train = frame(taken("evergreenqa")).filter(split="train", source="real")
    hebrew = train.filter(language="he")["question"]
    assert sum(not unicodedata.is_normalized("NFC", q) for q in hebrew) == 2  # rows 757 and 955
    answers = train.filter(pl.col("answer").is_not_null())["answer"]
    assert sum("\n" in a for a in answers) == 12
    assert sum("\u200e" in q for q in frame(taken("evergreenqa"))["question"]) > 0


def test_freshqa_is_read_across_bare_line_feeds(real_data: Path, taken: Callable[[str], Step]) -> None:
    path, step = real_data / "freshqa/freshqa.csv", taken("freshqa")
    data = path.read_bytes()
    assert (data.count(b"\r\n"), data.count(b"\n")) == (601, 653)
    rows, told = frame(step), table(path)
    assert Counter(rows["change_rate"]) == {"never": 223, "slow": 223, "fast": 154}
    assert Counter(rows["label"]) == {"evergreen": 223, "mutable": 377}
    assert set(rows["split"]) == {"pool"}
    by_question = {r["question"]: r for r in rows.to_dicts()}
    for r in told:
        accepted = [r[f"answer_{n}"] for n in range(10) if r[f"answer_{n}"].strip()]
        mine = by_question[r["question"]]
        assert mine["answer"] == accepted[0]
        assert mine["aliases"] == list(dict.fromkeys(a.strip() for a in accepted))
    details = frame(step, "details")
    assert details.filter(name="false_premise", value="true").height == 150
    assert details.filter(pl.col("value").str.contains("\n"), name="evidence").height == 51
    review = Counter(details.filter(name="next_review")["value"])
    assert (review["2024-01-01"], review["24-Nov"], review["2024-Q3"], review["occasionally"]) == (
        30,
        1,
        1,
        177,
    )
    assert sum(review.values()) == 600 - 226  # N/A is none


def test_freshqa_exported_with_its_warning_is_the_same(
    real_data: Path, taken: Callable[[str], Step], tmp_path: Path
) -> None:
    folder = tmp_path / "data/raw/evergreen"
    folder.mkdir(parents=True)
    above = b"Warning: Please do not click on any link" + b"," * 19 + b"\r\n" + b"," * 19 + b"\r\n"
    (folder / "freshqa.csv").write_bytes(above + (real_data / "freshqa/freshqa.csv").read_bytes())
    step = Step("evergreen.ingest", None, tmp_path, 7)
    ingest.run(step, ingest.Params())
    step.finish(ingest.SCHEMA)
    whole = taken("freshqa").folder / "rows.parquet"
    assert (step.folder / "rows.parquet").read_bytes() == whole.read_bytes()


def test_xquad_is_one_question_in_all_its_languages(real_data: Path, taken: Callable[[str], Step]) -> None:
    rows = frame(taken("xquad"))
    for path in sorted((real_data / "xquad").glob("*.json")):
        language = path.stem.split(".")[1]
        told = list(squad_questions(path))
        assert len(told) == (1190 if language == "en" else 135)
        mine = rows.filter(language=language)
        assert sorted(mine["question"]) == sorted(q["question"] for q in told)
        assert sorted(mine["answer"]) == sorted(q["answers"][0]["text"] for q in told)
        for q in told:  # the offsets hold for the text as it is stored, and that text is what we keep
            a = q["answers"][0]
            assert q["context"][a["answer_start"] :].startswith(a["text"])
    assert rows["question_id"].n_unique() == 1190
    per_question = rows.group_by("question_id").agg(pl.col("language").n_unique())
    assert Counter(per_question["language"]) == {1: 1055, rows["language"].n_unique(): 135}
    assert set(rows.select("label", "split", "source").unique().rows()) == {("unknown", "pool", "xquad")}


def test_nq_open_keeps_all_accepted_answers_and_no_prediction(
    real_data: Path, taken: Callable[[str], Step]
) -> None:
    rows = frame(taken("nq_open"))
    whole = objects(real_data / "nq_open/NQ-open.dev.jsonl")
    judged = objects(real_data / "nq_open/NQ-open.efficientqa.test.1.1_first400.jsonl")
    assert (len(whole), len(judged), len(rows)) == (3610, 400, 4010)
    told = Counter((r["question"], *dict.fromkeys(a.strip() for a in r["answer"])) for r in whole + judged)
    assert Counter((r["question"], *r["aliases"]) for r in rows.to_dicts()) == told
    assert any("\\" in a for r in judged for a in r["def_incorrect_predictions"])
    assert not any("\\" in a for r in rows["aliases"] for a in r)
    assert set(rows["source"]) == {"nq_open"}


def test_hotpotqa_has_no_ids_and_keeps_edge_blanks(real_data: Path, taken: Callable[[str], Step]) -> None:
    told = json.loads((real_data / "hotpotqa/hotpot_dev_v1_simplified.json").read_text(encoding="utf-8"))
    rows = frame(taken("hotpotqa"))
    assert Counter((r["question"], r["answer"]) for r in rows.to_dicts()) == Counter(
        (r["question"], r["answer"]) for r in told
    )
    kinds = frame(taken("hotpotqa"), "details").filter(name="question_type")["value"]
    assert Counter(kinds) == Counter(r["type"] for r in told)
    assert set(kinds) == {"bridge", "comparison"}


def test_chinese_simpleqa_is_evergreen_throughout(real_data: Path, taken: Callable[[str], Step]) -> None:
    rows = frame(taken("chinese_simpleqa"))
    told = objects(real_data / "chinese_simpleqa/chinese_simpleqa.jsonl")
    assert sorted(rows["question"]) == sorted(r["question"] for r in told)
    assert set(rows.select("language", "label", "change_rate", "split").unique().rows()) == {
        ("zh", "evergreen", "never", "pool")
    }


def test_crag_tells_four_steps_and_a_missing_answer(taken: Callable[[str], Step]) -> None:
    rows = frame(taken("crag_example"))
    assert Counter(rows["change_rate"]) == {"never": 4, "slow": 2, "fast": 4}
    assert rows.filter(pl.col("answer").is_null())["question"].to_list() == [
        "which company have larger market cap, plya or seatw?"
    ]
    assert rows.filter(pl.col("as_of").is_null()).is_empty()
    assert str(rows["as_of"].min()) == "2024-02-26"
    assert str(rows["as_of"].max()) == "2024-03-19"


def test_adarague_joins_its_gold_answers_by_key(real_data: Path, taken: Callable[[str], Step]) -> None:
    step = taken("adarague")
    rows = frame(step)
    assert Counter(rows["source"]) == {
        "adarague_2wikimultihopqa": 520,
        "adarague_hotpotqa": 500,
        "adarague_musique": 500,
    }
    folder = real_data / "adarague"
    gold: dict[str, list[str]] = {}
    for path in (folder / "test_no_retrieval_llama8b").glob("ground_truth*.json"):
        gold |= json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((folder / "SeaKR").glob("*_results.jsonl")):
        for r in objects(path):
            mine = rows.filter(question=r["question"])["aliases"].to_list()
            assert all({*gold[r["qid"]]} <= {*aliases} for aliases in mine)
    asked = {r["qid"] for p in (folder / "SeaKR").glob("*_results.jsonl") for r in objects(p)}
    assert step.ledger.notes["aliases"] == len(asked & gold.keys()) == 1500
    assert step.ledger.notes["aliases of no question here"] == len(gold) - 1500
    cut = table(folder / "adaptive_rag_2wikimultihopqa_test_first20.csv")
    assert {r["question_text"] for r in cut} <= set(rows["question"])


def test_nothing_of_the_public_sets_is_left_unread_unsaid(taken: Callable[[str], Step]) -> None:
    assert taken("evergreenqa").metrics["ignored_columns"] == []
    assert taken("freshqa").metrics["ignored_columns"] == []
    assert taken("crag_example").metrics["ignored_columns"] == ["search_results"]
    assert taken("chinese_simpleqa").metrics["ignored_columns"] == ["urls"]


def test_a_part_of_every_set_can_be_turned_into_parquet_and_read_alike(
    real_data: Path, tmp_path: Path
) -> None:
    whole = pl.read_csv(io.BytesIO((real_data / "evergreenqa/test.csv").read_bytes()), infer_schema=False)
    found = []
    for name in ("test.csv", "test.parquet"):
        folder = tmp_path / name / "data/raw/evergreen"
        folder.mkdir(parents=True)
        part = whole.head(50)
        part.write_csv(folder / name) if name.endswith("csv") else part.write_parquet(folder / name)
        book = ingest.read_book(folder / name, folder)
        assert not isinstance(book.reader, Aliases)
        found.append([book.reader.tell(r.values) for r in book.records])
    assert found[0] == found[1]
    assert len(found[0]) == 50
