"""An edge is a claim: each names the annotations that it rests on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from egoavu_workspace import Workspace, scene
from hypothesis import given
from hypothesis import strategies as st

from pipelines.egoavu import mcg
from pipelines.egoavu.lexicon import related_nouns, related_sounds, verb_group


def clip(
    actions: list[tuple[Any, ...]], sounds: list[tuple[Any, ...]], things: tuple[str, ...] = ()
) -> dict[str, Any]:
    """A row of the filter: actions (id, start, end, text, verb, nouns), sounds (id, start, end, label)."""
    keys = ("id", "start_s", "end_s", "text", "verb", "nouns")
    return {
        "clip_id": "c",
        "video_id": "v",
        "start_s": 0.0,
        "end_s": 60.0,
        "actions": [dict(zip(keys, a, strict=True)) for a in actions],
        "sounds": [
            dict(zip(("id", "start_s", "end_s", "label", "description"), (*s, s[3]), strict=True))
            for s in sounds
        ],
        "background_objects": [{"text": t, "start_s": 0.0, "end_s": 60.0} for t in things],
    }


def edges(graph: mcg.Graph, kind: str) -> set[tuple[str, str]]:
    return {(e.source, e.target) for e in graph.edges if e.kind == kind}


CHOP = ("a1", 5.0, 15.0, "chop onion", "chop", ["onion"])
TAKE = ("a2", 14.0, 18.0, "take knife", "take", ["knife"])


def test_a_chopping_sound_comes_from_the_chopping_that_it_overlaps() -> None:
    graph = mcg.build(clip([CHOP, TAKE], [("s1", 6.0, 16.0, "cut / chop")]), 0.1)
    assert edges(graph, "sound-action") == {("c/sound:s1", "c/action:a1")}
    assert edges(graph, "sound-object") == {("c/sound:s1", "c/object:onion")}
    assert edges(graph, "next-action") == {("c/action:a1", "c/action:a2")}
    assert edges(graph, "action-object") == {
        ("c/action:a1", "c/object:onion"),
        ("c/action:a2", "c/object:knife"),
    }


def test_a_sound_that_no_action_overlaps_or_can_cause_is_in_the_background() -> None:
    sounds = [("s1", 20.0, 25.0, "cut / chop"), ("s2", 5.0, 15.0, "church bell"), ("s3", 5.0, 15.0, "gurgle")]
    graph = mcg.build(clip([CHOP, TAKE], sounds), 0.1)
    assert {n.text for n in graph.of(mcg.BACKGROUND)} == {"cut / chop", "church bell", "gurgle"}
    assert edges(graph, "sound-action") == set()


def test_material_decides_which_object_clatters() -> None:
    put = ("a3", 1.0, 4.0, "put sponge near plate", "put", ["sponge", "plate"])
    graph = mcg.build(
        clip([put], [("s1", 2.0, 3.0, "ceramic-only collision"), ("s2", 2.0, 3.0, "metal-only collision")]),
        0.1,
    )
    assert edges(graph, "sound-object") == {("c/sound:s1", "c/object:plate")}
    assert [n.text for n in graph.of(mcg.BACKGROUND)] == ["metal-only collision"]


def test_vague_noise_has_no_node_and_a_thing_in_use_is_no_background() -> None:
    graph = mcg.build(
        clip([CHOP], [("s1", 5.0, 9.0, "background"), ("s2", 5.0, 9.0, "breathing")], ("onion", "lamp")), 0.1
    )
    assert {(n.kind, n.text) for n in graph.nodes} == {
        ("action", "chop onion"),
        ("object", "onion"),
        ("background_object", "lamp"),
    }


def test_an_edge_keeps_the_ids_and_times_of_both_annotations() -> None:
    graph = mcg.build(clip([CHOP], [("s1", 6.0, 16.0, "cut / chop")]), 0.1)
    edge = next(e for e in graph.edges if e.kind == "sound-action")
    assert edge.evidence == (mcg.Evidence("s1", 6.0, 16.0), mcg.Evidence("a1", 5.0, 15.0))


spans = st.tuples(st.integers(0, 50), st.integers(1, 20)).map(lambda p: (float(p[0]), float(p[0] + p[1])))
deeds = st.sampled_from(
    [("chop", "onion"), ("open", "fridge"), ("put", "pan"), ("wash", "plate"), ("turn-on", "tap")]
)
labels = st.sampled_from(
    ["cut / chop", "water", "open / close", "metal-only collision", "rain", "unheard of", "human"]
)


@given(
    st.lists(st.tuples(spans, deeds), min_size=1, max_size=8), st.lists(st.tuples(spans, labels), max_size=8)
)
def test_no_edge_is_without_evidence_and_every_cause_overlaps_its_sound(
    acts: list[Any], heard: list[Any]
) -> None:
    row = clip(
        [(f"a{n}", *s, f"{v} {o}", v, [o]) for n, (s, (v, o)) in enumerate(acts)],
        [(f"s{n}", *s, label) for n, (s, label) in enumerate(heard)],
    )
    graph = mcg.build(row, 0.1)
    known = {a["id"]: a for a in [*row["actions"], *row["sounds"]]}
    nodes = {n.node_id for n in graph.nodes}
    for edge in graph.edges:
        assert edge.evidence
        assert {edge.source, edge.target} <= nodes
        for proof in edge.evidence:
            assert (proof.start_s, proof.end_s) == (
                known[proof.annotation_id]["start_s"],
                known[proof.annotation_id]["end_s"],
            )
        if edge.kind.startswith("sound-"):
            sound, action = edge.evidence
            assert min(sound.end_s, action.end_s) - max(sound.start_s, action.start_s) >= 0.1
    sounding = {e.source for e in graph.edges if e.kind == "sound-action"}
    assert sounding == {n.node_id for n in graph.of(mcg.FOREGROUND)}
    turned = {**row, "actions": row["actions"][::-1], "sounds": row["sounds"][::-1]}
    assert mcg.build(turned, 0.1) == graph


def test_a_clip_without_any_action_is_rejected(demo: Workspace) -> None:
    assert demo.rejected("graph")["reason"].to_list() == ["no_action"]
    assert demo.rejected("graph")["detail"].to_list() == ["garden_rest"]


def test_a_repetitive_video_is_rejected_with_its_score_and_length(demo: Workspace) -> None:
    row = demo.rejected("filter").row(0, named=True)
    assert (row["reason"], row["detail"]) == ("mattr", "ki-09: MATTR 0.0714 over 42 words")


def test_the_verdict_of_mattr_exceeds_tau_as_an_exact_fraction(workspace: Callable[..., Workspace]) -> None:
    # 10 words, 3 of them different: exactly 0.3
    texts = ["chop onion chop onion chop", "onion chop onion chop leek"]
    actions = [{"start": n * 5, "end": n * 5 + 4, "text": t, "nouns": []} for n, t in enumerate(texts)]
    w = workspace().scenes(scene(actions=actions)).run("ingest", "filter")
    assert w.rejected("filter")["reason"].to_list() == ["mattr"]
    w.params["egoavu"]["filter"] = {"tau": 0.299}
    assert w.run("filter").rows("filter")["mattr"].to_list() == [0.3]


@pytest.mark.parametrize(
    ("one", "other", "related"),
    [
        ("knife", "cutlery", True),
        ("teaspoon", "cutlery", True),
        ("chopping board", "board", True),
        ("door", "drawer", False),
        ("fridge", "freezer", True),
        ("saucepan", "pot", True),
        ("sauce", "soy sauce", True),
        ("knife", "fork", False),
        ("tomatoes", "tomato", False),
        ("spoons", "spoon", True),
        ("zither", "oboe", False),
    ],
)
def test_nouns_are_akin_by_synonym_kind_part_or_word(one: str, other: str, related: bool) -> None:
    assert related_nouns(one, other) is related
    assert related_nouns(other, one) is related


def test_sounds_of_one_family_could_be_one_sound() -> None:
    assert related_sounds("metal-only collision", "plastic / wood collision")
    assert related_sounds("water", "rain")
    assert not related_sounds("beep", "rain")


@pytest.mark.parametrize(
    ("verb", "group"),
    [("pick-up", "take"), ("turn-on", "turn-on"), ("turn", "adjust"), ("slice", "cut"), ("yodel", "yodel")],
)
def test_verbs_fall_into_groups_by_the_whole_then_by_the_head(verb: str, group: str) -> None:
    assert verb_group(verb) == group
