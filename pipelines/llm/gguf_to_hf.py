"""A model folder for vLLM from one GGUF file: `python -I gguf_to_hf.py FILE.gguf FOLDER`.

Law: the folder's model is the file's: the same weights, rounded to bfloat16, the same tokens for the
same text, the same prompt template. It runs with the interpreter of vLLM's environment, which has
torch, transformers and gguf, and imports nothing of this project.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any


def convert(gguf: Path, folder: Path) -> None:
    """Write config, weights and tokenizer of `gguf` into the folder, which exists."""
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    loaded = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
    config = loaded.config
    # What comes from a GGUF counts as quantized and refuses to be saved: a fresh model of its class
    # takes the weights.
    vars(config).pop("quantization_config", None)
    config.architectures, config.dtype = [type(loaded).__name__], torch.bfloat16
    config.eos_token_id, config.bos_token_id = tokenizer.eos_token_id, tokenizer.bos_token_id
    config.pad_token_id = tokenizer.pad_token_id
    fresh = type(loaded)(config).to(torch.float32)
    fresh.load_state_dict(loaded.state_dict())
    fresh.tie_weights()
    fresh.to(torch.bfloat16).save_pretrained(folder)
    _tokens_as_in(gguf, tokenizer)
    tokenizer.save_pretrained(folder)


def _tokens_as_in(gguf: Path, tokenizer: Any) -> None:
    """Give the tokenizer what transformers does not take over from the file."""
    fields: Any = importlib.import_module("gguf").GGUFReader(gguf).fields

    def said(name: str) -> Any:
        return fields[name].contents() if name in fields else None

    if said("tokenizer.ggml.pre") == "smollm":  # each digit is a token of its own
        pre: Any = importlib.import_module("tokenizers.pre_tokenizers")
        split = [pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)]
        tokenizer.backend_tokenizer.pre_tokenizer = pre.Sequence(split)
    if said("tokenizer.ggml.model") == "llama" and said("tokenizer.ggml.add_bos_token") is not False:
        processors: Any = importlib.import_module("tokenizers.processors")
        bos = tokenizer.bos_token
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, tokenizer.bos_token_id)]
        )


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
