"""The verbal baselines, asked of a scripted endpoint: verdicts, one denominator, cost, shots."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines import tracking
from pipelines.asking import AskingStep
from pipelines.data.duplicates import question_key
from pipelines.data.tables import write_parquet
from pipelines.errors import ConfigError, StageError
from pipelines.evaluation import verbal
from pipelines.evaluation.verbal_figures import figures_of
from pipelines.evaluation.verbal_prompts import SHEETS, method, yes_is_mutable
from pipelines.evergreen.schema import QUESTION, questions
from tests.llm.scripted_server import ScriptedServer

ASKED = {
    "Who wrote Emma?": ("evergreen", 0.9),
    "What is salt?": ("evergreen", 0.8),
    "How old is Tom Hanks?": ("mutable", 0.2),
    "What does tea cost?": ("mutable", 0.7),
}
SCORED = {
    "row_id": pl.String, "question_id": pl.String, "language": pl.String, "question": pl.String,
    "label": pl.String, "p_evergreen": pl.Float64,
}  # fmt: skip
PRICES = {"asked": {"prompt": 1.0, "completion": 100.0}}


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of this machine reaches a test, and tracking has tests of its own."""
    for name in ("BACKEND", "BASE_URL", "MODEL"):
        monkeypatch.delenv(f"HEADRACE_LLM_{name}", raising=False)
    monkeypatch.delenv("HEADRACE_STORE", raising=False)
    monkeypatch.setattr(tracking, "record", lambda *_: "")


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(answers=Path(__file__).with_name("verbal_answers.py")) as started:
        yield started


def lay(root: Path, held: list[str] | None = None) -> Path:
    """A workspace with four scored test questions, in English and French, and what was ingested."""
    rows = [
        {"row_id": f"{n}{language}", "question_id": f"q{n}", "language": language, "question": text,
         "label": label, "p_evergreen": p}
        for n, (text, (label, p)) in enumerate(ASKED.items())
        for language in ("en", "fr")
    ]  # fmt: skip
    write_parquet(pl.DataFrame(rows, schema=SCORED), root / "data/evaluation/evergreen/rows.parquet")
    schema = questions("evergreen.ingest", QUESTION)
    known = [
        schema.row(**{**dict.fromkeys(QUESTION), "question_id": text, "language": "en", "question": text})
        for text in [*ASKED, *(held or [])]
    ]
    write_parquet(schema.frame(known), root / "data/evergreen/ingest/rows.parquet")
    return root


def run(root: Path, url: str, **changed: Any) -> dict[str, Any]:
    told = {"backend": "openai", "model": "asked", "languages": ("en",), "small": 3, "bootstrap": 100}
    llm = {"base_url": url, "prices": PRICES, "retries": 0}
    step = AskingStep("evaluation.verbal", None, root, 7, llm)
    verbal.run(step, verbal.Params(**{**told, **changed}))
    step.finish(verbal.SCHEMA)
    return json.loads((root / "data/evaluation/verbal/metrics.json").read_text())


def test_the_first_verdict_counts_and_an_unparsed_reply_is_wrong_and_counted(
    tmp_path: Path, server: ScriptedServer
) -> None:
    figures = run(lay(tmp_path), server.url)
    rows = pl.read_parquet(tmp_path / "data/evaluation/verbal/rows.parquet")
    said = {(r["method"], r["question"]): r["verdict"] for r in rows.to_dicts()}
    for name in ("verbal", "uar", "mulan"):
        assert [said[name, q] for q in ASKED] == ["evergreen", "evergreen", "mutable", "unparsed"]
        told = figures["methods"][name]
        assert (told["rows"], told["unparsed"], told["unparsed_share"]) == (4, 1, 0.25)
        # The unparsed mutable question stands as evergreen: F1 of 2/2.5 and 1/1.5, each of weight a half.
        assert told["weighted_f1"]["mean"]["value"] == pytest.approx((0.8 + 2 / 3) / 2, abs=1e-6)
        assert told["confusion"]["en"]["false_positives"] == 1
        assert told["classifier"] == pytest.approx((0.8 + 2 / 3) / 2, abs=1e-6)
        assert told["minus_classifier"] == {"value": 0.0, "low": 0.0, "high": 0.0}
        assert told["constant"] == pytest.approx(1 / 3, abs=1e-6)
    outcomes = json.loads((tmp_path / "data/evaluation/verbal/outcomes.json").read_text())
    assert (outcomes["items"], outcomes["accepted"], outcomes["rows_out"]) == (12, 12, 12)
    assert outcomes["notes"] == {"unparsed: said neither": 3}


