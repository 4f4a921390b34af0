"""Every field is either in the key or on the list of what is left out, and acts so."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pipelines.errors import ConfigError
from pipelines.llm import request as module
from pipelines.llm.request import IN_KEY, LEFT_OUT, Media, Request, Sampling, canonical, request_key

WEIGHTS = "sha256:" + "0" * 64
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).map(
    lambda t: unicodedata.normalize("NFC", t)
)
numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, values, min_size=1, max_size=3)
shares = st.integers(1, 1000).map(lambda n: n / 1000)
media = st.builds(
    Media,
    kind=st.sampled_from(["image", "audio", "video"]),
    sha256=st.integers(0, 2**256 - 1).map(lambda n: f"{n:064x}"),
    mime=st.sampled_from(["image/png", "audio/wav", "video/mp4", "image/svg+xml"]),
    ref=texts,
)
OF_SAMPLING: dict[str, st.SearchStrategy[Any]] = {
    "max_tokens": st.integers(1, 4096),
    "temperature": st.integers(0, 2000).map(lambda n: n / 1000),
    "top_p": shares,
    "top_k": st.none() | st.integers(0, 100),
    "stop": st.lists(texts, max_size=2).map(tuple),
    "min_p": shares,
    "presence_penalty": st.integers(-200, 200).map(lambda n: n / 100),
    "frequency_penalty": st.integers(-200, 200).map(lambda n: n / 100),
    "repetition_penalty": shares,
    "logprobs": st.none() | st.integers(0, 20),
}
OF_REQUEST: dict[str, st.SearchStrategy[Any]] = {
    "kind": st.sampled_from(["completion", "chat", "embedding"]),
    "model": texts,
    "sampling": st.none() | st.builds(Sampling, **OF_SAMPLING),
    "prompt": st.none() | texts,
    "messages": st.lists(
        st.tuples(
            st.sampled_from(["system", "user"]), texts | st.lists(texts | media, max_size=3).map(tuple)
        ),
        max_size=3,
    ).map(tuple),
    "schema": st.none() | objects,
    "sample": st.integers(0, 64),
    "seed": st.none() | st.integers(0, 2**31 - 1),
    "row": texts,
    "purpose": texts,
    "tools": st.lists(objects, max_size=2).map(tuple),
    "extra": st.none() | objects.filter(lambda named: not module._OWN.intersection(named)),
}
requests = st.builds(Request, **OF_REQUEST)
quick = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)


def key(request: Request) -> str:
    return request_key(request, WEIGHTS)


def same(left: Any, right: Any) -> bool:
    """Whether two values are one by JSON's meaning: True is not 1, but 1.0 is."""
    return json.dumps(module._plain(left), sort_keys=True) == json.dumps(module._plain(right), sort_keys=True)


def test_every_field_is_on_exactly_one_of_the_two_lists() -> None:
    ours = {f"{c.__name__}.{f.name}" for c in (Request, Media) for f in fields(c)}
    listed = {name for name in IN_KEY if name not in ("identity", "Sampling")} | {"Request.sampling"}
    left_out = {name for name in LEFT_OUT if "." in name}
    assert listed | left_out == ours and not listed & left_out
    assert set(OF_REQUEST) == {f.name for f in fields(Request)}  # so that all of them are tried below
    assert set(OF_SAMPLING) == {f.name for f in fields(Sampling)}


@pytest.mark.parametrize("name", [n for n in OF_REQUEST if f"Request.{n}" not in LEFT_OUT])
@quick
@given(data=st.data())
def test_another_value_of_a_field_is_another_key(name: str, data: st.DataObject) -> None:
    request, value = data.draw(requests), data.draw(OF_REQUEST[name])
    if name == "sampling":
        assume(value != request.sampling)
    elif name in ("schema", "extra", "tools"):
        assume(not same(value, getattr(request, name)))
    else:
        assume(value != getattr(request, name))
    assert key(replace(request, **{name: value})) != key(request)


@pytest.mark.parametrize("name", OF_SAMPLING)
@quick
@given(data=st.data())
def test_another_value_of_a_sampling_parameter_is_another_key(name: str, data: st.DataObject) -> None:
    sampling, value = data.draw(st.builds(Sampling, **OF_SAMPLING)), data.draw(OF_SAMPLING[name])
    assume(value != getattr(sampling, name))
    one, other = (Request("completion", "m", s, "x") for s in (sampling, replace(sampling, **{name: value})))
    assert key(one) != key(other)


@quick
@given(requests, texts, texts, texts)
def test_what_is_left_out_does_not_change_the_key(
    request: Request, model: str, row: str, purpose: str
) -> None:
    assert key(replace(request, model=model, row=row, purpose=purpose)) == key(request)


