"""Uncertainty estimates give the worked numbers, keep their bounds, and never a NaN."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.evaluation import estimates as e


def logs(*probabilities: float) -> list[float]:
    return [math.log(p) if p else -math.inf for p in probabilities]


shares = st.floats(1e-6, 1.0)
texts = st.lists(st.text(alphabet="ab é東1 -", max_size=12), min_size=1, max_size=6)


def test_perplexity_is_the_inverse_geometric_mean() -> None:
    assert e.perplexity(logs(0.5, 0.25, 0.125)) == pytest.approx(4.0)
    assert e.perplexity(logs(0.5, 0.0)) == math.inf


@settings(deadline=None, max_examples=60)
@given(st.lists(shares, min_size=1, max_size=20))
def test_perplexity_is_at_least_one_and_at_most_the_worst_token(p: list[float]) -> None:
    assert 1.0 - 1e-9 <= e.perplexity(logs(*p)) <= 1.0 / min(p) + 1e-6


@pytest.mark.parametrize(
    ("told", "expected"),
    [((0.5, 0.5), 0.6931472), ((0.9, 0.1), 0.3250830), ((1.0, 0.0), 0.0), ((0.9,), 0.3250830)],
)
def test_entropy_of_a_place_counts_what_was_not_told_as_one_alternative(
    told: Sequence[float], expected: float
) -> None:
    assert e.entropy(logs(*told)) == pytest.approx(expected, abs=1e-7)


def test_mean_and_max_entropy_of_an_answer() -> None:
    entropies = e.token_entropies(
        [{"a": math.log(0.5), "b": math.log(0.5)}, {"a": math.log(0.9), "b": math.log(0.1)}, {"a": 0.0}]
    )
    assert e.mean_entropy(entropies) == pytest.approx(0.3394100, abs=1e-7)
    assert e.max_entropy(entropies) == pytest.approx(0.6931472, abs=1e-7)


@settings(deadline=None, max_examples=60)
@given(st.lists(shares, min_size=1, max_size=20), st.integers(1, 20))
def test_entropy_of_the_told_is_a_lower_bound_of_the_whole(p: list[float], told: int) -> None:
    q = sorted((v / sum(p) for v in p), reverse=True)
    whole = math.fsum(-v * math.log(v) for v in q)
    assert 0.0 <= e.entropy(logs(*q[:told])) <= whole + 1e-9


def test_token_sar_weighs_the_tokens_that_matter() -> None:
    assert e.token_sar(logs(0.5, 0.25), [0.9, 0.7]) == pytest.approx(1.2130076, abs=1e-7)
    assert e.token_sar(logs(0.8), [0.3]) == pytest.approx(-math.log(0.8))
    assert e.token_sar(logs(0.5, 0.25, 0.01), [0.9, 0.7, 1.0]) == pytest.approx(1.2130076, abs=1e-7)
    assert e.token_sar(logs(0.5, 0.25), [1.0, 1.0]) == pytest.approx(1.5 * math.log(2))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(shares, st.floats(-1.0, 1.1)), min_size=1, max_size=12))
def test_token_sar_lies_between_the_surest_and_the_least_sure_token(pairs: list[tuple[float, float]]) -> None:
    p, similarities = [a for a, _ in pairs], [b for _, b in pairs]
    assert -math.log(max(p)) - 1e-9 <= e.token_sar(logs(*p), similarities) <= -math.log(min(p)) + 1e-9


def test_sar_lets_a_sample_be_helped_by_those_that_resemble_it() -> None:
    tokens = [e.token_sar(logs(0.5, 0.25), [0.9, 0.7]), -math.log(0.8)]
    resemble = [[1.0, 0.6], [0.6, 1.0]]
    assert e.sar(tokens, resemble) == pytest.approx(-5.6814011, abs=1e-7)
    assert e.sar(tokens, resemble, t=1.0) == pytest.approx(0.1368913, abs=1e-7)
    q = [math.exp(-t) for t in tokens]
    terms = [-math.log(q[0] + 600 * q[1]), -math.log(q[1] + 600 * q[0])]
    assert terms == pytest.approx([-6.1744053, -5.1883968], abs=1e-7)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0.0, 2000.0), min_size=2, max_size=6), st.floats(0.0, 1.0))
def test_sar_is_finite_and_falls_when_samples_resemble_each_other_more(t: list[float], s: float) -> None:
    apart, near = (np.full((len(t), len(t)), v) for v in (0.0, s))
    assert math.isfinite(e.sar(t, near))
    assert e.sar(t, near) <= e.sar(t, apart) + 1e-9
    assert e.sar(t, apart) == pytest.approx(math.fsum(t) / len(t))


NEAR = [[1, 0.8, 0.2], [0.8, 1, 0.2], [0.2, 0.2, 1]]
LOPSIDED = [[1, 0.9, 0.1], [0.7, 1, 0.3], [0.3, 0.1, 1]]


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        (np.ones((3, 3)), 1.0),
        (np.eye(3), 3.0),
        ([[1, 1, 0], [1, 1, 0], [0, 0, 1]], 2.0),
        (np.full((3, 3), 0.5) + 0.5 * np.eye(3), 1.5),
        (NEAR, 1.7142857),
        (LOPSIDED, 1.7142857),
        (np.zeros((3, 3)), 0.0),
    ],
)
def test_eigval_laplacian_counts_the_different_answers(
    affinity: Sequence[Sequence[float]], expected: float
) -> None:
    assert e.eigval_laplacian(affinity) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (["Isaac Newton", "Newton", "Galileo"], 2.3333333),
        (["Isaac Newton", "isaac newton", "Sir Isaac Newton"], 1.1785714),
    ],
)
def test_eigval_laplacian_of_word_sets(said: list[str], expected: float) -> None:
    assert e.eigval_laplacian(e.jaccard(said)) == pytest.approx(expected, abs=1e-7)


@settings(deadline=None, max_examples=60)
@given(texts)
def test_eigval_laplacian_lies_between_one_and_the_number_of_samples(said: list[str]) -> None:
    value = e.eigval_laplacian(e.jaccard(said))
    assert 1.0 - 1e-9 <= value <= len(said) + 1e-9
    assert value == pytest.approx(e.eigval_laplacian(e.jaccard(said[::-1])))


def test_lexical_similarity_is_minus_the_mean_stemmed_rouge_l() -> None:
    """Pairs of three: "the cat runs" in "the cats run fast" is 3 of 3 and of 4: F 6/7; "no" shares none."""
    said = ["The cat runs.", "the cats run fast", "no"]
    assert e.lexical_similarity(said) == pytest.approx(-(6 / 7) / 3)
    assert e.lexical_similarity(["to be or not", "not to be"]) == pytest.approx(-2 * 2 / 7)


def test_lexical_similarity_reads_every_script() -> None:
    assert e.lexical_similarity(["北京市", "北京"], "zh") == pytest.approx(-4 / 5)
    assert e.lexical_similarity(["книга", "книги"], "ru") == -1.0
    assert e.lexical_similarity(["книга", "дом"], "ru") == 0.0
    assert e.lexical_similarity(["…", "?!"]) == -1.0  # two without words are the same


@settings(deadline=None, max_examples=60)
@given(texts.filter(lambda t: len(t) > 1))
def test_lexical_similarity_lies_between_minus_one_and_zero_in_any_order(said: list[str]) -> None:
    value = e.lexical_similarity(said)
    assert -1.0 <= value <= 0.0
    assert value == pytest.approx(e.lexical_similarity(said[::-1]))
    assert e.lexical_similarity([said[0]] * 3) == -1.0


def test_what_is_undefined_is_refused() -> None:
    for undefined in (
        lambda: e.perplexity([]),
        lambda: e.entropy([]),
        lambda: e.mean_entropy([]),
        lambda: e.max_entropy([]),
        lambda: e.token_sar([], []),
        lambda: e.token_sar([-1.0], [0.5, 0.5]),
        lambda: e.sar([1.0], [[1.0]]),
        lambda: e.lexical_similarity(["one"]),
        lambda: e.eigval_laplacian([]),
    ):
        with pytest.raises(ValueError):
            undefined()
