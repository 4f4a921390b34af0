"""Values out of answers: read, else repaired by one more request; a changed reader asks nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from questions import question, settings
from scripted_server import ScriptedServer

from pipelines.asking import AskingStep
from pipelines.errors import ConfigError
from pipelines.llm.answer import Answer, Failure
from pipelines.llm.client import open_client
from pipelines.llm.coercion import Form
from pipelines.llm.request import Request, request_key
from pipelines.llm.structured import Ending, Reader, Reading, Structured, reading, structured

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
ANSWERS = """
import json, re
def answer(body):
    said = body["prompt"] if "prompt" in body else " ".join(m["content"] for m in body["messages"])
    n = int(re.search(r"What is (\\d+)", said)[1])
    if "not the JSON" in said:
        return "no, I mean it" if n % 4 == 3 else json.dumps({"n": n})
    return [json.dumps({"n": n}), "Sure: {'n': '%d',}" % n, "n is %d" % n, "no"][n % 4]
"""


@pytest.fixture
def server(serve, tmp_path: Path) -> ScriptedServer:
    (tmp_path / "answers.py").write_text(ANSWERS)
    return serve(answers=tmp_path / "answers.py")


def asked(*numbers: int, kind: str = "completion", **changes: Any) -> list[Request]:
    return [replace(question(n, kind=kind), schema=SCHEMA, **changes) for n in numbers]


def run(
    server: ScriptedServer, store: Path, requests: Iterable[Request], read: Reader | None = None, **how: bool
) -> dict[str, Structured]:
    with open_client(settings(server.url), store) as client:
        ends = list(structured(client.answers, requests, read=read, **how))
    assert len({e.request.row for e in ends}) == len(ends)
    return {e.request.row: e for e in ends}


@pytest.mark.parametrize("kind", ["completion", "chat"])
def test_each_row_takes_the_first_step_of_the_ladder_that_gives_a_value(
    server: ScriptedServer, tmp_path: Path, kind: str
) -> None:
    ends = run(server, tmp_path / "s", asked(0, 1, 2, 3, kind=kind))
    told = [(e.ending, e.value, len(e.ids)) for _, e in sorted(ends.items())]
    assert told == [
        (Ending.READ, {"n": 0}, 1),
        (Ending.READ, {"n": 1}, 1),
        (Ending.REPAIRED, {"n": 2}, 2),
        (Ending.UNPARSABLE, None, 2),
    ]
    assert ends["row1"].steps == ("prose", "quotes", "trailing commas", "respelt")
    assert ends["row3"].raw == "no\n---\nno, I mean it"
    assert ends["row2"].answers[0].text == "n is 2"
    bodies = [r["body"] for r in server.requests()]
    assert len(bodies) == 6 and all(b["response_format"]["json_schema"]["schema"] == SCHEMA for b in bodies)


@pytest.mark.parametrize("kind", ["completion", "chat"])
def test_unconstrained_the_same_ladder_asks_without_the_schema_and_under_another_key(
    server: ScriptedServer, tmp_path: Path, kind: str
) -> None:
    requests = asked(0, 1, 2, 3, kind=kind)
    with_schema = run(server, tmp_path / "s", requests)
    sent = len(server.requests())
    ends = run(server, tmp_path / "s", requests, constrained=False)
    assert {k: (e.ending, e.value, e.request) for k, e in ends.items()} == {
        k: (e.ending, e.value, e.request) for k, e in with_schema.items()
    }
    bodies = [r["body"] for r in server.requests()[sent:]]
    assert len(bodies) == 6 and not any(b.keys() & {"response_format", "json_schema"} for b in bodies)
    assert not {i for e in ends.values() for i in e.ids} & {i for e in with_schema.values() for i in e.ids}
    bare = next(replace(r, schema=None) for r in requests if r.row == "row0")
    assert ends["row0"].ids == (request_key(bare, "name:scripted"),)
    assert any("not the JSON" in str(b) and '"integer"' in str(b) for b in bodies), (
        "a repair tells the schema"
    )
    run(server, tmp_path / "s", requests, constrained=False)
    assert len(server.requests()) == sent + 6


@pytest.mark.parametrize("constrained", [True, False])
@pytest.mark.parametrize("chosen", ["", "scripted"])
def test_a_stage_asks_with_its_schema_or_without_as_llm_constrained_says(
    server: ScriptedServer, tmp_path: Path, constrained: bool, chosen: str
) -> None:
    llm = {"base_url": server.url, "constrained": constrained, "model": chosen}
    step = AskingStep("a.b", None, tmp_path, 7, llm)
    with step.client("openai", "own") as client:
        own = [replace(r, model="own") for r in asked(0, 1, 2, 3)]
        ends = {e.request.row: (e.ending, e.value) for e in step.values(client, own)}
    assert ends["row1"] == (Ending.READ, {"n": 1}) and ends["row2"] == (Ending.REPAIRED, {"n": 2})
    bodies = [r["body"] for r in server.requests()]
    assert len(bodies) == 6 and {b["model"] for b in bodies} == {chosen or "own"}
    assert {"response_format" in b for b in bodies} == {constrained}


def test_every_answer_and_repair_is_stored_and_replays(server: ScriptedServer, tmp_path: Path) -> None:
    first = run(server, tmp_path / "s", asked(*range(40)))
    sent = len(server.requests())
    assert sent == 60
    server.stop()
    again = run(server, tmp_path / "s", asked(*reversed(range(40))))
    assert {k: (e.ending, e.value, e.ids) for k, e in again.items()} == {
        k: (e.ending, e.value, e.ids) for k, e in first.items()
    }
    assert all(a.stored for e in again.values() for a in e.answers)


def test_a_changed_reader_asks_nothing(server: ScriptedServer, tmp_path: Path) -> None:
    run(server, tmp_path / "s", asked(*range(8)))
    sent = len(server.requests())

    def reads_words(text: str, form: Form) -> Reading:
        word = text.rpartition(" ")[2]
        return Reading({"n": int(word)}) if text.startswith("n is ") else reading(text, form)

    def blames_otherwise(text: str, form: Form) -> Reading:
        got = reading(text, form)
        return replace(got, fault=got.fault and f"{got.fault}, said anew")

    read = run(server, tmp_path / "s", asked(*range(8)), reads_words)
    assert read["row2"].ending is Ending.READ and read["row2"].value == {"n": 2}
    assert read["row3"].ending is Ending.UNPARSABLE
    assert run(server, tmp_path / "s", asked(*range(8)), blames_otherwise)["row3"].fault.endswith("said anew")
    assert len(server.requests()) == sent == 12


def test_samples_that_say_the_same_wrong_text_are_repaired_each(
    server: ScriptedServer, tmp_path: Path
) -> None:
    requests = [replace(question(2, sample=k), schema=SCHEMA, row=f"r{k}") for k in range(3)]
    ends = run(server, tmp_path / "s", requests)
    assert len({i for e in ends.values() for i in e.ids}) == len(server.requests()) == 6


def test_a_failure_is_no_text_to_repair(serve, tmp_path: Path) -> None:
    server = serve({"faults": [{"finish": "length"}]})
    (end,) = run(server, tmp_path / "s", asked(0)).values()
    assert end.ending is Ending.FAILED and end.answers[0].failure is Failure.LENGTH
    assert len(server.requests()) == 1


def test_a_repair_that_fails_for_a_passing_cause_fails_the_row_and_is_asked_again(
    serve, tmp_path: Path
) -> None:
    server = serve({"faults": [{"text": "no"}, *[{"status": 500}] * 4]})
    (end,) = run(server, tmp_path / "s", asked(0)).values()
    assert end.ending is Ending.FAILED and end.answers[-1].failure is Failure.SERVER
    (again,) = run(server, tmp_path / "s", asked(0)).values()
    assert again.ending is Ending.UNPARSABLE and again.answers[0].stored
    assert len(server.requests()) == 6


def test_a_request_without_a_schema_is_refused(server: ScriptedServer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs a schema"):
        run(server, tmp_path / "s", [question(1)])
    assert server.requests() == []


def test_thousands_of_rows_ride_in_a_bounded_window(tmp_path: Path) -> None:
    """No more than the window is drawn ahead of what is answered, repairs included."""
    drawn = 0

    def source() -> Iterable[Request]:
        nonlocal drawn
        for request in asked(*range(3000)):
            drawn += 1
            yield request

    def ask(requests: Iterable[Request]) -> Any:
        for request in requests:
            text = '{"n": 1}' if request.purpose.endswith("repair") else "no"
            yield Answer(request, f"{request.row}{request.purpose}", text=text)

    farthest = 0
    for done, end in enumerate(structured(ask, source()), 1):
        assert end.ending is Ending.REPAIRED
        farthest = max(farthest, drawn - done)
    assert drawn == 3000 and farthest <= 2
