"""A narration says what the graph holds, in order, and the checks see each way in which it could not."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from egoavu_workspace import Workspace
from hypothesis import given
from hypothesis import strategies as st
from test_egoavu_graph import clip

from pipelines.egoavu import mcg
from pipelines.egoavu.english import infinitive, listed, told, with_a
from pipelines.egoavu.fidelity import failed_check
from pipelines.egoavu.grammar import clip_text, inside, window_text
from pipelines.egoavu.timeline import Span, windows

KITCHEN = clip(
    [
        ("a1", 1.0, 4.0, "open drawer", "open", ["drawer"]),
        ("a2", 6.0, 14.0, "chop onion", "chop", ["onion"]),
        ("a3", 16.0, 20.0, "pour water", "pour", ["water"]),
    ],
    [("s1", 7.0, 13.0, "cut / chop"), ("s2", 15.0, 25.0, "rain")],
    ("lamp",),
)
GRAPH = mcg.build(KITCHEN, 0.1)
GOOD = (
    "The camera wearer opened the drawer, then chopped the onion, making a cutting or chopping sound. "
    "A lamp could be seen nearby. In the background, the sound of rain could be heard. "
    "Next, the wearer poured the water."
)


def test_a_faithful_text_passes() -> None:
    assert failed_check(GOOD, GRAPH) is None


@pytest.mark.parametrize(
    ("old", "new", "check"),
    [
        ("opened the drawer, then ", "", "action_order"),
        (
            "opened the drawer, then chopped the onion",
            "chopped the onion, then opened the drawer",
            "action_order",
        ),
        (", making a cutting or chopping sound", "", "sound_source"),
        ("poured the water.", "poured the water, making a cutting or chopping sound.", "sound_source"),
        ("opened the drawer,", "opened the drawer, with the sound of rain,", "sound_source"),
        (" In the background, the sound of rain could be heard.", "", "background_sound"),
        ("the sound of rain could", "the sound of rain and the sound of rain could", "background_sound"),
        ("the sound of rain could", "birdsong could", "foreign_words"),
        (" A lamp could be seen nearby.", "", "background_object"),
        ("A lamp could be seen", "A lamp and a lamp could be seen", "background_object"),
        ("poured the water", "poured the milk", "foreign_words"),
        ("Next, the", "Next, happily the", "foreign_words"),
        ("poured the water.", "poured the water, then opened the drawer.", "action_order"),
        ("The camera wearer opened", "From 20 to 30 s, the camera wearer opened", "time"),
    ],
)
def test_each_way_to_be_unfaithful_has_its_check(old: str, new: str, check: str) -> None:
    assert GOOD.count(old) == 1
    failure = failed_check(GOOD.replace(old, new), GRAPH)
    assert failure is not None
    assert failure.split(":")[0] == check


def test_a_window_holds_what_overlaps_it_and_the_cause_of_a_sound_in_it() -> None:
    row = clip([("a1", 1.0, 9.0, "chop onion", "chop", ["onion"])], [("s1", 8.0, 12.0, "cut / chop")])
    part = inside(mcg.build(row, 0.1), Span(10.0, 20.0))
    assert {n.text for n in part.nodes} == {"chop onion", "onion", "cut / chop"}
    assert not inside(mcg.build(row, 0.1), Span(20.0, 30.0)).nodes


texts = st.sampled_from(
    [
        ("chop onion", "chop", "onion"),
        ("open tap", "turn-on", "tap"),
        ("put pan away", "put-away", "pan"),
        ("still fry egg", "fry", "egg"),
        ("plate on pan", "place", "pan"),
        ("put lid. on pan", "put", "lid"),
        ("stir", "stir", "spoon"),
    ]
)
spans = st.tuples(st.integers(0, 55_000), st.integers(200, 15_000)).map(
    lambda p: (p[0] / 1000, min(60.0, round((p[0] + p[1]) / 1000, 3)))
)
labels = st.sampled_from(
    ["cut / chop", "water", "metal-only collision", "rain", "odd hooting", "stir / mix / whisk"]
)
things = st.lists(st.sampled_from(["lamp", "open window", "flower pots", "apron"]), unique=True)


@given(
    st.lists(st.tuples(spans, texts), min_size=1, max_size=9),
    st.lists(st.tuples(spans, labels), max_size=9),
    things,
    st.integers(),
)
def test_what_the_grammar_says_passes_every_check(
    acts: list[Any], heard: list[Any], seen: list[str], seed: int
) -> None:
    row = clip(
        [(f"a{n}", *s, t, v, [o]) for n, (s, (t, v, o)) in enumerate(acts)],
        [(f"s{n}", *s, label) for n, (s, label) in enumerate(heard)],
        tuple(seen),
    )
    graph = mcg.build(row, 0.1)
    parts = windows(Span(0.0, 60.0), 10)
    assert failed_check(clip_text(graph, parts, Random(seed)), graph) is None
    for window in parts:
        part = inside(graph, window)
        text = window_text(part, Random(seed))
        if text:
            assert failed_check(text, part) is None
        else:
            assert not part.of(mcg.ACTION, mcg.FOREGROUND, mcg.BACKGROUND)


def test_a_text_in_which_thing_and_sound_read_alike_is_rejected(demo: Workspace) -> None:
    row = demo.rejected("narrate").row(0, named=True)
    assert row["reason"] == "background_sound"
    assert row["raw"].count("doorbell") == 2


def test_the_narrations_of_the_scenes_vary_in_their_words(demo: Workspace) -> None:
    texts = [w["text"] for row in demo.rows("narrate")["windows"] for w in row if w["text"]]
    texts += demo.rows("narrate")["narration"].to_list()
    for word in ("making", "which made", "with", "and after that", "and then", "Next", "nearby", "In view"):
        assert any(word in t for t in texts), word


def test_the_seed_changes_the_words_and_nothing_that_they_say() -> None:
    parts = windows(Span(0.0, 60.0), 10)
    found = {clip_text(GRAPH, parts, Random(seed)) for seed in range(50)}
    assert len(found) > 20
    assert {failed_check(text, GRAPH) for text in found} == {None}


@pytest.mark.parametrize(
    ("text", "verb", "past", "asked"),
    [
        ("put lid on pot", "put-on", "put the lid on the pot", "put the lid on the pot"),
        ("pick up knife", "pick-up", "picked up the knife", "pick up the knife"),
        ("turn water off", "turn-off", "turned the water off", "turn the water off"),
        ("stir rice", "stir", "stirred the rice", "stir the rice"),
        ("open tap", "turn-on", "opened the tap", "open the tap"),
        ("dry hands", "dry", "dried the hands", "dry the hands"),
        ("still fry egg", "fry", "still fried the egg", "fry the egg"),
        ("continue chopping onion", "chop", "continued chopping the onion", "continue chopping the onion"),
        ("put bag of coffee", "put", "put the bag of coffee", "put the bag of coffee"),
        ("plate on pan", "place", 'did this: "plate on pan"', 'do this: "plate on pan"'),
    ],
)
def test_telegrams_become_english(text: str, verb: str, past: str, asked: str) -> None:
    assert told(text, verb) == past
    assert infinitive(text, verb) == asked


def test_things_get_the_article_that_they_need() -> None:
    assert [with_a(n) for n in ("lamp", "apron", "flower pots", "soy milk", "glass")] == [
        "a lamp",
        "an apron",
        "flower pots",
        "soy milk",
        "a glass",
    ]
    assert listed(["a", "b", "c"]) == "a, b and c"
