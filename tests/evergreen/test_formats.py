"""Each published format: its columns are known, its quirks are read right or refused with their place."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from evergreen_rows import raw_folder

from pipelines.data.config import load
from pipelines.errors import ConfigError, HeadraceError, InputError
from pipelines.evergreen import ingest
from pipelines.evergreen.readers.alias_cells import members
from pipelines.evergreen.readers.freshqa import review_day
from pipelines.evergreen.readers.roles import Columns
from pipelines.evergreen.readers.values import language, language_in
from pipelines.step import Step

FRESH_HEAD = (
    "id,split,question,effective_year,next_review,false_premise,num_hops,fact_type,source,"
    "answer_0,answer_1,note"
)
FRESH = (
    f"{FRESH_HEAD}\r\n"
    '0,TEST,Who runs the mill?,before 2022,occasionally,TRUE,one-hop,slow-changing,"a page\nand another",'
    '"Nobody; it is shut",Jo ,\r\n'
    '1,DEV,How high is the dam?,2022,11/5/2024,FALSE,one-hop,never-changing,a page,"1,439",1439,\r\n'
    '2,TEST,What does it cost?,2023,24-Nov,FALSE,multi-hop,fast-changing,a page,"$48,990 ",,\r\n'
)
CRAG = {
    "interaction_id": "a",
    "query_time": "03/05/2024, 23:18:31 PT",
    "domain": "finance",
    "question_type": "multi-hop",
    "static_or_dynamic": "real-time",
    "query": "which share is best today?",
    "answer": "acme",
    "alternative_answers": "['acme inc; the firm']",
    "split": 1,
    "search_results": [{"page": "x"}],
}


def rows(step: Step) -> list[dict[str, Any]]:
    return pl.read_parquet(step.folder / "rows.parquet").sort("question", "language").to_dicts()


def details(step: Step, question: str) -> dict[str, str]:
    told = pl.read_parquet(step.folder / "details.parquet")
    row = next(r for r in rows(step) if r["question"] == question)
    return {r["name"]: r["value"] for r in told.filter(question_id=row["question_id"]).to_dicts()}


def rejected(step: Step) -> list[tuple]:
    frame = pl.read_parquet(step.folder / "rejected.parquet")
    return sorted(frame.select("file", "line", "column", "reason").rows(), key=str)


def jsonl(*records: Any) -> str:
    return "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records)


def read_with(root: Path, files: Mapping[str, str | bytes], **params: Any) -> Step:
    step = Step("evergreen.ingest", None, raw_folder(root, files), 7)
    ingest.run(step, ingest.Params(**params))
    step.finish(ingest.SCHEMA)
    return step


def test_freshqa_keeps_its_graded_labels_and_all_accepted_answers(read_raw: Callable[..., Step]) -> None:
    step = read_raw({"freshqa.csv": FRESH})
    columns = ("question", "label", "change_rate", "answer", "aliases", "split", "source", "label_origin")
    assert [tuple(r[c] for c in columns) for r in rows(step)] == [
        ("How high is the dam?", "evergreen", "never", "1,439", ["1,439", "1439"], "pool", "freshqa", "gold"),
        ("What does it cost?", "mutable", "fast", "$48,990 ", ["$48,990"], "pool", "freshqa", "gold"),
        (
            *("Who runs the mill?", "mutable", "slow", "Nobody; it is shut"),
            *(["Nobody; it is shut", "Jo"], "pool", "freshqa", "gold"),
        ),
    ]
    assert details(step, "Who runs the mill?") == {
        "split": "TEST",
        "effective_year": "before 2022",
        "next_review": "occasionally",
        "false_premise": "true",
        "hops": "one-hop",
        "evidence": "a page\nand another",
    }


def test_lines_of_a_warning_may_stand_above_the_header_of_freshqa(tmp_path: Path) -> None:
    warned = "Warning: Please do not click on the links,,,,,,,,,,,\r\n,,,,,,,,,,,\r\n" + FRESH
    a = read_with(tmp_path / "a", {"freshqa.csv": FRESH})
    b = read_with(tmp_path / "b", {"freshqa.csv": warned})
    assert (a.folder / "rows.parquet").read_bytes() == (b.folder / "rows.parquet").read_bytes()
    lines = [pl.read_parquet(s.folder / "origin.parquet").sort("row_id")["line"].to_list() for s in (a, b)]
    assert [y - x for x, y in zip(*lines, strict=True)] == [2, 2, 2]


@pytest.mark.parametrize(
    ("told", "read"),
    [
        ("11/5/2024", "2024-11-05"),
        ("1/1/2024", "2024-01-01"),
        ("13/40/2024", "13/40/2024"),
        ("Q3 2024", "2024-Q3"),
        ("2047", "2047"),
        ("24-Nov", "24-Nov"),
        ("every_time", "every_time"),
    ],
)
def test_the_next_review_is_a_day_where_it_tells_one(told: str, read: str) -> None:
    assert review_day(told) == read


def test_a_record_of_freshqa_is_refused_by_its_column(read_raw: Callable[..., Step]) -> None:
    bad = (
        "3,TEST,A?,2022,N/A,MAYBE,one-hop,never-changing,s,x,,\r\n"
        "4,TEST,B?,2022,N/A,FALSE,one-hop,hardly-changing,s,x,,\r\n"
        "5,TEST,C?,2022,N/A,FALSE,one-hop,,s,x,,\r\n"
        "6,TEST, ,2022,N/A,FALSE,one-hop,static,s,x,,\r\n"
    )
    step = read_raw({"freshqa.csv": FRESH + bad})
    assert rejected(step) == [
        ("freshqa.csv", 6, "false_premise", "unknown_flag"),
        ("freshqa.csv", 7, "fact_type", "unknown_label"),
        ("freshqa.csv", 8, "fact_type", "missing_label"),
        ("freshqa.csv", 9, "question", "empty_question"),
    ]
    assert step.ledger.summary()["accepted"] == 3


def test_crag_tells_a_label_in_four_steps_and_the_day_it_was_asked(read_raw: Callable[..., Step]) -> None:
    others = [
        CRAG | {"query": "q1", "static_or_dynamic": "static", "answer": "nan", "alternative_answers": "[]"},
        CRAG | {"query": "q2", "static_or_dynamic": "slow-changing", "question_type": "false_premise"},
        CRAG | {"query": "q3", "static_or_dynamic": "fast-changing", "alternative_answers": ["b", "c"]},
    ]
    step = read_raw({"crag.jsonl": jsonl(CRAG, *others)})
    columns = ("question", "label", "change_rate", "answer", "aliases", "as_of", "split", "source")
    day = date(2024, 3, 5)
    both = ["acme", "acme inc; the firm"]
    assert [tuple(r[c] for c in columns) for r in rows(step)] == [
        ("q1", "evergreen", "never", None, [], day, "pool", "crag"),
        ("q2", "mutable", "slow", "acme", both, day, "pool", "crag"),
        ("q3", "mutable", "fast", "acme", ["acme", "b", "c"], day, "pool", "crag"),
        ("which share is best today?", "mutable", "fast", "acme", both, day, "pool", "crag"),
    ]
    assert details(step, "q2")["false_premise"] == "true"
    assert details(step, "q1")["asked_at"] == "03/05/2024, 23:18:31 PT"


def test_a_record_of_crag_is_refused_by_its_column(read_raw: Callable[..., Step]) -> None:
    bad = [
        CRAG | {"query_time": "05.03.2024"},
        CRAG | {"query_time": "13/05/2024, 23:18:31 PT"},
        CRAG | {"alternative_answers": "['a"},
        CRAG | {"static_or_dynamic": "often"},
        CRAG | {"answer": {"text": "x"}},
    ]
    assert rejected(read_raw({"crag.jsonl": jsonl(*[CRAG] * 6, *bad)})) == [
        ("crag.jsonl", 10, "static_or_dynamic", "unknown_label"),
        ("crag.jsonl", 11, "answer", "wrong_type"),
        ("crag.jsonl", 7, "query_time", "bad_date"),
        ("crag.jsonl", 8, "query_time", "bad_date"),
        ("crag.jsonl", 9, "alternative_answers", "unreadable_aliases"),
    ]


def squad(*asked: Mapping[str, Any], title: str = "Mills") -> dict[str, Any]:
    return {
        "version": "1.1",
        "data": [{"title": title, "paragraphs": [{"context": "c", "qas": list(asked)}]}],
    }


def asked(question: Any, number: int = 1, *answers: str, **more: Any) -> dict[str, Any]:
    told = [{"text": a, "answer_start": 0} for a in answers]
    return {"id": f"{number:024x}", "question": question, "answers": told, **more}


def test_translations_of_a_squad_question_share_its_id_and_not_their_rows(
    read_raw: Callable[..., Step],
) -> None:
    files = {
        "xquad.en.json": json.dumps(
            squad(asked(" How high?", 1, "9 m", "9 m", "nine"), asked("Why?", 2, "x"))
        ),
        "xquad.de.json": json.dumps(squad(asked("Wie hoch?", 1, "9 m"))),
        "xquad.th.json": json.dumps(squad(asked("สูงเท่าไร", 1, "9"))),
    }
    found = rows(read_raw(files))
    assert Counter(r["language"] for r in found) == {"en": 2, "de": 1, "th": 1}
    by_question: dict[str, set[str]] = {}
    for r in found:
        by_question.setdefault(r["question_id"], set()).add(r["language"])
    assert sorted(map(sorted, by_question.values())) == [["de", "en", "th"], ["en"]]
    first = next(r for r in found if r["question"] == " How high?")
    assert (first["answer"], first["aliases"]) == ("9 m", ["9 m", "nine"])
    assert {(r["label"], r["label_origin"], r["split"], r["source"]) for r in found} == {
        ("unknown", "none", "pool", "xquad")
    }


def test_a_repeated_squad_id_is_another_question_in_the_same_language(read_raw: Callable[..., Step]) -> None:
    step = read_raw({"dev-v1.1.json": json.dumps(squad(asked("A?", 1, "x"), asked("B?", 1, "y")))})
    found = rows(step)
    assert [(r["question"], r["source"], r["language"]) for r in found] == [
        ("A?", "squad", "en"),
        ("B?", "squad", "en"),
    ]
    assert len({r["question_id"] for r in found}) == 2


def test_answers_and_questions_of_squad_stay_as_they_are_stored(read_raw: Callable[..., Step]) -> None:
    apart = "ด\u0e33 e\u0301\ufeff?"  # not NFC, with an invisible character
    [row] = rows(read_raw({"q.json": json.dumps(squad(asked(apart, 1, "e\u0301")))}))
    assert (row["question"], row["answer"]) == (apart, "e\u0301")


def test_squad_2_and_rows_of_squad_are_read_too(read_raw: Callable[..., Step]) -> None:
    files = {
        "two.json": json.dumps(squad(asked("No answer?", 1, is_impossible=True), asked("Why?", 2, "x"))),
        "flat.jsonl": jsonl(
            {
                "id": "7",
                "title": "T",
                "context": "c",
                "question": "Flat?",
                "answers": {"text": ["y", "z"], "answer_start": [0, 1]},
            }
        ),
    }
    found = {r["question"]: (r["answer"], r["aliases"]) for r in rows(read_raw(files))}
    assert found == {"No answer?": (None, []), "Why?": ("x", ["x"]), "Flat?": ("y", ["y", "z"])}


def test_what_is_no_question_in_a_squad_file_says_where_it_stands(read_raw: Callable[..., Step]) -> None:
    told = squad(*[asked(f"Q{n}?", n, "x") for n in range(9)], asked("Bad?", 10) | {"answers": "x"})
    told["data"] += [5, {"title": "T"}, {"paragraphs": [{"qas": [7, asked(5, 11, "x")]}]}]
    step = read_raw({"q.json": json.dumps(told)})
    frame = pl.read_parquet(step.folder / "rejected.parquet").sort("line")
    assert frame.select("line", "reason", "detail").rows() == [
        (10, "wrong_type", "'x', expected a list of objects with a text"),
        (11, "unreadable", "data[1] is no question"),
        (12, "unreadable", "data[2] is no question"),
        (13, "unreadable", "data[3].paragraphs[0].qas[0] is no question"),
        (14, "wrong_type", ""),
    ]
    assert step.rows_in == 14 == step.ledger.summary()["accepted"] + len(frame)


def test_sets_without_labels_are_pooled_under_their_names(read_raw: Callable[..., Step]) -> None:
    simple = {"primary_category": "p", "secondary_category": "s", "urls": [], "id": "1"}
    step = read_raw(
        {
            "NQ-open.dev.jsonl": jsonl({"question": "who built it", "answer": ["Ann", " Ann", "Bo"]}),
            "hotpot_dev.json": json.dumps(
                [{"question": "Were they kin?", "answer": "yes ", "type": "comparison"}]
            ),
            "chinese.jsonl": jsonl({"question": "谁？", "answer": "甲", **simple}),
            "mine.csv": "question,answer\nWho?,Me\n",
        }
    )
    columns = ("question", "language", "answer", "aliases", "label", "split", "source")
    assert [tuple(r[c] for c in columns) for r in rows(step)] == [
        ("Were they kin?", "en", "yes ", ["yes"], "unknown", "pool", "hotpotqa"),
        ("Who?", "en", "Me", [], "unknown", "pool", "mine"),
        ("who built it", "en", "Ann", ["Ann", "Bo"], "unknown", "pool", "nq_open"),
        ("谁？", "zh", "甲", ["甲"], "evergreen", "pool", "chinese_simpleqa"),
    ]
    assert step.ledger.notes == {"no label": 3}
    assert step.metrics["records"] == {"chinese_simpleqa": 1, "hotpotqa": 1, "long": 1, "nq_open": 1}


def test_predictions_that_people_judged_are_no_gold_answers(read_raw: Callable[..., Step]) -> None:
    told = {
        "question": "who plays her",
        "answer": ["Ann"],
        "def_correct_predictions": ['\\"Ann\\" B', "mar\\u00eda"],
        "poss_correct_predictions": [],
        "def_incorrect_predictions": ["Bo"],
        "answer_and_def_correct_predictions": ["Ann", '\\"Ann\\" B'],
    }
    [row] = rows(read_raw({"NQ-open.efficientqa.jsonl": jsonl(told)}))
    assert (row["answer"], row["aliases"], row["source"]) == ("Ann", ["Ann"], "nq_open")


def test_gold_answers_of_adarague_meet_their_questions_by_key(read_raw: Callable[..., Step]) -> None:
    line = {"qid": "k1", "question": "Who?", "Final Answer": "x", "ground_truth": "Ann"}
    cell = "\"[{'spans': array(['Bo'], dtype=object)}]\""
    step = read_raw(
        {
            "SeaKR/music_results.jsonl": jsonl(line, line | {"qid": "k2", "question": "Where?"}),
            "2wiki_test_first2.csv": "qid,question_text,answer_objects,context,reference\n"
            f"""k1,Who else?,{cell},c,"['Bo', 'B, Jr.']"\nk3,And?,{cell},c,['b\n""",
            "ground_truth__all.json": json.dumps({"k1": ["Ann", "Anna"], "k9": ["z"], "k2": "not a list"}),
            "prediction__all.json": json.dumps({"k1": "Ann", "k2": "Bo", "k9": "z"}),
            "outputs_nq_direct.jsonl": jsonl({"answer": "a", "perplexity": 1.1, "ln_entropy": 0.5}),
            "option_with_probas.json": json.dumps(
                {"k1": {"option": "B", "prediction": "x", "probas": "0.1, 0.9"}}
            ),
        }
    )
    assert {(r["question"], r["source"], *r["aliases"]) for r in rows(step)} == {
        ("Who?", "adarague_musique", "Ann", "Anna"),
        ("Where?", "adarague_musique", "Ann"),
        ("Who else?", "adarague_2wikimultihopqa", "Bo", "B, Jr.", "Ann", "Anna"),
    }
    assert step.ledger.summary()["reasons"] == {
        "rejected(model_output)": 5,
        "rejected(unreadable_aliases)": 2,
    }
    assert step.ledger.notes == {"no label": 3, "aliases": 1, "aliases of no question here": 1}


