"""The bench of the mutable shares on a few questions of its own, with the packaged encoder, frozen."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from pipelines import tracking
from pipelines.bench import shares as bench
from pipelines.cli import main

PLACES = [f"{a}{b}" for a in ("Mar", "Hal", "Cor", "Bel", "Tor", "Wes", "Nor", "Lin") for b in
          ("row", "den", "vane", "mont", "holm", "wick", "stad", "dal")]  # fmt: skip
SQUAD = {"context": "x", "qas": [{"id": "1", "question": "In which year was Holm founded?",
         "answers": [{"text": "x", "answer_start": 0}]}]}  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    def lay(name: str, text: str) -> None:
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    for name, label in (("train", None), ("train_synth", "0")):
        path = tmp_path / "data" / "evergreenqa" / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", newline="") as f:
            out = csv.writer(f)
            out.writerow(["", "is_evergreen", "English"])
            for n, place in enumerate(PLACES if label is None else PLACES[:4]):
                out.writerow([2 * n, label or "1", f"In which year was {place} founded?"][:3])
                out.writerow([2 * n + 1, "0", f"Who is the mayor of {place} {'now' if label else 'today'}?"])
    for name, told in (("test", "1,When did Ash burn?"), ("dev", "0,Who is the mayor of Elm?")):
        lay(f"evergreenqa/{name}.csv", f",is_evergreen,English,French\n0,{told},Quoi ?\n")
    asked = [
        "who is the mayor of ashford",
        "in which year was ashford founded",
        "in which year did york burn",
    ]
    lay("nq_open/nq.jsonl", "".join(json.dumps({"question": q, "answer": ["x"]}) + "\n" for q in asked))
    lay(
        "xquad/xquad.en.json", json.dumps({"version": "1.1", "data": [{"title": "x", "paragraphs": [SQUAD]}]})
    )
    lay(
        "hotpotqa/h.json",
        json.dumps([{"question": q.title() + "?", "answer": "x", "type": "bridge"} for q in asked]),
    )
    told = {"qid": "q1", "question": asked[0], "Final Answer": "x", "ground_truth": "y"}
    lay("adarague/SeaKR/2wiki_3_1_results.jsonl", json.dumps(told) + "\n")
    lay("adarague/test_no_retrieval_llama8b/ground_truth__2wikimultihopqa.json", json.dumps({"q1": ["y"]}))
    return tmp_path / "data"


@pytest.mark.slow
def test_each_set_is_split_at_a_threshold_chosen_on_train_and_every_row_is_accounted_for(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tracking, "record", lambda *_: "")  # tracking has tests of its own
    monkeypatch.setattr(bench, "PRECISION", 0.9)
    store = tmp_path / "store" / "responses.sqlite"
    ended = main(["bench", "shares", "--data", str(data), "--store", str(store), "--json"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert ended == int(not all(bench.laws(told).values()))
    assert set(told["shares"]) == {"nq_open", "xquad", "hotpotqa", "adarague_2wikimultihopqa"}
    assert told["threshold"]["low"] >= 0.9
    chosen_on = told["threshold"]["questions"]  # of train alone: the made ones are not scored
    assert all(50 <= n <= len(PLACES) for n in chosen_on.values())
    assert told["unaccounted"] == 0
    assert told["rows_split"] == sum(s["questions"] for s in told["shares"].values()) == 8
    for share in told["shares"].values():
        for name in ("mutable_part", "expected_mutable"):
            assert 0 <= share[f"{name}_low"] <= share[name] <= share[f"{name}_high"] <= 1
    beside = told["beside_labels"]
    assert {name: (s["questions"], s["labelled_mutable"]) for name, s in beside.items()} == {
        "test": (1, 0.0), "dev": (1, 1.0),
    }  # fmt: skip
    assert main(["bench", "shares", "--json"]) == 1
    assert "bench shares reads public files (add --data DIR)" in capsys.readouterr().err
