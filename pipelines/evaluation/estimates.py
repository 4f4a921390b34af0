"""How unsure a model was of an answer: from the answer's log probabilities and from further samples.

Law: every estimate grows with doubt (higher = less sure), is a function of its arguments alone, and is
never NaN: what is undefined (no token, one sample) is a ValueError, for the caller to leave null.

The forms are those of evergreen-facts 2.2. `logprobs` are natural logarithms of the probabilities that
the model gave to the tokens of its answer, [T].
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

TEMPERATURE = 0.001  # t of SAR
_WORD = re.compile(r"\w+")
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")  # no blanks between words
_SNOWBALL = {
    "ar": "arabic", "da": "danish", "nl": "dutch", "fi": "finnish", "fr": "french", "de": "german",
    "it": "italian", "no": "norwegian", "pt": "portuguese", "ro": "romanian", "ru": "russian",
    "es": "spanish", "sv": "swedish",
}  # fmt: skip


def perplexity(logprobs: Sequence[float]) -> float:
    """exp(-1/T sum log p), at least 1; infinite where a token had no probability."""
    if not logprobs:
        raise ValueError("no tokens")
    surprisal = -math.fsum(logprobs) / len(logprobs)
    return math.exp(surprisal) if surprisal < 709.0 else math.inf


def entropy(alternatives: Sequence[float]) -> float:
    """Entropy in nats of one place, from the log probabilities of the alternatives that were told.

    What they leave of 1 counts as one more alternative, so that this is a lower bound, exact where
    the told ones are all. 0 log 0 is 0.
    """
    shares = [min(math.exp(a), 1.0) for a in alternatives if a > -math.inf]
    if not shares:
        raise ValueError("no alternatives")
    rest = max(0.0, 1.0 - math.fsum(shares))
    return math.fsum(-p * math.log(p) for p in (*shares, rest) if p > 0.0)


def mean_entropy(entropies: Sequence[float]) -> float:
    """Mean over the tokens of an answer."""
    if not entropies:
        raise ValueError("no tokens")
    return math.fsum(entropies) / len(entropies)


def max_entropy(entropies: Sequence[float]) -> float:
    """Largest over the tokens of an answer."""
    if not entropies:
        raise ValueError("no tokens")
    return max(entropies)


def token_sar(logprobs: Sequence[float], similarities: Sequence[float]) -> float:
    """Token surprisal weighted by relevance R_t = 1 - similarity of the answer with and without token t.

    A token that the answer can spare has similarity 1. Similarities above 1 count as 1; where no token
    matters at all (one token, or all similarities 1) all weigh alike.
    """
    if not logprobs or len(logprobs) != len(similarities):
        raise ValueError(f"{len(logprobs)} tokens, {len(similarities)} similarities")
    relevance = [max(0.0, 1.0 - s) for s in similarities]
    total = math.fsum(relevance)
    if total <= 0.0:
        return -math.fsum(logprobs) / len(logprobs)
    return math.fsum(-p * r / total for p, r in zip(logprobs, relevance, strict=True))


def sar(
    token_sars: Sequence[float], similarity: Sequence[Sequence[float]] | np.ndarray, t: float = TEMPERATURE
) -> float:
    """Mean over m samples of -log(q_i + (1/t) sum_{j != i} S_ij q_j), q = exp(-TokenSAR); may be negative.

    similarity: [m, m] of the whole sentences; below 0 counts as 0.
    """
    import numpy as np
    from scipy.special import logsumexp

    m = len(token_sars)
    s = np.clip(np.asarray(similarity, np.float64), 0.0, None)
    if m < 2 or s.shape != (m, m):
        raise ValueError(f"{m} samples, similarities {s.shape}")
    weights = s / t
    np.fill_diagonal(weights, 1.0)
    log_q = np.broadcast_to(-np.asarray(token_sars, np.float64), (m, m))
    return float(-np.mean(logsumexp(log_q, axis=1, b=weights)))


def eigval_laplacian(affinity: Sequence[Sequence[float]] | np.ndarray) -> float:
    """Sum of max(0, 1 - lambda_k) over the normalised Laplacian of W = (A + A^T) / 2, [m, m].

    From 1 (all samples the same) to m (all different).
    """
    import numpy as np

    a = np.asarray(affinity, np.float64)
    if a.ndim != 2 or a.shape[0] != a.shape[1] or not len(a):
        raise ValueError(f"affinity {a.shape}")
    w = (a + a.T) / 2
    degree = w.sum(axis=1)
    root = np.where(degree > 0.0, 1.0 / np.sqrt(np.where(degree > 0.0, degree, 1.0)), 0.0)
    laplacian = np.eye(len(w)) - root[:, None] * w * root[None, :]
    return float(np.maximum(0.0, 1.0 - np.linalg.eigvalsh(laplacian)).sum())


def jaccard(texts: Sequence[str]) -> list[list[float]]:
    """Shared words over all words of each two texts, lower case, [m, m]; two without words are equal."""
    words = [set(tokens(text)) for text in texts]
    return [[len(a & b) / len(a | b) if a | b else 1.0 for b in words] for a in words]


def lexical_similarity(texts: Sequence[str], language: str = "en") -> float:
    """Minus the mean pairwise ROUGE-L (F, stemmed): from -1 (all the same words) to 0 (none shared)."""
    if len(texts) < 2:
        raise ValueError("fewer than two samples")
    stemmed = [_Stems(language).tokenize(text) for text in texts]
    pairs = list(combinations(range(len(texts)), 2))
    return -math.fsum(_rouge_l(texts, stemmed, i, j, language) for i, j in pairs) / len(pairs)


def tokens(text: str) -> list[str]:
    """Words in lower case; a script without blanks (Chinese, Japanese, Thai) gives its characters."""
    text = unicodedata.normalize("NFKC", text).casefold()
    return _WORD.findall(_UNSPACED.sub(lambda c: f" {c[0]} ", text))


def token_entropies(tops: Sequence[Mapping[str, float]]) -> list[float]:
    """`entropy` of each place, from what a reply tells of its alternatives: token -> log probability."""
    return [entropy(list(top.values())) for top in tops]


def _rouge_l(texts: Sequence[str], stemmed: Sequence[list[str]], i: int, j: int, language: str) -> float:
    if stemmed[i] == stemmed[j]:
        return 1.0  # also two without words, which the library calls 0
    return float(_scorer(language).score(texts[i], texts[j])["rougeL"].fmeasure)


@cache
def _scorer(language: str) -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], tokenizer=_Stems(language))


class _Stems:
    """ROUGE's tokenizer for any script: the library's own knows ASCII letters alone."""

    def __init__(self, language: str) -> None:
        self._stem = _stemmer(language)

    def tokenize(self, text: str) -> list[str]:
        """Stems; words of three letters and fewer stay, as in the library."""
        return [self._stem(w) if len(w) > 3 else w for w in tokens(text)]


@cache
def _stemmer(language: str) -> Any:
    """Porter for English (ROUGE's own), Snowball where there is one, else none."""
    if language == "en":
        from nltk.stem.porter import PorterStemmer

        return PorterStemmer().stem
    if language in _SNOWBALL:
        from nltk.stem.snowball import SnowballStemmer

        return SnowballStemmer(_SNOWBALL[language]).stem
    return str
