"""An encoder in a folder, as the publishers of E5 lay it: read whole and checked, or its lower layers kept.

Law: what is read can be run: every weight is there, of the shape that the sizes ask for and a number
throughout, and the tokenizer has no piece that the encoder lacks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pipelines.errors import ConfigError, InputError
from pipelines.evergreen.eg_e5 import encoder as bert
from pipelines.evergreen.eg_e5.packaged_encoder import Sizes
from pipelines.llm.verified import sha256_of

BESIDE, WEIGHTS = ("config.json", "tokenizer.json"), "model.safetensors"
KINDS = {"bert": False, "xlm-roberta": True}  # whether positions are counted from the padding id + 1


def in_folder(folder: Path, stop: int | None = None, identity: str = "") -> bert.Encoder:
    """An E5 as its publisher lays it: config.json, tokenizer.json, model.safetensors.

    Weights are rounded to 16 bits, as `keep` keeps them. `stop`: only the layers below it need be there,
    and `identity` is then the whole encoder's. Raises InputError when a file or a weight is absent or
    damaged, ConfigError for another architecture, EnvironmentFault without torch.
    """
    absent = [n for n in (*BESIDE, WEIGHTS) if not (folder / n).is_file()]
    if absent:
        cure = "name the folder of a BERT or XLM-RoBERTa encoder with its weights in safetensors"
        raise InputError(f"no {', '.join(absent)} here", where=str(folder), cure=cure)
    torch, library = bert.need("torch"), bert.need("tokenizers")
    sizes = _sizes(folder / BESIDE[0])
    files = {name: (folder / name).read_bytes() for name in BESIDE}
    try:
        tokenizer = library.Tokenizer.from_str(files[BESIDE[1]].decode())
        loaded = bert.need("safetensors.torch").load_file(folder / WEIGHTS)
    except Exception as e:  # both libraries raise plain exceptions of their own
        raise InputError(f"not readable: {type(e).__name__}: {e}", where=str(folder)) from e
    tokenizer.no_padding()
    tokenizer.no_truncation()
    weights = {_bare(name): tensor for name, tensor in loaded.items()}
    wanted = shapes(sizes, 0, sizes.layers if stop is None else stop)
    if fault := unfit(weights, wanted):
        raise InputError(fault, where=str(folder / WEIGHTS))
    most = max(tokenizer.get_vocab().values(), default=-1)
    if most >= sizes.vocabulary:
        what = f"has a piece of number {most}, the encoder knows {sizes.vocabulary}"
        raise InputError(what, where=str(folder / BESIDE[1]))
    known = {n: weights[n].to(torch.float16).float() for n in wanted}
    identity = identity or "sha256:" + sha256_of(folder / WEIGHTS)
    return bert.Encoder(sizes, known, lambda text: list(tokenizer.encode(text).ids), identity, files)


def keep(encoder: bert.Encoder, cut: int, folder: Path) -> None:
    """Writes the encoder's layers below `cut` as a folder that `in_folder` reads."""
    torch = bert.need("torch")
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in encoder.files.items():
        (folder / name).write_bytes(content)
    kept = {
        n: encoder.weights[n].to(torch.float16).contiguous() for n in bert.names_of(encoder.sizes, 0, cut)
    }
    bert.need("safetensors.torch").save_file(kept, folder / WEIGHTS)


def unfit(weights: bert.Weights, wanted: Mapping[str, tuple[int, ...]]) -> str:
    """What is wrong with the first wanted weight that is absent, misshapen or no number; "": nothing."""
    torch = bert.need("torch")
    for name, shape in wanted.items():
        if name not in weights:
            return f"lacks the weight {name}"
        if tuple(weights[name].shape) != shape:
            return f"{name} is of shape {list(weights[name].shape)}, not {list(shape)}"
        if not torch.isfinite(weights[name].to(torch.float16)).all():
            return f"{name} holds what is no number of 16 bits"
    return ""


def shapes(sizes: Sizes, start: int, stop: int) -> dict[str, tuple[int, ...]]:
    """Of the weights of layers start to stop, with the embedding layer's where start is 0."""
    return {name: _shape(name, sizes) for name in bert.names_of(sizes, start, stop)}


def _shape(name: str, sizes: Sizes) -> tuple[int, ...]:
    """Of a weight by its name in BERT checkpoints."""
    h, f = sizes.hidden, sizes.feed_forward
    rows = {
        "embeddings.word_embeddings.weight": sizes.vocabulary,
        "embeddings.position_embeddings.weight": sizes.positions,
        "embeddings.token_type_embeddings.weight": sizes.types,
    }.get(name)
    if rows is not None:
        return rows, h
    part, _, kind = name.partition(".layer.")[2].partition(".")[2].rpartition(".")
    wide = f if part == "intermediate.dense" else h
    if kind != "weight" or part.endswith("LayerNorm"):
        return (wide,)
    return wide, f if part == "output.dense" else h


def _bare(name: str) -> str:
    """A weight's name without the model's: "bert.encoder..." and "roberta.encoder..." -> "encoder..."."""
    for model in ("bert.", "roberta."):
        name = name.removeprefix(model)
    return name


def _sizes(path: Path) -> Sizes:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        kind, act = told["model_type"], told.get("hidden_act", "gelu")
        if kind not in KINDS or act != "gelu":
            cure = f"known: {', '.join(KINDS)}, with gelu"
            raise ConfigError(f"an encoder of kind {kind!r} with {act!r}", where=str(path), cure=cure)
        pad = int(told["pad_token_id"])
        sizes = Sizes(
            int(told["hidden_size"]),
            int(told["num_hidden_layers"]),
            int(told["num_attention_heads"]),
            int(told["intermediate_size"]),
            int(told["vocab_size"]),
            int(told["max_position_embeddings"]),
            int(told["type_vocab_size"]),
            float(told["layer_norm_eps"]),
            pad,
            pad + 1 if KINDS[kind] else 0,
        )
        counts = (sizes.hidden, sizes.layers, sizes.heads, sizes.feed_forward, sizes.positions, sizes.types)
        if min(counts) < 1 or sizes.hidden % sizes.heads:
            raise ValueError("sizes are 1 or more, and the heads share the hidden size evenly")
        return sizes
    except (ValueError, KeyError, TypeError) as e:
        what = f"not the configuration of an encoder: {type(e).__name__}: {e}"
        raise InputError(what, where=str(path)) from e