def test_the_cost_of_a_thousand_questions_is_that_of_the_stored_answers(
    tmp_path: Path, server: ScriptedServer
) -> None:
    first = run(lay(tmp_path), server.url, methods=("uar",))
    told = first["methods"]["uar"]["cost_per_1000"]
    words = sum(len(t.split()) for t in ("No.", "No, it does not", "YES", "Maybe"))
    assert told["prompt_tokens"] == 10_000  # the endpoint counts 10 a prompt
    assert told["generated_tokens"] == 1000 * words / 4
    assert told["usd"] == pytest.approx((10 * 1.0 + words / 4 * 100.0) / 1e6 * 1000)
    asked = len(server.requests())
    assert run(tmp_path, server.url, methods=("uar",)) == first
    assert len(server.requests()) == asked


def test_every_language_and_question_is_asked_unless_params_draw_fewer(
    tmp_path: Path, server: ScriptedServer
) -> None:
    whole = run(lay(tmp_path), server.url, methods=("uar",), languages=())
    assert (whole["sample"]["languages"], whole["methods"]["uar"]["rows"]) == (["en", "fr"], 8)
    few = run(tmp_path, server.url, methods=("uar",), questions=2)
    assert few["sample"]["questions"] == 2
    what, why = few["sample"]["what"].split(": ")
    assert what == "2 test questions asked of asked"
    assert why == "too few questions to speak of quality; this shows that the path works"
    with pytest.raises(StageError, match="no test question in de"):
        run(tmp_path, server.url, languages=("de",))


def test_the_shots_are_earlier_turns_and_the_question_alone_changes(
    tmp_path: Path, server: ScriptedServer
) -> None:
    before = len(server.requests())
    run(lay(tmp_path), server.url, methods=("verbal",), max_tokens=33, temperature=0.7, top_p=0.95, top_k=20)
    bodies = [r["body"] for r in server.requests()[before:]]
    assert len(bodies) == 4
    heads = {json.dumps(b["messages"][:-1]) for b in bodies}
    assert len(heads) == 1
    turns = bodies[0]["messages"]
    assert [t["role"] for t in turns] == ["system", *["user", "assistant"] * 10, "user"]
    told = [t["content"] for t in turns if t["role"] == "assistant"]
    assert sorted(told) == ["immutable"] * 5 + ["mutable"] * 5
    assert {b["messages"][-1]["content"] for b in bodies} == {f"Question: {q}" for q in ASKED}
    sent = {k: bodies[0][k] for k in ("max_tokens", "temperature", "top_p", "top_k", "stop")}
    assert sent == {"max_tokens": 33, "temperature": 0.7, "top_p": 0.95, "top_k": 20, "stop": ["\nQuestion:"]}


@pytest.mark.parametrize(
    ("name", "cue"), [("verbal", "Classification:"), ("uar", "Answer (yes or no):"), ("mulan", "Kind:")]
)
def test_a_base_model_goes_on_after_the_cue_of_the_method(name: str, cue: str) -> None:
    told = method(name, ())
    prompt = told.turns("What does tea cost?").form("completion")["prompt"]
    assert prompt.endswith(cue)
    assert prompt.count("Question: What does tea cost?") == 1
    assert prompt.count(f"{cue} mutable") == (5 if name == "verbal" else 0)
    assert prompt.startswith(told.sheet.say("instruction"))


def test_a_shot_that_the_data_holds_gives_way_to_the_next_of_its_class(
    tmp_path: Path, server: ScriptedServer
) -> None:
    usual = method("verbal", ())
    taken = usual.shots[0][0]
    figures = run(lay(tmp_path, [taken.upper()]), server.url, methods=("verbal",))
    assert figures["shots_left_out"] == {"verbal": [taken]}
    now = method("verbal", {question_key(taken)}).shots
    assert taken not in dict(now)
    assert sorted(told for _, told in now) == sorted(told for _, told in usual.shots)