def test_columns_are_mapped_by_params(tmp_path: Path) -> None:
    text = 'nr,q,fresh,reply,also,lang\n7,Who?,yes,Ann,"A; B",fr\n8,Why?,no,,,fr\n'
    columns = Columns(question="q", label="fresh", answer="reply", aliases="also", language="lang")
    step = read_with(tmp_path, {"mine.csv": text}, columns=columns)
    told = ("question", "language", "label", "answer", "aliases")
    assert [tuple(r[c] for c in told) for r in rows(step)] == [
        ("Who?", "fr", "evergreen", "Ann", ["A", "B"]),
        ("Why?", "fr", "mutable", None, []),
    ]
    assert step.metrics["ignored_columns"] == ["nr"]


def test_a_mapping_concerns_the_files_that_have_its_columns(tmp_path: Path) -> None:
    files = {"mine.jsonl": jsonl({"q": "Who?", "label": 1}), "train.csv": "is_evergreen,English\n0,Why?\n"}
    step = read_with(tmp_path, files, columns=Columns(question="q"))
    assert [(r["question"], r["label"]) for r in rows(step)] == [("Who?", "evergreen"), ("Why?", "mutable")]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (
            Columns(question="q", label="frsh"),
            "evergreen.ingest.columns.label: no column 'frsh' in mine.csv (did you mean 'fresh'?)",
        ),
        (Columns(question="questoin"), "no file has a column 'questoin' (did you mean 'question'?)"),
    ],
)
def test_a_mapped_column_that_is_not_there_is_refused_with_the_nearest(
    tmp_path: Path, columns: Columns, says: str
) -> None:
    text = "q,fresh,question\nWho?,1,Who?\n"
    with pytest.raises(ConfigError) as e:
        read_with(tmp_path, {"mine.csv": text}, columns=columns)
    assert says in str(e.value)


