"""Questions with answers, scores and flags are read from any known file, or refused with the place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import InputError
from pipelines.evaluation import adarague
from pipelines.evaluation.correctness import contains, exact, normalised
from pipelines.evaluation.known_files import read_folder
from pipelines.evaluation.known_questions import Known, Unread, spans_of, texts_of, unescaped
from pipelines.evaluation.known_scores import oriented


def read(folder: Path) -> tuple[list[Known], list[Unread], set[str]]:
    unused: set[str] = set()
    found = list(read_folder(folder, folder.parent, unused))
    known = [one for one in found if isinstance(one, Known)]
    return known, [one for one in found if isinstance(one, Unread)], unused


def put(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_is_read_by_its_column_names_in_any_order(tmp_path: Path) -> None:
    put(
        tmp_path / "raw",
        "log.csv",
        "Did Search,perplexity,Query,answers,weather,is_evergreen,confidence_own,split\n"
        "yes,1.5,Who is it?,\"['Ann', 'Anna']\",fine,slow-changing,0.9,validation\n"
        "0,,And where?,Rome,,1,,\n",
    )
    known, unread, unused = read(tmp_path / "raw")
    assert unread == [] and unused == {"weather"}
    first, second = known
    assert (first.dataset, first.question, first.golds) == ("log", "Who is it?", ("Ann", "Anna"))
    assert (first.searched, first.label, first.split) == (True, "mutable", "test")
    assert first.scores == {"perplexity": 1.5, "confidence_own": -0.9}
    assert (second.searched, second.label, second.golds, second.scores) == (False, "evergreen", ("Rome",), {})
    assert first.answered and not second.answered


def test_each_record_that_cannot_be_read_costs_itself_alone(tmp_path: Path) -> None:
    lines = [
        {"question": "Good one?", "answer": "yes", "searched": True},
        {"question": "", "answer": "x"},
        {"question": "Bad flag?", "searched": "perhaps"},
        {"question": "Bad label?", "label": "sometimes"},
        {"question": "Bad score?", "perplexity": "high"},
        {"question": "Bad p?", "p_evergreen": 1.2},
        {"question": "Bad language?", "language": "Klingon"},
        {"question": "good  ONE?", "answer": "again"},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines) + "{broken\n"
    put(tmp_path / "raw", "q.jsonl", text)
    known, unread, _ = read(tmp_path / "raw")
    assert [one.question for one in known] == ["Good one?"]
    assert [(one.reason, one.place.line, one.place.column) for one in unread] == [
        ("no_question", 2, "question"),
        ("bad_searched", 3, "searched"),
        ("bad_label", 4, "label"),
        ("bad_score", 5, None),
        ("bad_p_evergreen", 6, "p_evergreen"),
        ("bad_language", 7, "language"),
        ("duplicate", 8, None),
        ("unreadable", 9, None),
    ]


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("question,query", "two columns claim to be the question"),
        ("answer,searched", "no column holds the question"),
        ("question,searched,did_search", "two columns claim to be the searched"),
    ],
)
def test_a_file_that_claims_one_thing_twice_is_refused(tmp_path: Path, header: str, says: str) -> None:
    put(tmp_path / "raw", "q.csv", f"{header}\n{',' * header.count(',')}x\n")
    with pytest.raises(InputError, match=says):
        read(tmp_path / "raw")


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_in_one_line(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("any") / "raw"
    put(folder, "q.csv", "question,answers,perplexity\n" + text.replace("\udc00", ""))
    try:
        known, unread, _ = read(folder)
    except InputError as e:
        assert "\n" not in str(e)
    else:
        assert len(known) + len(unread) > 0


def adarague_files(folder: Path, scored: list[dict[str, Any]]) -> None:
    put(folder, "truth/ground_truth__nq_to_nq__test_subsampled.json", {"b": ["Rome", "Roma"], "a": ["5"]})
    put(folder, "truth/prediction__nq_to_nq__test_subsampled.json", {"a": "15", "b": "Milan"})
    put(folder, "SeaKR/outputs_nq_ours_3_1_direct.jsonl", "".join(json.dumps(s) + "\n" for s in scored))
    probas = {"a": {"probas": "0.25, 0.5, 0.25"}, "b": {"probas": "0.9, 0.05, 0.05"}}
    put(folder, "nq_option_with_probas.json", probas)


SCORED = [
    {"answer": "rome.", "energy_score": 20.0, "eigen_score": -1.0},
    {"answer": "five", "energy_score": 3},
]


def test_scored_answers_join_by_the_order_of_the_ground_truth(tmp_path: Path) -> None:
    adarague_files(tmp_path / "raw", SCORED)
    known, unread, _ = read(tmp_path / "raw")
    assert unread == []
    by_key = {one.key: one for one in known}
    assert by_key["b"].answer == "rome." and by_key["b"].golds == ("Rome", "Roma")
    assert by_key["b"].scores == pytest.approx(
        {"energy_score": -20.0, "eigen_score": -1.0, "retrieval_need": 0.1}
    )
    assert by_key["a"].scores == pytest.approx({"energy_score": -3.0, "retrieval_need": 0.75})
    assert {one.dataset for one in known} == {"nq"} and {one.split for one in known} == {"test"}


def test_the_large_tables_give_the_questions_and_train_rows_of_a_set(tmp_path: Path) -> None:
    adarague_files(tmp_path / "raw", SCORED)
    head = "qid,question_text,answer_objects,context,reference,rag_one_retrieve,no_retrieve\n"
    spans = "\"[{'spans': array(['Pisa', 'Lucca'], dtype=object)}]\""
    put(
        tmp_path / "raw",
        "adaptive_rag_nq/test.csv",
        f"{head}b,Which city?,{spans},{{}},\"['Oslo']\",x,Milan\n",
    )
    put(
        tmp_path / "raw",
        "adaptive_rag_nq/train.csv",
        f"{head}t,Which tower?,{spans},,,x,Pis\\u00e1\n,No key?,,,,,\n",
    )
    known, (unread,), _ = read(tmp_path / "raw")
    by_key = {one.key: one for one in known}
    city, tower = by_key["b"], by_key["t"]
    assert (city.question, city.answer, city.golds, city.split) == (
        "Which city?",
        "rome.",
        ("Rome", "Roma"),
        "test",
    )
    assert (tower.golds, tower.answer, tower.split, tower.scores) == (("Pisa", "Lucca"), "Pisá", "train", {})
    assert (unread.reason, unread.place.line) == ("bad_record", 3)


def test_another_number_of_scored_answers_is_refused_and_a_bad_one_costs_itself(tmp_path: Path) -> None:
    adarague_files(tmp_path / "short", SCORED[:1])
    with pytest.raises(InputError, match="1 answers for 2 keys"):
        read(tmp_path / "short")
    adarague_files(tmp_path / "bad", [{"answer": "x", "energy_score": "much"}, SCORED[1]])
    known, unread, _ = read(tmp_path / "bad")
    assert [one.key for one in known] == ["a"]
    assert [(one.item, one.reason, one.place.line) for one in unread] == [("nq/b", "bad_record", 1)]


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_a_damaged_file_costs_its_own_questions_or_is_refused_whole(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged") / "raw"
    adarague_files(folder, SCORED)
    path = data.draw(st.sampled_from(sorted(p for p in folder.rglob("*") if p.is_file())))
    text = path.read_text()
    at = data.draw(st.integers(0, len(text) - 1))
    put_in = data.draw(st.sampled_from(["", "}", '"', "[", "9" * 400, "null", "\n", "\u2028", "-"]))
    path.write_text(text[:at] + put_in + text[at + 1 :])
    try:
        known, unread, _ = read(folder)
    except InputError as e:
        assert "\n" not in str(e)
    else:
        items = [one.item for one in [*known, *unread]]
        assert len(items) >= 2 and len(set(items)) == len(items)
        assert all(one.detail for one in unread)


def test_a_file_is_known_by_its_name_also_in_the_folders_of_its_repository(tmp_path: Path) -> None:
    def kind(name: str) -> tuple[str, str] | None:
        return adarague.kind_of(tmp_path / name, tmp_path)

    assert kind("SeaKR/results/outputs_tq_ours_3_1/direct.jsonl") == ("scored", "trivia")
    assert kind("SeaKR/results/2wiki_3_1/results.jsonl") == ("results", "2wikimultihopqa")
    assert kind("data/adaptive_rag_musique/train.csv") == ("table", "musique")
    assert kind("questions.csv") is None and kind("other_option_with_probas.json") is None


def test_printed_lists_arrays_and_escapes_are_read() -> None:
    assert texts_of("['Gary Duffy', \"Buck's\"]") == ("Gary Duffy", "Buck's")
    assert texts_of('["A", "A", "B"]') == ("A", "B")
    assert texts_of("plain") == ("plain",) and texts_of(None) == ()
    cell = "[{'number': '', 'spans': array([\"Don't\", 'x'], dtype=object)}]"
    assert spans_of(cell) == ("Don't", "x")
    assert unescaped('Halc\\u00f3n \\"Troy\\"') == 'Halcón "Troy"'
    assert unescaped("\\ud83d\\ude00") == "\U0001f600"
    with pytest.raises(ValueError, match="printed list"):
        texts_of("[not closed")
    with pytest.raises(ValueError, match="printed list"):
        spans_of("[__import__('os').name]")


def test_a_score_that_is_no_finite_number_is_refused() -> None:
    assert oriented("energy_score", "2.5") == -2.5
    assert oriented("perplexity", " ") is None
    for bad in ("nan", "inf", True, [1], 10**400):
        with pytest.raises(ValueError):
            oriented("perplexity", bad)


def test_answers_are_compared_as_squad_does() -> None:
    assert normalised(" The  Grover-Cleveland. ") == "grovercleveland"
    assert exact("the grover cleveland.", ["Grover Cleveland"])
    assert not exact("President Grover Cleveland", ["Grover Cleveland"])
    assert contains("It was Grover Cleveland, twice.", ["x", "Grover Cleveland"])
    assert not contains("15", ["5"]) and not contains("cataract", ["cat"])
    assert contains("答案是北京市。", ["北京"])
    assert not contains("", ["x"]) and not contains("anything", ["", "the"])


def test_an_article_alone_is_an_answer_and_silence_is_none() -> None:
    assert exact("A", ["a"]) and exact("a.", ["A"]) and contains(" A ", ["A"])
    assert not exact("the", ["A"]) and not exact("", ["A"])
    assert not exact("", ["?"]) and not exact("...", ["-"])
    assert not contains("An apple", ["A"])
