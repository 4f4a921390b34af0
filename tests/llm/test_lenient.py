"""What a model wrote around and between its JSON is overlooked; what it did not write is not made up."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.errors import ConfigError
from pipelines.llm.coercion import form_of
from pipelines.llm.lenient import heard, same, strict
from pipelines.llm.structured import reading

PERSON = form_of(
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
)
ANN = {"name": "Ann", "age": 7}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PROSE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{[`~"), max_size=20).filter(
    lambda text: "</think>" not in text
)


def leaf() -> st.SearchStrategy[tuple[dict[str, Any], Any]]:
    """(schema, a value of it)."""
    whole = st.integers(-(10**20), 10**20)
    return st.one_of(
        TEXTS.map(lambda v: ({"type": "string"}, v)),
        whole.map(lambda v: ({"type": "integer"}, v)),
        st.floats(allow_nan=False, allow_infinity=False).map(lambda v: ({"type": "number"}, v)),
        st.booleans().map(lambda v: ({"type": "boolean"}, v)),
        st.just(({"type": "null"}, None)),
        TEXTS.map(lambda v: ({"enum": [v, v + "!", 3]}, v)),
        whole.map(lambda v: ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, v)),
    )


def grown(inner: st.SearchStrategy[tuple[dict[str, Any], Any]]) -> st.SearchStrategy[Any]:
    objects = st.dictionaries(TEXTS, inner, max_size=4).map(
        lambda d: (
            {"type": "object", "properties": {k: s for k, (s, _) in d.items()}, "required": sorted(d)},
            {k: v for k, (_, v) in d.items()},
        )
    )
    lists = st.lists(inner, max_size=4).map(
        lambda pairs: (
            {"type": "array", **({"prefixItems": [s for s, _ in pairs]} if pairs else {})},
            [v for _, v in pairs],
        )
    )
    return objects | lists


VALUES = st.recursive(leaf(), grown, max_leaves=8)
CONTAINERS = grown(VALUES)


def sloppy(value: Any, draw: Any) -> str:
    """`value` as a careless writer spells it."""
    gap = draw(st.sampled_from(["", " ", "\n", " // so\n", "/* so */"]))
    comma = draw(st.sampled_from(["", ",", " ,\n"]))
    if isinstance(value, dict):
        items = [f"{sloppy(k, draw)}{gap}:{gap}{sloppy(v, draw)}" for k, v in value.items()]
    elif isinstance(value, list):
        items = [sloppy(v, draw) for v in value]
    else:
        return str(
            draw(st.sampled_from([json.dumps(value), json.dumps(value, ensure_ascii=False), repr(value)]))
        )
    inside = f"{gap},".join(items) + (comma if items else "") + gap
    return f"{{{inside}}}" if isinstance(value, dict) else f"[{inside}]"


@given(VALUES, st.data())
@settings(max_examples=150, deadline=None)
def test_a_value_in_a_fence_or_alone_comes_back_however_it_is_spelt(case: Any, data: st.DataObject) -> None:
    schema, value = case
    written = sloppy(value, data.draw)
    fence = data.draw(st.sampled_from(["{}", "```json\n{}\n```", "```\n{}\n```\n", "<think>{{</think>\n{}"]))
    got = reading(fence.format(written), form_of(schema))
    assert got.fault == "" and same(got.value, value)


@given(CONTAINERS, PROSE, PROSE, st.data())
@settings(max_examples=150, deadline=None)
def test_an_object_or_list_in_prose_comes_back(
    case: Any, before: str, after: str, data: st.DataObject
) -> None:
    schema, value = case
    got = reading(f"{before}\n{sloppy(value, data.draw)}\n{after}", form_of(schema))
    assert got.fault == "" and same(got.value, value)


@given(VALUES)
@settings(max_examples=100, deadline=None)
def test_json_to_the_letter_needs_no_step_and_keeps_its_value(case: Any) -> None:
    schema, value = case
    got = reading(json.dumps(value), form_of(schema))
    assert got.fault == "" and got.steps == () and got.value == value


@given(st.text(max_size=200) | st.text("{}[]\"':,\\`/*u0-1eE.truefalsnNT \n", max_size=80))
@example("[" * 3000)
@example('{"a":' * 3000)
@example("1" * 5000)
@example('{"a": 1e999}')
@example('"\\ud800"')
@example("-")
@settings(max_examples=300, deadline=None)
def test_no_text_raises(text: str) -> None:
    for form in (PERSON, form_of({"type": "integer"}), form_of({})):
        got = reading(text, form)
        assert got.fault or not form.fault(got.value)


@given(CONTAINERS, st.data())
@settings(max_examples=150, deadline=None)
def test_a_text_that_breaks_off_gives_no_value(case: Any, data: st.DataObject) -> None:
    written = json.dumps(case[1])
    cut = data.draw(st.integers(1, len(written) - 1))
    assert heard(written[:cut]).found == ()


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ('{"name": "Ann", "age": "7"}', ("respelt",)),
        ('{"name": "Ann", "age": 7.0}', ()),
        ("{'name': 'Ann', 'age': 7,}", ("quotes", "trailing commas")),
        ('Sure! {"name": "Ann", "age": 7} Anything else?', ("prose",)),
        ('As [1] says, {name: "Ann", age: 7}', ("prose", "bare keys")),
        ('First {"name": "Ann", "age": 7}, again {"age": 7, "name": "Ann"}', ("prose",)),
        ('Such as {"name": "Bob", "age": 1}:\n```json\n{"name": "Ann", "age": 7}\n```', ("fence",)),
        ('"{\\"name\\": \\"Ann\\", \\"age\\": 7}"', ("quoted",)),
        ('<think>{"name": "Bob", "age": 1}?</think>{"name": "Ann", "age": 7}', ("thought",)),
        ("{“name”: “Ann”, “age”: 7}", ("quotes",)),
    ],
)
def test_what_was_overlooked_is_named(text: str, steps: tuple[str, ...]) -> None:
    got = reading(text, PERSON)
    assert (got.value, got.steps, got.fault) == (ANN, steps, "")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("I cannot do that.", "no JSON in it"),
        ('{"name": "Ann", "age": 7', "the JSON is broken or breaks off"),
        ('[{"name": "Ann", "age": 7}, {"name": "B', "the JSON is broken or breaks off"),
        ('{"it": {"name": "Ann", "age": 7}, oops}', "the JSON is broken or breaks off"),
        ('{"name": "Ann", "age": 7} or {"name": "Bob", "age": 7}', "2 values fit the schema and differ"),
        ('{"name": "Ann", "age": "seven"}', "at $.age: 'seven' is not of type 'integer'"),
        ('{"name": "Ann", "age": 7.5}', "at $.age: 7.5 is not of type 'integer'"),
        ('{"name": "Ann"}', "at $: 'age' is a required property"),
        ('{"name": "Ann", "name": "Bob", "age": 7}', "the JSON is broken or breaks off"),
        ('{"name": "Ann", "age": NaN}', "the JSON is broken or breaks off"),
    ],
)
def test_what_is_not_said_is_not_made_up(text: str, fault: str) -> None:
    assert reading(text, PERSON).fault == fault


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "12", "12"),
        ({"type": ["string", "null"]}, '"null"', "null"),
        ({"type": ["integer", "null"]}, '"null"', None),
        ({"type": "boolean"}, '" TRUE "', True),
        ({"type": "number"}, '"-1.5e3"', -1500.0),
        ({"enum": ["yes", "no"]}, '" Yes."', None),
        ({"enum": ["yes", "no"]}, '" Yes "', "yes"),
        ({"enum": [1, 2]}, '"2"', 2),
        ({"const": 5}, '"5"', 5),
        ({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, '"false"', False),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}, '"3"', 3),
        ({"items": {"type": "integer"}, "type": "array"}, '["1", 2, "3"]', [1, 2, 3]),
        ({"type": "integer"}, "true", None),
    ],
)
def test_a_value_is_respelt_only_where_nothing_is_lost(schema: dict, text: str, value: Any) -> None:
    got = reading(text, form_of(schema))
    refused = value is None and "null" not in str(schema)
    assert bool(got.fault) == refused
    assert refused or (type(got.value), got.value) == (type(value), value)


def test_a_schema_that_refers_to_itself_ends() -> None:
    tree = {
        "type": "object",
        "properties": {"left": {"$ref": "#"}, "n": {"type": "integer"}},
        "required": ["n"],
    }
    assert reading('{"n": "1", "left": {"n": "2"}}', form_of(tree)).value == {"n": 1, "left": {"n": 2}}
    assert reading("5", form_of({"$ref": "#"})).fault


@pytest.mark.parametrize(
    "schema", [{"type": "thing"}, {"type": "object", "properties": 3}, {"type": {1, 2}}, {"enum": [object()]}]
)
def test_what_is_no_schema_is_said_before_anything_is_asked(schema: dict) -> None:
    with pytest.raises(ConfigError, match="schema"):
        form_of(schema)


def test_a_schema_is_never_fetched() -> None:
    with pytest.raises(ConfigError, match="refers to nothing"):
        reading("1", form_of({"$ref": "http://localhost:1/schema.json"}))


def test_half_a_surrogate_pair_is_no_text() -> None:
    assert strict('"\\ud83d\\ude00"') == "😀"
    with pytest.raises(ValueError):
        strict('"\\ud83d"')