def test_label_words_of_the_files_own_are_mapped(tmp_path: Path) -> None:
    files = {"mine.csv": "question,label\nA?,0\nB?,1\nC?,Stale\nD?,unsure\nE?,slow\n"}
    labels = {"0": "evergreen", "1": "mutable", "stale": "fast", "unsure": "unknown"}
    found = [(r["label"], r["change_rate"]) for r in rows(read_with(tmp_path, files, labels=labels))]
    assert found == [
        ("evergreen", "never"),
        ("mutable", "unknown"),
        ("mutable", "fast"),
        ("unknown", "unknown"),
        ("mutable", "slow"),
    ]
    with pytest.raises(
        ConfigError, match=r"labels\.0: 'evergren' is no label \(did you mean 'evergreen'\?\)"
    ):
        read_with(tmp_path, files, labels={"0": "evergren"})


def test_a_row_told_to_be_of_unknown_label_is_pooled_whatever_its_split(
    read_raw: Callable[..., Step],
) -> None:
    step = read_raw({"train.csv": "question,label,split\nA?,1,train\nB?,unknown,train\nC?,,train\n"})
    assert [(r["question"], r["label"], r["split"], r["label_origin"]) for r in rows(step)] == [
        ("A?", "evergreen", "train", "gold"),
        ("B?", "unknown", "pool", "none"),
    ]
    assert rejected(step) == [("train.csv", 4, "label", "missing_label")]


