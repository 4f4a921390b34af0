"""Whatever an annotator writes is read, or refused with its column; it never breaks a step."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from egoavu_workspace import scene
from hypothesis import given
from hypothesis import strategies as st
from test_egoavu_graph import clip

from pipelines.egoavu import annotations as known
from pipelines.egoavu import mcg
from pipelines.egoavu.annotations import Fault
from pipelines.egoavu.fidelity import failed_check
from pipelines.egoavu.grammar import clip_text
from pipelines.egoavu.temporal import Events, neighbours, orderings
from pipelines.egoavu.timeline import Span, windows

plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
anything = st.recursive(
    plain, lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(max_size=5), some, max_size=3)
)
times = st.integers(0, 30) | plain
fields: dict[str, Any] = dict.fromkeys(("start", "end", "at"), times)
fields |= dict.fromkeys(("text", "label", "verb"), plain)
annotation = st.fixed_dictionaries({}, optional=fields)
changes = st.dictionaries(
    st.sampled_from(sorted(scene())), anything | st.lists(annotation, max_size=3), max_size=3
)


@given(changes)
def test_any_object_is_a_scene_or_a_fault_with_a_reason(changed: dict[str, Any]) -> None:
    try:
        got = known.scene(scene(**changed))
    except Fault as fault:
        assert fault.reason
        assert fault.column
        return
    assert got.span.length_s > 0
    for action in got.actions(None):
        assert action.text
        assert action.span.shared_s(got.span) > 0


columns = st.sampled_from(
    "narration_id start_timestamp stop_timestamp narration verb all_nouns class".split()
)


@given(
    st.dictionaries(columns, st.text(max_size=20) | st.sampled_from(["00:00:01.5", "['a:b', ':']", "[1]"]))
)
def test_any_row_is_an_annotation_or_a_fault_with_its_column(changed: dict[str, str]) -> None:
    row = {
        "narration_id": "n",
        "annotation_id": "s",
        "start_timestamp": "00:00:01.00",
        "stop_timestamp": "00:00:02.00",
        "narration": "cut leek",
        "verb": "cut",
        "all_nouns": "['leek']",
        "class": "cut / chop",
    } | changed
    for read in (known.narration, known.sound):
        try:
            got = read(row)
        except Fault as fault:
            assert fault.column in row
            continue
        assert got.span.start_s < got.span.end_s
        if isinstance(got, known.Action):
            assert all(noun.strip() for noun in got.nouns)


words = st.text(min_size=1, max_size=12).map(known.clean_text).filter(bool)


@given(
    st.lists(st.tuples(words, words, st.lists(words, max_size=2)), min_size=1, max_size=7),
    st.lists(words, max_size=4),
)
def test_any_words_make_a_graph_a_checked_narration_and_questions(
    acts: list[tuple[str, str, list[str]]], labels: list[str]
) -> None:
    row = clip(
        [(f"a{n}", 6.0 * n, 6.0 * n + 5, text, verb, nouns) for n, (text, verb, nouns) in enumerate(acts)],
        [(f"s{n}", 6.0 * n, 6.0 * n + 7, label) for n, label in enumerate(labels)],
        tuple(labels[:2]) if len(set(labels[:2])) == len(labels[:2]) else (),
    )
    graph = mcg.build(row, 0.1)
    failure = failed_check(clip_text(graph, windows(Span(0.0, 60.0), 10), Random(1)), graph)
    assert failure is None or failure.split(":")[0].isidentifier()
    for modality in ("action", "object", "sound"):
        events = Events(graph, [], modality)
        for choice in [*neighbours(events, 7), *orderings(events, 7)]:
            shown = [mcg.reading(n.kind, n.text, n.detail) for n in (choice.right, *choice.wrong)]
            assert len(set(shown)) == 4


@pytest.mark.parametrize("raw", [10**400, 1e300, float("nan"), float("inf"), 1_700_000_000])
def test_a_number_that_is_no_time_of_a_video_is_refused(raw: float) -> None:
    with pytest.raises(Fault) as caught:
        known.scene(scene(end=raw))
    assert (caught.value.reason, caught.value.column) == ("bad_time", "end")


def test_nouns_that_cannot_be_written_are_refused() -> None:
    row = {"narration_id": "n", "start_timestamp": "00:00:01", "stop_timestamp": "00:00:02"}
    with pytest.raises(Fault) as caught:
        known.narration({**row, "narration": "cut leek", "verb": "cut", "all_nouns": r"['\ud800']"})
    assert (caught.value.reason, caught.value.column) == ("bad_nouns", "all_nouns")
