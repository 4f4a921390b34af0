"""Questions have answers in the graph, wrong options from another time, and no telling positions."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from egoavu_workspace import Workspace, scene
from hypothesis import given
from hypothesis import strategies as st

from pipelines.egoavu.balance import deal, split_of
from pipelines.egoavu.graph import graph_of
from pipelines.egoavu.lexicon import related_nouns, related_sounds
from pipelines.egoavu.mcg import Node
from pipelines.egoavu.temporal import Events, neighbours

LETTERS = "ABCD"


def nodes(w: Workspace) -> dict[str, Node]:
    return {n.node_id: n for row in w.rows("graph").iter_rows(named=True) for n in graph_of(row).nodes}


def handlings(w: Workspace) -> dict[str, list[Node]]:
    """Actions on each object node."""
    known, found = nodes(w), dict[str, list[Node]]()
    for row in w.rows("graph").iter_rows(named=True):
        for edge in row["edges"]:
            if edge["kind"] == "action-object":
                found.setdefault(edge["target"], []).append(known[edge["source"]])
    return found


def asked(w: Workspace, task: str) -> list[dict[str, Any]]:
    return w.rows("questions").filter(pl.col("task") == task).to_dicts()


def test_all_five_tasks_and_all_kinds_of_choice_are_asked(demo: Workspace) -> None:
    rows = demo.rows("questions")
    assert set(rows["task"]) == {"SSA", "AVSN", "AVDN", "TR", "AVH"}
    assert set(rows["kind"]) == {"open", "before", "after", "first", "last", "yes_no"}
    for task in ("TR", "AVH"):
        assert set(rows.filter(pl.col("task") == task)["modality"]) == {"action", "object", "sound"}


def test_each_clip_task_and_modality_has_one_outcome(demo: Workspace) -> None:
    found = demo.outcomes("questions")
    assert found["items"] == 9 * len(demo.rows("graph")) == found["accepted"] + found["rejected"]
    assert set(demo.rejected("questions")["reason"]) == {
        "no_narration",
        "no_plausible_negative",
        "not_exhaustive",
        "too_few_events",
    }


def test_a_wrong_option_happens_in_the_same_video_and_not_at_the_time_asked(demo: Workspace) -> None:
    known, handled = nodes(demo), handlings(demo)
    videos = {r["clip_id"]: r["video_id"] for r in demo.rows("graph").iter_rows(named=True)}
    seen = 0
    for row in asked(demo, "TR"):
        right = known[row["option_nodes"][LETTERS.index(row["answer"])]]
        anchor = None if row["kind"] in ("first", "last") else known[row["evidence"][0]]
        for node_id in row["option_nodes"]:
            node = known[node_id]
            assert videos[node_id.rsplit("/", 1)[0] if "/" in node_id else ""] == row["video_id"]
            if node is right or anchor is None:
                continue
            events = handled[node_id] if row["modality"] == "object" else [node]
            answer = handled[right.node_id][0] if row["modality"] == "object" else right
            since, until = min(anchor.start_s, answer.start_s), max(anchor.end_s, answer.end_s)
            assert not any(e.start_s < until and e.end_s > since for e in events), row
            seen += 1
    assert seen > 100


def test_first_and_last_are_first_and_last(demo: Workspace) -> None:
    known, handled = nodes(demo), handlings(demo)
    for row in asked(demo, "TR"):
        if row["kind"] in ("first", "last"):
            starts = [
                handled[i][0].start_s if row["modality"] == "object" else known[i].start_s
                for i in row["option_nodes"]
            ]
            best = min(starts) if row["kind"] == "first" else max(starts)
            assert LETTERS[starts.index(best)] == row["answer"]
            assert starts.count(best) == 1


def test_the_event_after_is_the_next_one_and_what_repeats_is_not_asked() -> None:
    from test_egoavu_graph import clip

    from pipelines.egoavu import mcg

    texts = [
        "open drawer",
        "chop onion",
        "open drawer",
        "pour water",
        "peel carrot",
        "wash plate",
        "fold cloth",
    ]
    acts = [(f"a{n}", 6.0 * n, 6.0 * n + 4, t, t.split()[0], [t.split()[1]]) for n, t in enumerate(texts)]
    events = Events(mcg.build(clip(acts, []), 0.1), [], "action")
    found = {(c.kind, c.anchor.text if c.anchor else ""): c.right.text for c in neighbours(events, 7)}
    assert found == {
        ("after", "pour water"): "peel carrot",
        ("after", "peel carrot"): "wash plate",
        ("after", "wash plate"): "fold cloth",
        ("before", "peel carrot"): "pour water",
        ("before", "wash plate"): "peel carrot",
        ("before", "fold cloth"): "wash plate",
    }


def test_two_events_at_once_are_not_asked_about() -> None:
    from test_egoavu_graph import clip

    from pipelines.egoavu import mcg

    texts = ["chop onion", "pour water", "peel carrot", "wash plate", "fold cloth", "zip coat"]
    starts = [0.0, 6.0, 6.0, 20.0, 30.0, 40.0]
    acts = [
        (f"a{n}", s, s + 4, t, t.split()[0], [t.split()[1]])
        for n, (s, t) in enumerate(zip(starts, texts, strict=True))
    ]
    found = neighbours(Events(mcg.build(clip(acts, []), 0.1), [], "action"), 7)
    assert not [c for c in found if c.kind == "after" and c.anchor and c.anchor.text == "chop onion"]


def test_a_no_is_about_something_that_happens_elsewhere_and_nothing_here_resembles(demo: Workspace) -> None:
    known = nodes(demo)
    graphs = {r["clip_id"]: r for r in demo.rows("graph").iter_rows(named=True)}
    negatives = [r for r in asked(demo, "AVH") if r["answer"] == "no"]
    assert len(negatives) > 15
    for row in negatives:
        node, here = known[row["about"]], graphs[row["clip_id"]]
        home = graphs[node.node_id.rsplit("/", 1)[0]]
        assert home["setting"] == here["setting"]
        assert home["clip_id"] != here["clip_id"]
        assert here["exhaustive"][row["modality"]]
        assert row["evidence"][0] == f"{row['clip_id']}/exhaustive/{row['modality']}"
        kinds = {
            "action": ("action",),
            "object": ("object", "background_object"),
            "sound": ("foreground_sound", "background_sound"),
        }
        texts = [n["text"] for n in here["nodes"] if n["kind"] in kinds[row["modality"]]]
        if row["modality"] == "object":
            assert not any(related_nouns(node.text, t) for t in texts)
        elif row["modality"] == "sound":
            assert not any(related_sounds(node.text, t) for t in texts)
        else:
            assert node.text not in texts


def test_a_sound_is_called_absent_only_where_every_sound_has_a_class(demo: Workspace) -> None:
    rows = [r for r in asked(demo, "AVH") if r["video_id"] == "H02_01" and r["modality"] == "sound"]
    assert [r["answer"] for r in sorted(rows, key=lambda r: r["answer"])] == ["no", "yes"]
    for row in rows:  # uncategorised sounds: 40.2 to 40.9 and 55.0 to 56.4 s
        assert (row["start_s"], row["end_s"]) == (2.0, 40.2)
        assert "between 0 and 38.2 s" in row["question"]
    for row in asked(demo, "SSA"):
        if row["video_id"] == "H02_01":
            assert not (row["start_s"] < 40.9 and row["end_s"] > 40.2)


def test_an_answer_about_sounds_counts_them_and_gives_each_its_source(demo: Workspace) -> None:
    row = next(
        r
        for r in asked(demo, "SSA")
        if r["clip_id"] == "workshop_shelf" and (r["start_s"], r["end_s"]) == (30, 40)
    )
    assert row["answer"].startswith("Three distinct sounds could be heard. ")
    assert "A sawing sound was made when the camera wearer sawed the plank in half." in row["answer"]
    assert "Music from a radio was in the background, from no visible source." in row["answer"]
    assert "A sanding sound was made when the camera wearer sanded the edge." in row["answer"]


def test_every_answer_rests_on_nodes_of_the_graph_and_on_rows_before(demo: Workspace) -> None:
    known = set(nodes(demo))
    before = set(demo.rows("graph")["row_id"]) | set(demo.rows("narrate")["row_id"])
    for row in demo.rows("questions").iter_rows(named=True):
        assert row["evidence"]
        assert all(i in known or "/exhaustive/" in i for i in row["evidence"])
        assert row["parents"]
        assert set(row["parents"]) <= before


def test_yes_and_no_are_even_in_each_split_and_modality(demo: Workspace) -> None:
    counts = Counter((r["split"], r["modality"], r["answer"]) for r in asked(demo, "AVH"))
    for split, modality, _ in counts:
        assert counts[split, modality, "yes"] == counts[split, modality, "no"]


def test_letters_are_even_in_each_split_modality_and_kind(demo: Workspace) -> None:
    rows = asked(demo, "TR")
    for part in (("split",), ("split", "modality"), ("split", "modality", "kind")):
        counts = Counter((tuple(r[c] for c in part), r["answer"]) for r in rows)
        for group in {g for g, _ in counts}:
            of = [counts[group, letter] for letter in LETTERS]
            assert max(of) - min(of) <= 1, (group, of)


def test_a_wearer_is_in_one_split(demo: Workspace) -> None:
    for key in ("wearer", "video_id"):
        pairs = demo.rows("questions").select(key, "split").unique()
        assert pairs[key].n_unique() == len(pairs)
    assert set(demo.rows("questions")["split"]) == {"train", "bench"}


groups = st.tuples(st.sampled_from(["train", "bench"]), st.sampled_from("xyz"))


@given(st.dictionaries(st.text(min_size=1, max_size=5), groups, max_size=60), st.integers(0, 9), st.randoms())
def test_places_are_even_whatever_the_order(found: dict[str, tuple[str, str]], seed: int, rng: Any) -> None:
    questions = [(group, key) for key, group in found.items()]
    places = deal(questions, seed)
    rng.shuffle(questions)
    assert deal(questions, seed) == places
    for some in (set(found), *({k for k, g in found.items() if g == group} for group in set(found.values()))):
        counts = Counter(places[k] for k in some)
        assert max(counts[p] for p in range(4)) - min(counts[p] for p in range(4)) <= 1


def test_a_split_is_a_function_of_its_key() -> None:
    keys = [f"v{n}" for n in range(2000)]
    bench = [k for k in keys if split_of(k, 7, 0.25) == "bench"]
    assert 440 < len(bench) < 560
    assert {split_of(k, 7, 0.0) for k in keys} == {"train"}
    assert {split_of(k, 7, 1.0) for k in keys} == {"bench"}


def test_one_more_video_changes_no_question_of_the_others_but_the_place_of_its_options(
    workspace: Callable[..., Workspace], demo: Workspace
) -> None:
    w = workspace(demo.raw)
    with (w.raw / "more.jsonl").open("w", encoding="utf-8") as f:
        import json

        f.write(json.dumps(scene(setting="attic")) + "\n")
    w.run()
    old = {r["row_id"]: r for r in demo.rows("questions").to_dicts()}
    new = {r["row_id"]: r for r in w.rows("questions").to_dicts()}
    assert set(old) < set(new)
    for row_id, row in old.items():
        assert new[row_id]["question"] == row["question"]
        assert sorted(new[row_id]["options"]) == sorted(row["options"])
        assert new[row_id]["split"] == row["split"]


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("questions", {"window_s": 0}),
        ("questions", {"bench_share": 2}),
        ("narrate", {"window_s": -1}),
        ("ingest", {"shortest_s": 400}),
        ("ingest", {"epic_exhaustive": ["smell"]}),
        ("filter", {"window": 0}),
    ],
)
def test_an_impossible_parameter_is_refused(
    workspace: Callable[..., Workspace], demo: Workspace, section: str, values: dict[str, Any]
) -> None:
    from pipelines.errors import ConfigError

    w = workspace(demo.raw)
    shutil.copytree(demo.root / "data" / "egoavu", w.root / "data" / "egoavu")
    w.params["egoavu"][section] = values
    with pytest.raises(ConfigError, match=f"egoavu.{section}"):
        w.run(section)