def test_the_names_of_columns_are_read_in_any_case(read_raw: Callable[..., Step]) -> None:
    [row] = rows(read_raw({"train.csv": "Question , LABEL,Answer\nWho?,1,Ann\n"}))
    assert (row["question"], row["label"], row["answer"]) == ("Who?", "evergreen", "Ann")


def test_ids_of_64_bits_join_as_they_are_written(tmp_path: Path) -> None:
    big = (-7924170207595297549, -7924170207595297548)  # a double holds neither
    aliases = f',English\n{big[0]},["one"]\n{big[1]},["two"]\n'
    as_csv = {"test.csv": f",is_evergreen,English\n{big[0]},1,A?\n{big[1]},0,B?\n"}
    as_json = {
        "test.jsonl": jsonl(*({"id": n, "is_evergreen": 1, "en": q} for n, q in zip(big, "AB", strict=True)))
    }
    for name, files in (("csv", as_csv), ("jsonl", as_json)):
        found = rows(read_with(tmp_path / name, files | {"test_aliases.csv": aliases}))
        assert [r["aliases"] for r in found] == [["one"], ["two"]]
    folder = raw_folder(tmp_path / "parquet", {"test_aliases.csv": aliases})
    pl.DataFrame({"id": big, "is_evergreen": [1, 0], "en": ["A?", "B?"]}).write_parquet(
        folder / "data/raw/evergreen/test.parquet"
    )
    assert [r["aliases"] for r in rows(read_with(folder, {}))] == [["one"], ["two"]]


