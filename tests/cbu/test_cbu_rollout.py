"""Each planned rollout ends once, and only whole answers that were compared are evidence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cbu_workspace import ScriptedClient, Workspace, problem

from pipelines.errors import ConfigError, StageError
from pipelines.llm.answer import Failure
from pipelines.llm.request import Request

SOLVER = {"backend": "embedded", "model": "scripted"}
RIGHT = "11. The answer is 11."


@pytest.fixture
def ready(workspace: Workspace) -> Workspace:
    """One problem with two candidates and one neighbor whose answer is 11."""
    workspace.put_rows(
        "a.jsonl",
        [
            problem(0, "Ana has 7 pens and gets 9 more.", 16, "7 + 9 = 16.", "7 * 9 = 63."),
            problem(1, "Bo has 3 pens and gets 8 more.", 11),
        ],
    )
    workspace.run("ingest")
    workspace.run("neighbors", min_near=0.0)
    return workspace


def always(said: str | Failure) -> Callable[[Request], str | Failure]:
    return lambda request: said


@pytest.mark.parametrize(
    ("said", "v", "note"),
    [
        (" 3 + 8 = 11. The answer is 11.", 1, {}),
        ("The answer is 11.0 pens.", 1, {}),
        ("The answer is 24.", 0, {}),
        ("3 + 8 = 11.", 0, {"no_answer": 12}),
        ("", 0, {"no_answer": 12}),
        (Failure.EMPTY, 0, {"no_answer": 12}),
    ],
)
def test_a_whole_answer_counts_one_or_zero(
    ready: Workspace, said: str | Failure, v: int, note: dict[str, int]
) -> None:
    ready.run("rollout", ScriptedClient(always(said)), rollouts=4, **SOLVER)
    assert ready.rows("rollout")["v"].to_list() == [v] * 12
    assert ready.outcomes("rollout")["notes"] == note


@pytest.mark.parametrize(
    ("said", "outcome", "reason"),
    [
        (Failure.LENGTH, "unparsable", "length"),
        (Failure.REFUSED, "refused", "refused"),
        (Failure.FILTERED, "refused", "content_filter"),
        (Failure.OVER_BUDGET, "over_budget", "over_budget"),
    ],
)
def test_an_answer_not_seen_to_its_end_is_left_out_by_its_kind(
    ready: Workspace, said: Failure, outcome: str, reason: str
) -> None:
    ready.run("rollout", ScriptedClient(always(said)), rollouts=2, cut="excluded", allow_failed=1.0, **SOLVER)
    counts = ready.outcomes("rollout")
    assert (counts[outcome], counts["accepted"], counts["items"]) == (6, 0, 6)
    assert set(ready.rejected("rollout").select("outcome", "reason").rows()) == {(outcome, reason)}
    assert ready.rejected("rollout")["responses"].list.len().to_list() == [1] * 6


def test_a_cut_answer_is_wrong_as_in_the_paper_and_noted(ready: Workspace) -> None:
    ready.run("rollout", ScriptedClient(always(Failure.LENGTH)), rollouts=2, **SOLVER)
    assert ready.rows("rollout")["v"].to_list() == [0] * 6
    assert ready.outcomes("rollout")["notes"] == {"cut": 6}


@pytest.mark.parametrize("said", [Failure.NETWORK, Failure.TIMEOUT, Failure.SERVER, Failure.BAD_REQUEST])
def test_a_passing_failure_is_no_wrong_answer_and_stops_the_stage(ready: Workspace, said: Failure) -> None:
    with pytest.raises(StageError, match="6 of 6 items failed"):
        ready.run("rollout", ScriptedClient(always(said)), rollouts=2, **SOLVER)
    assert not (ready.root / "data/cbu/rollout/rows.parquet").exists()


def test_a_share_of_failures_may_be_allowed_and_is_counted(ready: Workspace) -> None:
    script = always(RIGHT)
    client = ScriptedClient(lambda r: Failure.TIMEOUT if r.sample == 0 else script(r))
    ready.run("rollout", client, rollouts=4, allow_failed=0.3, **SOLVER)
    assert (ready.outcomes("rollout")["failed"], ready.outcomes("rollout")["accepted"]) == (3, 9)


def test_a_comparison_that_cannot_decide_is_unverified(workspace: Workspace) -> None:
    workspace.put_rows(
        "a.jsonl", [problem(0, "Which n?", 16, "It is 16."), problem(1, "Which polynomial?", "2x+1")]
    )
    workspace.run("ingest")
    workspace.run("neighbors", min_near=0.0)
    workspace.run("rollout", ScriptedClient(always("The answer is the odd one.")), rollouts=2, **SOLVER)
    counts = workspace.outcomes("rollout")
    assert (counts["unverified"], counts["accepted"]) == (4, 0)


def test_the_prompt_shows_the_pair_without_its_label_and_the_baseline_shows_neither(
    ready: Workspace,
) -> None:
    client = ScriptedClient(always(RIGHT))
    ready.run("rollout", client, rollouts=1, **SOLVER)
    prompts = sorted(r.prompt or "" for r in client.asked)
    assert sum("7 + 9 = 16." in p for p in prompts) == sum("7 * 9 = 63." in p for p in prompts) == 1
    for prompt in prompts:
        assert "right" not in prompt and "wrong" not in prompt
        assert prompt.endswith("Question: Bo has 3 pens and gets 8 more.\nSolution:")
    (plain,) = [p for p in prompts if "7 + 9" not in p and "7 * 9" not in p]
    assert "Ana" not in plain
    shown = next(p for p in prompts if "7 + 9" in p)
    assert shown.endswith(
        "Question: Ana has 7 pens and gets 9 more.\nSolution: 7 + 9 = 16.\n\n"
        "Question: Bo has 3 pens and gets 8 more.\nSolution:"
    )


def test_a_template_in_a_candidate_is_text(ready: Workspace) -> None:
    ready.put_rows(
        "a.jsonl", [problem(0, "Ana {{ x }}?", 16, "{% raw %}{{ 7 }}"), problem(1, "Bo has 3?", 11)]
    )
    ready.run("ingest")
    ready.run("neighbors", min_near=0.0)
    client = ScriptedClient(always(RIGHT))
    ready.run("rollout", client, rollouts=1, **SOLVER)
    assert any("Ana {{ x }}?\nSolution: {% raw %}{{ 7 }}\n" in (r.prompt or "") for r in client.asked)


def test_a_prompt_too_long_for_the_context_is_rejected_unasked(ready: Workspace) -> None:
    client = ScriptedClient(always(RIGHT))
    ready.run("rollout", client, rollouts=2, max_prompt_chars=150, **SOLVER)
    counts = ready.outcomes("rollout")
    assert len(client.asked) == 2 == counts["accepted"]  # the baseline is short
    assert counts["reasons"] == {"rejected(prompt_too_long)": 4}
    assert counts["items"] == 6


def test_chat_style_asks_for_a_box(ready: Workspace) -> None:
    client = ScriptedClient(always(r"So \boxed{11}."))
    ready.run("rollout", client, rollouts=1, style="chat", **SOLVER)
    assert {r.kind for r in client.asked} == {"chat"}
    assert all(r"\boxed{}" in r.messages[0][1] for r in client.asked)
    assert ready.rows("rollout")["v"].to_list() == [1, 1, 1]


def test_samples_of_a_prompt_stand_together_each_with_its_own_seed(ready: Workspace) -> None:
    client = ScriptedClient(always(RIGHT))
    ready.run("rollout", client, rollouts=4, **SOLVER)
    prompts = [r.prompt for r in client.asked]
    assert [prompts[i : i + 4].count(prompts[i]) for i in (0, 4, 8)] == [4, 4, 4]
    assert len({r.seed for r in client.asked}) == 12
    assert [r.sample for r in client.asked] == [0, 1, 2, 3] * 3


def test_more_rollouts_ask_only_the_new_ones_and_a_new_problem_moves_no_seed(ready: Workspace) -> None:
    def seeds(**params: Any) -> set[tuple[str | None, int | None, int]]:
        client = ScriptedClient(always(RIGHT))
        ready.run("rollout", client, **params, **SOLVER)
        return {(r.prompt, r.seed, r.sample) for r in client.asked}

    few = seeds(rollouts=2)
    assert few < seeds(rollouts=4)


def test_the_order_of_the_answers_changes_no_byte(ready: Workspace) -> None:
    seen = set()
    for reverse in (False, True):
        client = ScriptedClient(
            lambda r: Failure.LENGTH if r.sample == 1 else f"The answer is {r.sample}.", reverse
        )
        ready.run("rollout", client, rollouts=4, cut="excluded", **SOLVER)
        folder = ready.root / "data/cbu/rollout"
        names = ("rows.parquet", "rejected.parquet", "outcomes.json")
        seen.add(b"".join((folder / n).read_bytes() for n in names))
    assert len(seen) == 1


def test_a_row_leads_to_its_candidate_its_neighbor_and_its_answer(ready: Workspace) -> None:
    ready.run("rollout", ScriptedClient(always(RIGHT)), rollouts=1, **SOLVER)
    known = {*ready.rows("ingest")["row_id"], *ready.rows("neighbors")["row_id"]}
    for row in ready.rows("rollout").iter_rows(named=True):
        assert set(row["parents"]) <= known and len(row["responses"]) == 1
        assert row["candidate"] is None or row["candidate"] in row["parents"]


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"rollouts": 0}, "at least 1"),
        ({"rollouts": 10**8}, "at most 10000"),
        ({"style": "completions"}, "did you mean 'completion'"),
        ({"cut": "wrongg"}, "did you mean 'wrong'"),
    ],
)
def test_an_impossible_parameter_is_refused_before_any_call(
    ready: Workspace, params: dict[str, Any], says: str
) -> None:
    client = ScriptedClient(always(RIGHT))
    with pytest.raises(ConfigError, match=says):
        ready.run("rollout", client, **params, **SOLVER)
    assert client.asked == []
