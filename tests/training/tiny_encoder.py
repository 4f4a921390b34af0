"""A BERT of a few thousand weights in the layout of its publishers, with a tokenizer of whole words."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

WORDS = ["how", "old", "is", "he", "now", "who", "wrote", "the", "book", "query:", "qui", "a", "écrit"]
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "hidden_act": "gelu",
}


def make(folder: Path, kind: str = "bert", seed: int = 1) -> Path:
    """Config, tokenizer and random weights in `folder`; `kind` is bert or xlm-roberta."""
    torch: Any = importlib.import_module("torch")
    tokenizers: Any = importlib.import_module("tokenizers")
    save: Any = importlib.import_module("safetensors.torch").save_file
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {w: i for i, w in enumerate(["<s>", "<pad>", "</s>", "<unk>", *WORDS])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    told = {**SIZES, "model_type": kind, "vocab_size": len(vocabulary), "pad_token_id": 1}
    (folder / "config.json").write_text(json.dumps(told))
    generator = torch.Generator().manual_seed(seed)
    shapes = _shapes(len(vocabulary))
    weights = {n: torch.randn(*s, generator=generator) * 0.3 for n, s in shapes.items()}
    for name, tensor in weights.items():
        if name.endswith("LayerNorm.weight"):
            tensor.add_(1.0)
    save({n: t.half().float() for n, t in weights.items()}, folder / "model.safetensors")
    return folder


def _shapes(vocabulary: int) -> dict[str, tuple[int, ...]]:
    h, f = SIZES["hidden_size"], SIZES["intermediate_size"]
    assert isinstance(h, int) and isinstance(f, int)
    found: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (vocabulary, h),
        "embeddings.position_embeddings.weight": (40, h),
        "embeddings.token_type_embeddings.weight": (1, h),
        "embeddings.LayerNorm.weight": (h,),
        "embeddings.LayerNorm.bias": (h,),
    }
    parts = {
        "attention.self.query": (h, h),
        "attention.self.key": (h, h),
        "attention.self.value": (h, h),
        "attention.output.dense": (h, h),
        "attention.output.LayerNorm": (h,),
        "intermediate.dense": (f, h),
        "output.dense": (h, f),
        "output.LayerNorm": (h,),
    }
    for layer in range(3):
        for part, shape in parts.items():
            found[f"encoder.layer.{layer}.{part}.weight"] = shape
            found[f"encoder.layer.{layer}.{part}.bias"] = shape[:1]
    return found