def test_a_number_index_with_a_gap_joins_by_its_value(tmp_path: Path) -> None:
    folder = raw_folder(tmp_path, {"test_aliases.csv": ",English\n7,['seven']\n"})
    pl.DataFrame({"id": [7.0, None], "label": [1.0, 0.0], "en": ["A?", "B?"]}).write_parquet(
        folder / "data/raw/evergreen/test.parquet"
    )
    found = rows(read_with(folder, {}))
    assert [(r["label"], r["aliases"]) for r in found] == [("evergreen", ["seven"]), ("mutable", [])]


def test_the_last_rows_of_a_synthetic_set_restart_their_ids_and_lack_the_first_wording(
    read_raw: Callable[..., Step],
) -> None:
    text = ",question,is_evergreen,English,French\n0,A?,0,A?,B?\n1,C?,0,C?,D?\n0,,1,E?,F?\n1,,0,G?,H?\n"
    found = rows(read_raw({"train_synth.csv": text}))
    assert [r["question"] for r in found] == [f"{c}?" for c in "ABCDEFGH"]
    assert len({r["question_id"] for r in found}) == 4
    assert {r["source"] for r in found} == {"synth"}


def test_mixed_line_ends_and_u2028_split_no_record(read_raw: Callable[..., Step]) -> None:
    text = 'question,label\r\n"A\nor\r\nB?",1\nC\u2028D\x85E?,0\r\n'
    assert [r["question"] for r in rows(read_raw({"train.csv": text}))] == ["A\nor\nB?", "C\u2028D\x85E?"]