@quick
@given(media, media)
def test_a_part_is_its_bytes_and_kind_wherever_they_lie(one: Media, other: Media) -> None:
    asked = [key(Request("chat", "m", messages=(("user", ("look", part)),))) for part in (one, other)]
    assert (asked[0] == asked[1]) is (one == other)
    moved = replace(one, ref=other.ref)
    assert key(Request("chat", "m", messages=(("user", ("look", moved)),))) == asked[0]


def respelled(value: Any, draw: Any) -> str:
    """`value` as another JSON text: keys in any order, numbers and accents in any spelling."""
    if isinstance(value, dict):
        pairs = draw(st.permutations(list(value.items())))
        return "{" + ",".join(f"{respelled(k, draw)}: {respelled(v, draw)}" for k, v in pairs) + "}"
    if isinstance(value, list):
        return "[" + " , ".join(respelled(v, draw) for v in value) + "]"
    if isinstance(value, str):
        form = draw(st.sampled_from(["NFC", "NFD"]))
        return json.dumps(unicodedata.normalize(form, value), ensure_ascii=draw(st.booleans()))
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
        return draw(st.sampled_from([f"{value}", f"{value}.0", f"{value}e0", f"{value}.00E+0"]))
    return json.dumps(value)


@quick
@given(data=st.data())
def test_another_spelling_of_the_json_is_the_same_key(data: st.DataObject) -> None:
    request = data.draw(requests)
    other = {
        name: None if value is None else json.loads(respelled(value, data.draw))
        for name, value in (
            ("schema", request.schema),
            ("extra", request.extra),
            ("tools", list(request.tools)),
            ("prompt", request.prompt),
        )
    }
    other["tools"] = tuple(other["tools"])
    assert canonical(replace(request, **other), WEIGHTS) == canonical(request, WEIGHTS)


@quick
@given(requests)
def test_the_canonical_text_is_its_own_canonical_form(request: Request) -> None:
    text = canonical(request, WEIGHTS)
    again = json.dumps(json.loads(text), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    assert again == text


def test_keys_of_stored_answers_stay_what_they_were() -> None:
    sampling = Sampling(16, temperature=0.7, top_p=1e-05, stop=("\n",))
    schema = {"type": ["object", "null"], "b": 1e-07, "a": 2.0, "n\u00e9": 2**80, "t": (1, True)}
    asked = Request("completion", "m", sampling, 'caf\u00e9 "\\\x07\u2028', seed=7, sample=1, row="r")
    chat = Request("chat", "m", Sampling(4), messages=(("user", "hi"),), schema=schema)
    plain = Request("embedding", "m", prompt="query: x")
    assert [key(r) for r in (asked, chat, plain)] == [
        "bd7dd43293056cbaf8c6abe0ab99f955f05fc66f287929331f6abd329ab7047b",
        "d2c9c81ac0fc03c0bb6d5d2daff13797e5b3bfe198af55a7452a506322429f6b",
        "e295e321ec3b6d32aaec365e50661f22c863eb5c73da69f9c454afe0a6fc9c6b",
    ]


def test_a_schema_changed_in_place_is_another_key() -> None:
    schema: dict[str, Any] = {"type": "object", "maxLength": 4}
    request = Request("completion", "m", Sampling(4), "x", schema=schema)
    before = key(request)
    schema["maxLength"] = 5
    assert key(request) != before


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        ({"extra": {"x": float("nan")}}, "holds the number nan"),
        ({"schema": {"x": [None, float("-inf")]}}, "holds the number -inf"),
        ({"tools": ({"x": object()},)}, "holds what JSON cannot say"),
        ({"schema": {"\u00e9": 1, "e\u0301": 2}}, "two names of one mapping"),
        ({"extra": {"n": 3}}, "may not name 'n'"),
        ({"extra": {"temperature": 1}}, "may not name 'temperature'"),
    ],
)
def test_what_has_no_one_spelling_is_refused(odd: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        key(Request("completion", "m", Sampling(4), "x", **odd))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        ({"sha256": "ab"}, "media without a SHA-256"),
        ({"kind": "smell"}, "unknown kind of media 'smell'"),
        ({"mime": "png"}, "no media type: 'png'"),
    ],
)
def test_media_without_a_digest_kind_or_type_is_refused(odd: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        Media(**({"kind": "image", "sha256": "a" * 64, "mime": "image/png", "ref": "clips/1.png"} | odd))
    assert message in str(error.value) and "clips/1.png" in str(error.value)


@quick
@given(requests, st.text(max_size=8))
def test_the_quick_way_to_the_canonical_text_and_the_careful_one_agree(request: Request, odd: str) -> None:
    assert canonical(request, WEIGHTS) == module._piece_by_piece(request, WEIGHTS)
    asked = replace(request, prompt=odd, messages=(("user", odd), ("user", "\n\u0303" + odd)))
    assert canonical(asked, odd) == module._piece_by_piece(asked, odd)
