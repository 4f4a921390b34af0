"""A key is found in whatever spelling an endpoint sends it back, and a word that is no key is left alone."""

from __future__ import annotations

import base64
import html
import json
import traceback
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from questions import question, settings

from pipelines.errors import ConfigError
from pipelines.llm.client import open_client
from pipelines.llm.secret import SHORTEST, Secret

KEYS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=SHORTEST, max_size=40)
TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=9)
SPELLINGS = [
    str, html.escape, json.dumps, lambda t: json.dumps(t).replace("/", "\\/"),
    quote, lambda t: quote(t, safe=""), quote_plus, repr,
    lambda t: base64.b64encode(t.encode()).decode(), lambda t: base64.urlsafe_b64encode(t.encode()).decode(),
]  # fmt: skip


@given(KEYS, TEXTS, TEXTS, st.integers(0, len(SPELLINGS) - 1))
def test_no_spelling_of_a_text_with_the_key_is_left(key: str, before: str, after: str, which: int) -> None:
    spell = SPELLINGS[which]
    scrubbed = Secret(key).scrub(spell(before + key + after).encode())
    assert b"***" in scrubbed
    assert spell(key).strip("\"'=").encode() not in scrubbed


@given(st.binary(max_size=200))
def test_what_holds_no_key_is_untouched(raw: bytes) -> None:
    assert Secret("sk-planted-0123456789").scrub(raw) == raw


@pytest.mark.parametrize("placeholder", ["", "x", "none", "EMPTY"])
def test_a_word_too_short_to_be_a_key_takes_nothing_out_of_an_answer(placeholder: str) -> None:
    answer = b'{"text": "x is none of the EMPTY ones"}'
    assert Secret(placeholder).scrub(answer) == answer


def test_the_password_of_an_address_is_a_secret_too() -> None:
    secret = Secret("").beside("https://ann:p%40ss%2Fword@host/v1")
    basic = base64.b64encode(b"ann:p@ss/word").decode()
    for said in ("p@ss/word", "p%40ss%2Fword", f"Basic {basic}", "p%40ss%2fword"):
        assert secret.scrub(said.encode()) in (b"***", b"Basic ***"), said
    assert Secret("a-key-of-ours").beside("https://host/v1") == Secret("a-key-of-ours")


def test_a_secret_does_not_show_itself() -> None:
    assert "planted" not in f"{Secret('planted-key', ('planted-too',))!r}"


@pytest.mark.parametrize(
    "address",
    [
        "//ann:planted-pass@host", "ann:planted-pass@host:1/v1", "http://ann:planted-pass@[::1",
        "http://ann:planted-pass@host:99999", "http://ann:planted-pass@",
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_refused_without_its_password(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigError) as caught, open_client(settings(address), tmp_path / "s") as client:
        list(client.answers([question(1)]))
    said = "".join(traceback.format_exception(caught.value))
    assert "base_url" in str(caught.value) and "planted-pass" not in said


def test_a_password_beside_a_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_LLM_API_KEY", "planted-key")
    address = "http://ann:planted-pass@127.0.0.1:9"
    with pytest.raises(ConfigError) as caught, open_client(settings(address), tmp_path / "s") as client:
        list(client.answers([question(1)]))
    assert str(caught.value) == (
        "http://127.0.0.1:9: has a password, and there is a key in the environment "
        "(take the one out, or unset HEADRACE_LLM_API_KEY)"
    )
    assert "planted" not in "".join(traceback.format_exception(caught.value))