def test_a_few_lines_that_are_no_utf8_cost_themselves(read_raw: Callable[..., Step]) -> None:
    data = b"question,label\nA?,1\nB\xff?,1\nC\0?,1\nD?,0\n"
    step = read_raw({"train.csv": data})
    assert [r["question"] for r in rows(step)] == ["A?", "D?"]
    frame = pl.read_parquet(step.folder / "rejected.parquet").sort("line")
    assert frame.select("line", "detail", "raw").rows() == [
        (3, "it is not UTF-8", "B\\xff?,1"),
        (4, "it holds a NUL byte", "C\\x00?,1"),
    ]


def test_a_quote_inside_a_cell_takes_no_other_line(read_raw: Callable[..., Step]) -> None:
    text = 'question,label\nHow wide is a 9" pipe?,1\n"Who,\nwhen?",0\n'
    found = [(r["question"], r["label"]) for r in rows(read_raw({"train.csv": text}))]
    assert found == [('How wide is a 9" pipe?', "evergreen"), ("Who,\nwhen?", "mutable")]


def test_damage_in_a_json_document_costs_the_records_that_it_stands_in(read_raw: Callable[..., Step]) -> None:
    whole = [{"question": f"Q{n}?", "answer": "x", "type": "bridge"} for n in range(6)]
    text = json.dumps(whole).replace('"Q1?"', '"Q1?').replace('{"question": "Q4?"', '{"question" "Q4?"')
    step = read_raw({"hotpot.json": text})
    assert [r["question"] for r in rows(step)] == ["Q0?", "Q2?", "Q3?", "Q5?"]
    assert rejected(step) == [("hotpot.json", n, None, "unreadable") for n in (2, 5)]


