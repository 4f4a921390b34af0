"""Curation: equal in any language is equal, and what is decided holds for all wordings."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from evergreen_rows import raw_folder, run_curate, run_ingest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.data.duplicates import Groups, question_key
from pipelines.evergreen.curate import Question, decide, tidy
from pipelines.evergreen.curating import curation


def q(name: str, *keys: str, split: str = "train", label: str = "evergreen") -> Question:
    return Question(name, split, label, frozenset(keys))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("How old is she?", "  how OLD is, she "),
        ("Ｈｏｗ　ｏｌｄ？", "how old"),
        ("Straße", "STRASSE"),
        ("«Оскар»", '"оскар"'),
        ("cafe\u0301", "café"),
        ("地球上最大的海洋是什么？", "地球上最大的海洋是什么?"),
        ("a\u200eb\u00a0c", "abc"),
    ],
)
def test_a_key_forgets_how_a_question_is_written(a: str, b: str) -> None:
    assert question_key(a) == question_key(b) != ""


@pytest.mark.parametrize(("a", "b"), [("ё", "е"), ("2024", "2025"), ("เก", "ก"), ("x²", "x")])
def test_a_key_keeps_letters_marks_and_numbers(a: str, b: str) -> None:
    assert question_key(a) != question_key(b)


@given(st.text())
def test_a_key_is_its_own_key(text: str) -> None:
    assert question_key(question_key(text)) == question_key(text)


def test_tidying_composes_and_closes_up_but_keeps_joiners() -> None:
    assert tidy(" \ufeffcafe\u0301\u00a0?\n x\u200b ") == "café ? x"
    assert tidy("క్\u200cష") == "క్\u200cష"


def test_groups_join_through_others() -> None:
    groups = Groups("abcd")
    groups.join("a", "b")
    groups.join("c", "b")
    assert sorted(sorted(map(str, g)) for g in groups.all()) == [["a", "b", "c"], ["d"]]


def test_of_equal_train_questions_the_one_with_most_wordings_stays() -> None:
    found = decide([q("a", "en x"), q("b", "en x", "fr y"), q("c", "fr y", "de z")])
    assert found.duplicates == {"a": "b", "c": "b"}


def test_of_as_many_wordings_the_smallest_id_stays() -> None:
    assert decide([q("b", "en x"), q("a", "en x")]).duplicates == {"b": "a"}


def test_equality_across_splits_is_marked_and_drops_nothing() -> None:
    found = decide([q("a", "en x"), q("b", "en x", split="dev"), q("c", "en x", split="test")])
    assert (found.duplicates, found.conflicts) == ({}, {})
    assert found.leaks_into_test == {"a", "b"}
    assert found.leaks_into_dev == {"a"}


def test_equal_test_questions_all_stay_to_be_scored() -> None:
    assert decide([q("a", "en x", split="test"), q("b", "en x", split="test")]).duplicates == {}


def test_a_conflict_in_one_language_takes_out_both_sides_but_not_test() -> None:
    found = decide(
        [
            q("a", "en x", "fr y"),
            q("b", "en z", "fr y", label="mutable"),
            q("c", "en z", split="test"),
            q("d", "en w", label="mutable", split="dev"),
            q("e", "en w", split="test"),
        ]
    )
    assert found.conflicts == {"a": "b", "b": "a", "d": "e"}


def test_a_test_that_contradicts_itself_loses_both() -> None:
    found = decide([q("a", "en x", split="test"), q("b", "en x", split="test", label="mutable")])
    assert found.conflicts == {"a": "b", "b": "a"}


def test_a_question_is_no_duplicate_of_one_that_went_for_a_conflict() -> None:
    found = decide([q("a", "en x", "en y"), q("b", "en y", label="mutable"), q("c", "en x")])
    assert found.conflicts == {"a": "b", "b": "a"}
    assert found.duplicates == {}


WORDINGS = st.frozensets(st.sampled_from([f"{c} {k}" for c in ("en", "fr") for k in "rstuv"]), min_size=1)
QUESTIONS = st.lists(
    st.tuples(WORDINGS, st.sampled_from(["train", "dev", "test"]), st.sampled_from(["evergreen", "mutable"])),
    max_size=9,
).map(lambda found: [Question(f"{n}", s, label, keys) for n, (keys, s, label) in enumerate(found)])


@given(QUESTIONS, st.sampled_from(["train", "dev", "test"]))
def test_an_unrelated_question_changes_nothing_for_the_others(found: list[Question], split: str) -> None:
    alone = Question("00", split, "mutable", frozenset({"en unrelated"}))
    assert decide([alone, *found]) == decide(found)


@given(QUESTIONS, st.randoms())
def test_the_order_of_questions_changes_nothing(found: list[Question], random: object) -> None:
    turned = list(found)
    random.shuffle(turned)  # type: ignore[attr-defined]
    assert decide(turned) == decide(found)


@given(QUESTIONS)
def test_no_two_equal_questions_are_left_within_train_or_dev(found: list[Question]) -> None:
    verdicts = decide(found)
    left = [x for x in found if x.id not in verdicts.conflicts and x.id not in verdicts.duplicates]
    for split in ("train", "dev"):
        keys = Counter(k for x in left if x.split == split for k in x.keys)
        assert all(n == 1 for n in keys.values())
    labels = {k: {x.label for x in left if k in x.keys} for x in left for k in x.keys}
    assert all(len(found) == 1 for found in labels.values())


def test_rows_end_once_each_with_the_reason_and_the_twin(tmp_path: Path) -> None:
    text = (
        "split,label,en,fr\n"
        "train,1,Who painted it?,Qui l'a peint ?\n"
        "train,1,,qui l’a  PEINT\n"
        "train,0,How tall is she?,Quelle est sa taille ?\n"
        "dev,1,How tall was she?,Quelle est sa taille ?\n"
        "test,1,Who painted it?,Qui a peint ça ?\n"
        "train,1,???,Pourquoi ?\n"
    )
    run_ingest(raw_folder(tmp_path, {"all.csv": text}))
    step = run_curate(tmp_path)
    assert step.ledger.summary()["reasons"] == {
        "rejected(duplicate)": 1,
        "rejected(label_conflict)": 4,
        "rejected(no_words)": 1,
    }
    kept = pl.read_parquet(step.folder / "rows.parquet").sort("split", "question")
    assert kept.select("split", "question", "leaks_into_test").rows() == [
        ("test", "Qui a peint ça ?", False),
        ("test", "Who painted it?", False),
        ("train", "Pourquoi ?", False),
        ("train", "Qui l'a peint ?", True),
        ("train", "Who painted it?", True),
    ]
    ingested = set(pl.read_parquet(tmp_path / "data/evergreen/ingest/rows.parquet")["row_id"])
    out = pl.read_parquet(step.folder / "rejected.parquet")
    assert set(out["item"]) | {p for row in kept["parents"] for p in row} == ingested
    assert set(out.filter(reason="duplicate")["parents"].list.len()) == {2}


QUESTIONS = st.builds(
    Question,
    st.uuids().map(str),
    st.sampled_from(["train", "dev", "test", "pool"]),
    st.sampled_from(["evergreen", "mutable", "unknown"]),
    st.frozensets(st.sampled_from(["en a", "en b", "fr a"]), min_size=1),
)


@given(st.lists(QUESTIONS, max_size=12, unique_by=lambda question: question.id))
def test_what_is_decided_follows_from_every_pair_of_equal_questions(found: list[Question]) -> None:
    verdicts = decide(found)
    for one in found:
        others = [o for o in found if o.id != one.id and o.keys & one.keys]
        known = {one.label, "unknown"}
        against = [o.id for o in others if "unknown" not in (one.label, o.label) and o.label not in known]
        if one.split == "test":
            against = [i for i in against if any(o.id == i and o.split == "test" for o in others)]
        assert verdicts.conflicts.get(one.id) == (min(against) if against else None)
        in_test = one.split != "test" and any(o.split == "test" for o in others)
        in_dev = one.split == "train" and any(o.split == "dev" for o in others)
        assert (one.id in verdicts.leaks_into_test, one.id in verdicts.leaks_into_dev) == (in_test, in_dev)


def test_many_equal_questions_are_not_compared_each_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: Counter[str] = Counter()

    def counted(a: Question, b: Question) -> bool:
        compared["pairs"] += 1
        return opposite(a, b)

    opposite = curation.opposite
    monkeypatch.setattr(curation, "opposite", counted)
    verdicts = decide(
        [q(f"{n:04}", "en a", "fr a", label=("evergreen", "mutable")[n % 2]) for n in range(2000)]
    )
    assert len(verdicts.conflicts) == 2000
    assert compared["pairs"] <= 2 * 2000  # one of each label


def test_what_goes_is_not_gathered_anew_for_each_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gathered: Counter[str] = Counter()

    def gone(verdicts: curation.Verdicts) -> set[str]:
        gathered["times"] += 1
        return {*verdicts.conflicts, *verdicts.duplicates, *verdicts.benchmarks}

    monkeypatch.setattr(curation.Verdicts, "gone", property(gone))
    lines = "".join(f"A{'?' * n},1\n" for n in range(1, 40))
    root = raw_folder(tmp_path, {"train.csv": f"English,is_evergreen\n{lines}"})
    run_ingest(root)
    assert run_curate(root).ledger.summary()["reasons"] == {"rejected(duplicate)": 38}
    assert gathered["times"] <= 2
