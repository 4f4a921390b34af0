"""The key is the hash of all that can change the answer, and of nothing else."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import ConfigError
from pipelines.llm.backends.embedded import Embedded
from pipelines.llm.protocol import request_body
from pipelines.llm.request import Request, Sampling, canonical, request_key, seed_of

WEIGHTS = "sha256:" + "0" * 64
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
samplings = st.builds(
    Sampling,
    max_tokens=st.integers(1, 4096),
    temperature=st.floats(0, 1.5).map(lambda x: round(x, 3)),
    top_p=st.floats(0.001, 1).map(lambda x: round(x, 3)),
    top_k=st.none() | st.integers(1, 100),
    stop=st.lists(texts, max_size=2).map(tuple),
)
schemas = st.none() | st.dictionaries(texts, st.integers() | texts | st.booleans(), max_size=4)
requests = st.builds(
    Request,
    kind=st.sampled_from(["completion", "chat"]),
    model=st.just("m"),
    sampling=samplings,
    prompt=st.none() | texts,
    messages=st.lists(st.tuples(st.sampled_from(["system", "user"]), texts), max_size=3).map(tuple),
    schema=schemas,
    sample=st.integers(0, 64),
    seed=st.none() | st.integers(0, 2**31 - 1),
)


def changes(request: Request) -> list[Request]:
    """`request` with each answer-changing field changed in turn."""
    sampling = request.sampling
    assert sampling is not None
    other = [
        replace(sampling, max_tokens=sampling.max_tokens + 1),
        replace(sampling, temperature=sampling.temperature + 0.5),
        replace(sampling, top_p=sampling.top_p / 2 + 0.001 if sampling.top_p != 0.002 else 0.5),
        replace(sampling, top_k=(sampling.top_k or 0) + 1),
        replace(sampling, stop=(*sampling.stop, "end")),
    ]
    return [
        *(replace(request, sampling=s) for s in other),
        replace(request, kind="chat" if request.kind == "completion" else "completion"),
        replace(request, prompt=(request.prompt or "") + "?"),
        replace(request, messages=(*request.messages, ("user", "more"))),
        replace(request, schema={**(request.schema or {}), "a new name": 1}),
        replace(request, sample=request.sample + 1),
        replace(request, seed=(request.seed or 0) + 1),
    ]


@given(requests)
def test_a_change_of_any_field_that_can_change_the_answer_changes_the_key(request: Request) -> None:
    keys = [request_key(r, WEIGHTS) for r in [request, *changes(request)]]
    assert len(set(keys)) == len(keys)
    assert request_key(request, "sha256:" + "1" * 64) != keys[0]


@given(requests, texts, texts)
def test_who_asks_and_under_which_name_does_not_change_the_key(request: Request, row: str, name: str) -> None:
    asked = replace(request, row=row, purpose=name, model=name)
    assert request_key(asked, WEIGHTS) == request_key(request, WEIGHTS)


@given(requests)
def test_spelling_does_not_change_the_key_nor_what_is_sent(request: Request) -> None:
    sampling = request.sampling
    assert sampling is not None
    respelled = replace(
        request,
        prompt=None if request.prompt is None else unicodedata.normalize("NFD", request.prompt),
        schema=None if request.schema is None else dict(reversed(request.schema.items())),
        sampling=replace(sampling, temperature=float(sampling.temperature), max_tokens=sampling.max_tokens),
    )
    assert request_key(respelled, WEIGHTS) == request_key(request, WEIGHTS)
    ours, theirs = (request_body(canonical(r, WEIGHTS), "m") for r in (request, respelled))
    assert ours == theirs


def test_one_and_one_point_nought_are_one_number() -> None:
    whole, spelled = (Request("completion", "m", Sampling(4, temperature=t), "x") for t in (1, 1.0))
    assert request_key(whole, WEIGHTS) == request_key(spelled, WEIGHTS)


def test_composed_and_decomposed_accents_are_one_prompt() -> None:
    composed, decomposed = (Request("completion", "m", prompt=p) for p in ("caf\u00e9", "cafe\u0301"))
    assert request_key(composed, WEIGHTS) == request_key(decomposed, WEIGHTS)


def test_the_body_says_what_the_embedded_server_would_else_default() -> None:
    body = orjson.loads(
        request_body(canonical(Request("completion", "m", Sampling(4), "x"), WEIGHTS), "m", Embedded.unsaid)
    )
    assert body["top_k"] == 0 and body["min_p"] == 0.0 and body["temperature"] == 0 and body["top_p"] == 1
    told = canonical(Request("completion", "m", Sampling(4, top_k=5), "x"), WEIGHTS)
    assert orjson.loads(request_body(told, "m", Embedded.unsaid))["top_k"] == 5


def test_a_seed_depends_on_run_row_and_sample_alone() -> None:
    assert seed_of(1, "row", 0) == seed_of(1, "row", 0)
    assert len({seed_of(r, k, s) for r in (1, 2) for k in ("a", "b") for s in (0, 1)}) == 8
    assert all(0 <= seed_of(1, str(n), 0) < 2**31 for n in range(200))


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1, is 0"),
        ({"temperature": 2.5}, "temperature must be in [0, 2], is 2.5"),
        ({"temperature": float("nan")}, "temperature must be in [0, 2], is nan"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, is 0.0"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1, is 1.5"),
    ],
)
def test_sampling_that_no_model_can_do_is_refused_before_anything_is_asked(
    odd: dict[str, float], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        Sampling(**{"max_tokens": 4, **odd})  # type: ignore[arg-type]
    assert message in str(error.value)