def test_a_json_document_that_is_cut_off_is_refused(read_raw: Callable[..., Step]) -> None:
    whole = json.dumps([{"question": f"Q{n}?", "answer": "x", "type": "bridge"} for n in range(6)])
    with pytest.raises(InputError, match=r"hotpot\.json:1: is not JSON: Unterminated string"):
        read_raw({"hotpot.json": whole[: len(whole) // 2 + 9]})


def test_a_key_that_stands_twice_in_a_record_is_refused(read_raw: Callable[..., Step]) -> None:
    text = jsonl({"question": "A?", "label": 1}) + '{"question": "B?", "label": 1, "question": "C?"}\n'
    step = read_raw({"train.jsonl": text})
    assert pl.read_parquet(step.folder / "rejected.parquet")["detail"].to_list() == [
        "the key 'question' stands twice"
    ]


@pytest.mark.parametrize("form", ["squad", "keyed"])
def test_a_key_that_stands_twice_is_seen_wherever_the_record_lies(
    read_raw: Callable[..., Step], form: str
) -> None:
    whole = {
        "squad": json.dumps(squad(asked("A?", 1, "x"), asked("B?", 2, "y"))),
        "keyed": json.dumps({"k1": {"question": "A?"}, "k2": {"question": "B?"}}),
    }[form]
    step = read_raw({"q.json": whole.replace('"question": "A?"', '"question": "A?", "question": "C?"')})
    assert [r["question"] for r in rows(step)] == ["B?"]
    assert pl.read_parquet(step.folder / "rejected.parquet")["detail"].to_list() == [
        "the key 'question' stands twice"
    ]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("crag.jsonl", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a Git LFS pointer"),
        ("crag.jsonl", b"BZh91AY", "crag.jsonl:1: is not text but bzip2"),
        (
            "q.json",
            '{"a": 1}',
            "no column holds questions (the file has: 'id', 'value'; evergreen.ingest.columns says",
        ),
        ("q.json", '"text"', "must be a list of objects"),
        ("q.csv", "question,query\nA?,B?\n", "columns 'question' and 'query' both claim to be the question"),
        ("q.csv", "question,Labels\nA?,1\n", "is column 'Labels' the label?"),
        ("q.csv", "Question,question\nA?,B?\n", "'Question' and 'question' both claim to be the question"),
    ],
)
def test_a_file_that_cannot_be_read_right_is_refused(
    read_raw: Callable[..., Step], name: str, content: str | bytes, says: str
) -> None:
    with pytest.raises(HeadraceError) as e:
        read_raw({name: content})
    assert says in str(e.value)


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ("en", "en"),
        ("English", "en"),
        ("EN-us", "en"),
        ("zh_Hans", "zh"),
        ("bn", "bn"),
        ("xx", None),
        ("", None),
    ],
)
def test_languages_are_known_by_code_and_name(told: str, code: str | None) -> None:
    assert language(told) == code


@pytest.mark.parametrize(
    ("stem", "code"),
    [
        ("xquad.de", "de"),
        ("test-context-ar-question-hi", "hi"),
        ("squad_no_answer", None),
        ("dev-v1.1", None),
    ],
)
def test_a_files_name_may_tell_the_language(stem: str, code: str | None) -> None:
    assert language_in(stem) == code


def test_sentences_in_a_list_are_not_split_at_semicolons() -> None:
    assert members("['a; b', 'c']") == ["a; b", "c"]
    assert members("a; b") == ["a; b"]
    assert members("['\\d']") == ["\\d"]
    assert members("array(['x'])[") == ["array(['x'])["]
    assert members("[array(['x'])]") is None


def test_a_role_that_does_not_exist_cannot_be_mapped() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'qestion'.*did you mean 'question'\?"):
        load(ingest.Params, {"columns": {"qestion": "q"}}, "evergreen.ingest")