def test_too_few_shots_are_an_error_with_a_cure() -> None:
    held = {question_key(q) for q, told in method("verbal", ()).shots if told == "mutable"}
    with pytest.raises(StageError, match="fewer than 5 say 'mutable'"):
        method("verbal", held)


def test_a_reply_that_was_refused_or_cut_counts_and_one_that_never_came_fails_its_row(tmp_path: Path) -> None:
    faults: list[dict[str, Any] | None] = [
        {"refusal": "no", "text": ""}, {"finish": "length", "text": "mutable, bec"}, {"status": 400}, None
    ]  # fmt: skip
    with ScriptedServer({"faults": faults}, answers=Path(__file__).with_name("verbal_answers.py")) as server:
        step = AskingStep(
            "evaluation.verbal",
            None,
            lay(tmp_path),
            7,
            {"base_url": server.url, "concurrency": 1, "retries": 0},
        )
        verbal.run(step, verbal.Params("openai", "asked", ("mulan",), languages=("en",), bootstrap=10))
        step.finish(verbal.SCHEMA, allow_failed=0.25)
    outcomes = json.loads((tmp_path / "data/evaluation/verbal/outcomes.json").read_text())
    assert (outcomes["accepted"], outcomes["failed"]) == (3, 1)
    rows = pl.read_parquet(tmp_path / "data/evaluation/verbal/rows.parquet")
    by_end = {r["finish"]: r["verdict"] for r in rows.to_dicts()}
    assert by_end["length"] == "mutable"
    assert outcomes["notes"]["unparsed: refused"] == 1


def test_the_model_of_the_run_stands_in_and_is_named(tmp_path: Path, server: ScriptedServer) -> None:
    step = AskingStep(
        "evaluation.verbal", None, lay(tmp_path), 7, {"base_url": server.url, "model": "smollm2-135m"}
    )
    verbal.run(step, verbal.Params("openai", "asked", ("uar",), languages=("en",), bootstrap=10, small=1))
    assert step.metrics["sample"].startswith(
        "4 test questions asked of smollm2-135m: too small a model to speak"
    )


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        ("Yes.", "mutable"),
        ("no", "evergreen"),
        ("Ｙｅｓ", "mutable"),
        ("I know nothing", "unparsed"),
        ("", "unparsed"),
        ("No, yes", "evergreen"),
    ],
)
def test_yes_is_mutable_and_the_first_word_of_the_two_counts(reply: str, told: str) -> None:
    assert yes_is_mutable(reply) == told


def test_the_order_of_replies_changes_no_figure() -> None:
    rows = [
        {"question_id": f"q{n}", "language": "en", "method": how,
         "label": "evergreen" if n % 3 else "mutable",
         "verdict": ("evergreen", "mutable", "unparsed")[(n + len(how)) % 3], "p_evergreen": (n % 10) / 10,
         "prompt_tokens": 10 + n, "completion_tokens": n % 4, "cost_usd": 0.1 * n}
        for n in range(30)
        for how in ("uar", "mulan")
    ]  # fmt: skip
    params = verbal.Params("openai", "m", bootstrap=50)
    told = [figures_of(pl.DataFrame(r), params, 7, "m", tiny=False) for r in (rows, rows[::-1])]
    assert json.dumps(told[0]) == json.dumps(told[1])


@pytest.mark.parametrize(
    "changed",
    [
        {"methods": ("uarr",)},
        {"methods": ()},
        {"style": "talk"},
        {"questions": -1},
        {"bootstrap": 0},
        {"confidence": 1.0},
        {"threshold": 0.0},
    ],
)
def test_impossible_parameters_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        verbal.Params("openai", "m", **changed)


@pytest.mark.real
def test_no_shot_is_a_question_of_the_public_sets(real_data: Path) -> None:
    held = set()
    for path in [*(real_data / "evergreenqa").glob("*.csv"), real_data / "freshqa" / "freshqa.csv"]:
        with path.open(encoding="utf-8", newline="") as lines:
            held |= {question_key(r.get("English") or r.get("question") or "") for r in csv.DictReader(lines)}
    assert len(held) > 4000
    for name in SHEETS:
        assert list(method(name, held).left_out) == []
