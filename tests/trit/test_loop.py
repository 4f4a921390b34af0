"""Translate, reason and feedback, with a client that says what it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from pipelines.data.answers import Verdict, Verifier
from pipelines.data.tables import read_parquet
from pipelines.errors import ConfigError, StageError
from pipelines.llm.answer import Failure

APPLES = ("apples", "en", "Tom has 3 apples and buys 5 more. How many apples are there?", "8")
BOXES = ("boxes", "en", "There are 4 boxes with 3 pens in each. How many pens are there?", "12")
POMMES = "Tom a 3 pommes et en achète 5 de plus. Combien de pommes y a-t-il ?"
BOITES = "Il y a 4 boîtes avec 3 stylos dans chacune. Combien de stylos y a-t-il ?"
RIGHT = {"apples": "3 + 5 = 8. La réponse est 8.", "boxes": "4 x 3 = 12. La réponse est 12."}


def frame(loop: Any, step: str, name: str = "rows") -> pl.DataFrame:
    return read_parquet(loop.root / "data" / "trit" / step / "fr" / f"{name}.parquet")


def reasons(loop: Any, step: str) -> dict[str, str]:
    rejected = frame(loop, step, "rejected")
    return {r["item"]: f"{r['outcome']}({r['reason']})" for r in rejected.iter_rows(named=True)}


def translated(loop: Any, scripted: Callable[..., Any], told: dict[str, str | Failure], **params: Any) -> Any:
    """Two problems, two translations each, as told; the reference must never be read."""
    loop.problems(APPLES, BOXES, ("apples", "fr", "RÉFÉRENCE 3 5", "8"))
    loop.run("ingest")
    plain = {"apples#0": POMMES, "apples#1": POMMES, "boxes#0": BOITES, "boxes#1": BOITES}
    client = scripted(plain | told)
    loop.run("translate", "fr", client, **{"samples": 2} | params)
    return client


def reasoned(
    loop: Any, scripted: Callable[..., Any], said: Callable[[str, int, int], str | Failure], g: int = 2
) -> Any:
    """Answers by (problem, translation sample, response sample)."""
    rows = frame(loop, "translate").iter_rows(named=True)
    told = {f"{r['row_id']}#{i}": said(r["problem_key"], r["sample"], i) for r in rows for i in range(g)}
    client = scripted(told)
    loop.run("reason", "fr", client, samples=g)
    return client


def test_an_accepted_translation_says_whence_it_comes(loop: Any, scripted: Any) -> None:
    client = translated(loop, scripted, {})
    rows = frame(loop, "translate")
    assert len(rows) == 4 and rows["group_size"].unique().to_list() == [2]
    assert rows["responses"].list.len().to_list() == [1] * 4
    problems = read_parquet(loop.root / "data/trit/ingest/rows.parquet").filter(pl.col("role") == "source")
    assert set(rows["parents"].explode()) == set(problems["row_id"])
    assert len({(r.prompt, r.seed) for r in client.asked}) == 4  # each sample has its own seed
    assert {r.sampling.stop for r in client.asked} == {("\n",)}
    assert not [r for r in client.asked if "RÉFÉRENCE" in r.prompt]


@pytest.mark.parametrize(
    ("said", "ending"),
    [
        ("", "rejected(empty)"),
        (Failure.EMPTY, "rejected(empty)"),
        ("Tom a 3 pommes et en achète. Combien de pommes y a-t-il ?", "rejected(numbers_lost)"),
        (POMMES.replace("5", "5 ou 6"), "rejected(numbers_added)"),
        (POMMES.replace("pommes", "りんご"), "rejected(script)"),
        (APPLES[2], "rejected(copy)"),
        (f"{POMMES} English: There are pens.", "rejected(leaked_prompt)"),
        ("Tom tem 3 maçãs e compra mais 5. Quantas maçãs há ao todo?", "rejected(language)"),
        ("Tom : 3 pommes, et 5 de plus", "rejected(length_ratio)"),
        (Failure.LENGTH, "unparsable(length)"),
        (Failure.FILTERED, "refused(content_filter)"),
        (Failure.OVER_BUDGET, "over_budget(over_budget)"),
    ],
)
def test_each_translation_ends_once_with_its_reason(
    loop: Any, scripted: Any, said: str | Failure, ending: str
) -> None:
    translated(loop, scripted, {"apples#1": said}, allow_failed=0.25)
    assert reasons(loop, "translate") == {"apples#1": ending}
    kept = frame(loop, "translate", "rejected").row(0, named=True)
    assert kept["raw"] == ("" if isinstance(said, Failure) else said)
    assert len(kept["responses"]) == len(kept["parents"]) == 1
    assert len(frame(loop, "translate")) == 3


def test_a_passing_failure_fails_the_stage_and_params_may_allow_a_share(loop: Any, scripted: Any) -> None:
    with pytest.raises(StageError, match="1 of 4 items failed"):
        translated(loop, scripted, {"apples#1": Failure.TIMEOUT})
    translated(loop, scripted, {"apples#1": Failure.TIMEOUT}, allow_failed=0.5)
    assert reasons(loop, "translate") == {"apples#1": "failed(timeout)"}


def test_a_response_gets_the_reward_of_its_pieces(loop: Any, scripted: Any) -> None:
    translated(loop, scripted, {})
    said = {
        0: RIGHT["apples"],
        1: "3 x 5 = 15. La réponse est 15.",
        2: "We add the numbers that are given here. The answer is 8.",
        3: "Tom mange.",
        4: Failure.LENGTH,
    }
    reasoned(loop, scripted, lambda key, k, g: said[g], g=5)
    rows = frame(loop, "reason").filter(pl.col("problem_key") == "apples")
    pieces = rows.select("sample", "given", "r_fmt", "r_lang", "r_rep", "r_acc", "reward").sort("sample")
    assert pieces.unique(maintain_order=True).rows() == [
        (0, "8", 1, 1, 1, 1, 1.0),
        (1, "15", 1, 1, 1, 0, 0.1),
        (2, "8", 1, 0, 1, 1, 0.0),  # right, but not in French
    ]
    assert sorted(set(reasons(loop, "reason").values())) == ["unparsable(length)", "unparsable(no_answer)"]
    kept = frame(loop, "reason", "rejected").filter(pl.col("reason") == "no_answer")
    assert set(kept["raw"]) == {"Tom mange."}


def test_a_comparison_that_cannot_decide_is_unverified_and_not_wrong(
    loop: Any, scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    translated(loop, scripted, {})
    compare = Verifier.compare

    def undecided(self: Verifier, given: str, gold: str, *, language: str = "en") -> Verdict:
        return Verdict.UNVERIFIED if given == "99" else compare(self, given, gold, language=language)

    monkeypatch.setattr(Verifier, "compare", undecided)
    hard = "La réponse est 99."
    reasoned(loop, scripted, lambda key, k, g: hard if (key, k) == ("apples", 0) and g == 0 else RIGHT[key])
    assert list(reasons(loop, "reason").values()) == ["unverified(not_compared)"]
    step = loop.run("feedback", "fr")
    table = frame(loop, "feedback")
    first = table.filter(kind="translation", problem_key="apples", sample=0).row(0, named=True)
    assert (first["acc"], first["verified"], first["unverified"], first["reward"]) == (1.0, 1, 1, 1.0)
    assert step.ledger.summary()["reasons"] == {"unverified(unverified_member)": 1}  # its responses' group
    assert len(table.filter(kind="reasoning")) == 6


def test_the_deferred_reward_is_gathered_by_key(loop: Any, scripted: Any) -> None:
    translated(loop, scripted, {"boxes#1": BOXES[2]})

    def said(key: str, k: int, g: int) -> str:
        wrong = {("apples", 0): (0, 1), ("apples", 1): (0,), ("boxes", 0): ()}[key, k]
        return "La réponse est 1." if g in wrong else RIGHT[key]

    reasoned(loop, scripted, said)
    step = loop.run("feedback", "fr")
    table = frame(loop, "feedback")
    made = table.filter(kind="translation").sort("group_id", "sample")
    columns = ("group_id", "sample", "valid", "acc", "reward", "trainable")
    assert made.select(columns).rows() == [
        ("apples/fr", 0, True, 0.0, 0.0, True),
        ("apples/fr", 1, True, 0.5, 1.0, True),
        ("boxes/fr", 0, True, 1.0, 1.0, True),
        ("boxes/fr", 1, False, None, 0.0, True),  # a copy: no rollouts, but it trains the translator
    ]
    assert made["advantage"].to_list() == pytest.approx([-0.7071, 0.7071, 0.7071, -0.7071], abs=1e-3)
    assert made["text"].to_list()[3] == BOXES[2]
    assert made["reference"].to_list() == ["RÉFÉRENCE 3 5"] * 2 + [None] * 2
    answered = table.filter(kind="reasoning")
    training = answered.filter("trainable").join(made, left_on="group_id", right_on="member")
    assert training.select("problem_key", "sample_right").unique().rows() == [("apples", 1)]
    assert step.metrics["rollouts_saved_by_checks"] == 2
    assert step.metrics["acc_mean"] == 0.5
    assert (step.rows_in, len(step.ledger.planned)) == (4 + 6, 2 + 3)
    assert step.ledger.summary()["notes"] == {"acc_zero": 1, "equal_rewards": 1}


def test_a_group_with_a_hole_is_set_aside_whole(loop: Any, scripted: Any) -> None:
    translated(loop, scripted, {"boxes#1": Failure.TIMEOUT}, allow_failed=1.0)
    reasoned(loop, scripted, lambda key, k, g: RIGHT[key])
    loop.run("feedback", "fr")
    assert set(reasons(loop, "feedback").items()) == {("translation:boxes", "rejected(incomplete_group)")}
    assert set(frame(loop, "feedback").filter(kind="translation")["problem_key"]) == {"apples"}


def test_the_order_of_answers_changes_no_byte(loop: Any, scripted: Any) -> None:
    def bytes_of(backwards: bool) -> list[bytes]:
        loop.problems(APPLES, BOXES)
        loop.run("ingest")
        told = {"apples#0": POMMES, "apples#1": "", "boxes#0": BOITES, "boxes#1": BOXES[2]}
        loop.run("translate", "fr", scripted(told, backwards), samples=2)
        rows = frame(loop, "translate").iter_rows(named=True)
        told = {f"{r['row_id']}#{g}": RIGHT[r["problem_key"]] for r in rows for g in (0, 1)}
        loop.run("reason", "fr", scripted(told, backwards), samples=2)
        loop.run("feedback", "fr")
        return [p.read_bytes() for p in sorted((loop.root / "data/trit").rglob("*")) if p.is_file()]

    assert bytes_of(False) == bytes_of(True)


def test_responses_to_translations_that_are_gone_are_an_error(loop: Any, scripted: Any) -> None:
    translated(loop, scripted, {})
    reasoned(loop, scripted, lambda key, k, g: RIGHT[key])
    loop.problems(BOXES)
    loop.run("ingest")
    loop.run("translate", "fr", scripted({"boxes#0": BOITES, "boxes#1": BOITES}), samples=2)
    with pytest.raises(StageError, match="2 translations were answered that are not there"):
        loop.run("feedback", "fr")


def test_a_model_that_translates_nothing_leaves_an_empty_but_lawful_table(loop: Any, scripted: Any) -> None:
    nothing = dict.fromkeys(("apples#0", "apples#1", "boxes#0", "boxes#1"), "")
    translated(loop, scripted, nothing)
    loop.run("reason", "fr", scripted({}))
    loop.run("feedback", "fr")
    table = frame(loop, "feedback")
    assert table["reward"].to_list() == [0.0] * 4 and not table["trainable"].any()


@pytest.mark.parametrize(
    ("step", "item", "params", "says"),
    [
        ("translate", "xx", {}, "no prompt for language 'xx'"),
        ("translate", "fr", {"samples": 0}, "must be at least 1"),
        ("translate", "fr", {"samples": 10**8}, "at most 10000"),
        ("translate", "fr", {"length_ratio": {}}, "length_ratio"),
        ("translate", "fr", {"length_ratio": {"fr": [2.0, 0.6]}}, "length_ratio"),
        ("reason", "fr", {"temperature": -1.0}, "temperature: must not be negative"),
        ("reason", "fr", {"samples": 0}, "must be at least 1"),
        ("reason", "fr", {"samples": 10**8}, "at most 10000"),
        ("reason", "fr", {"format": "thnk"}, "did you mean 'think'"),
        ("reason", "fr", {"repetition": "evl"}, "did you mean 'eval'"),
        ("reason", "fr", {"sample": 2}, "did you mean 'samples'"),
    ],
)
def test_a_wrong_parameter_is_refused_before_a_model_is_asked(
    loop: Any, scripted: Any, step: str, item: str, params: dict[str, Any], says: str
) -> None:
    client = scripted({})
    with pytest.raises(ConfigError, match=says):
        loop.run(step, item, client, **params)
    assert client.asked == []
