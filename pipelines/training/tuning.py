"""Fine-tunes the upper layers of an encoder to tell evergreen from mutable questions.

Law: the order of rows changes nothing, and equal rows and one seed train equal bytes: one thread, all
draws from the seed. A class weighs by what it is (1 evergreen, 0 mutable), never by its rank in a count.
A fit is kept by content outside the outs; a killed run finds those that were whole.

Each epoch shows a question in the next of its wordings. The layers below the cut are frozen and run once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.data.config import Share
from pipelines.data.rows import digest
from pipelines.data.tables import replace
from pipelines.errors import ConfigError, StageError
from pipelines.evergreen.eg_e5 import encoder as bert
from pipelines.evergreen.eg_e5.calibration import need_both
from pipelines.evergreen.eg_e5.encoder_folder import in_folder
from pipelines.evergreen.eg_e5.hidden import Below, Hidden
from pipelines.evergreen.eg_e5.tuned import HEAD, Tuned, logits, unfit_network
from pipelines.training.examples import in_turn

if TYPE_CHECKING:
    import numpy as np

Watch = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]  # what, how many -> told n more
ENCODERS = "data/raw/encoders"
WHERE = "params.yaml: training.evergreen.encoder"
FROZEN, FINETUNED = "frozen", "finetuned"
HEAD_RATE = 1e-3  # learning rate of the head, which starts from nothing
JITTER = 4.0  # tokens by which the lengths of one batch may differ more than they need to
NORM = 1.0  # the gradient is clipped to it


@dataclass(frozen=True)
class Tuning:
    """How an encoder is fine-tuned. kind frozen trains none and needs no torch."""

    kind: str = FROZEN
    path: str = ""  # another E5: a folder below data/raw/encoders; "": the packaged
    prefix: str = "query: "
    tokens: int = 48  # of a question; longer ones are cut
    layers: int = 6  # trained, from the top; those below are frozen
    networks: int = 1  # trained from different starts; the mean of their log odds counts
    epochs: int = 3
    wordings: int = 1  # of a question in one epoch
    batch: int = 32
    learning_rate: float = 1e-4
    warm_up: Share = 0.1  # of the steps
    weight_decay: float = 0.01
    dropout: Share = 0.1
    balance: float = 0.5  # a row weighs (rows of its source and label) ** -balance
    focus: float = 0.0  # gamma of the focal loss; 0: cross-entropy

    def __post_init__(self) -> None:
        counts = (self.layers, self.networks, self.epochs, self.wordings, self.batch)
        if self.kind not in (FROZEN, FINETUNED):
            raise ConfigError(f"kind is {FROZEN} or {FINETUNED}, not {self.kind!r}", where=WHERE)
        if self.path and self.kind == FROZEN:
            what = "an encoder of one's own is for fine-tuning alone; the frozen one is the packaged"
            raise ConfigError(what, where=f"{WHERE}.path", cure=f"set kind: {FINETUNED}")
        if min(counts) < 1 or self.tokens < 8 or self.learning_rate <= 0 or self.dropout == 1:
            what = "needs layers, networks, epochs, wordings, batch >= 1, tokens >= 8, learning_rate > 0"
            raise ConfigError(what, where=WHERE)


@dataclass(frozen=True)
class Shown:
    """Training rows: texts, their question, label (1 evergreen), weight, in an order of their own."""

    texts: Sequence[str]
    questions: Sequence[str]
    evergreen: np.ndarray  # int [n]
    weights: np.ndarray  # float64 [n], mean 1

    @property
    def identity(self) -> str:
        rows = zip(
            self.texts, self.questions, self.evergreen.tolist(), self.weights.round(9).tolist(), strict=True
        )
        return digest("shown", *(list(r) for r in rows))


@dataclass
class Tuner:
    """Fits layers over one encoder; `kept` holds fits and hidden states (None: nothing is kept)."""

    recipe: Tuning
    below: Below
    kept: Path | None
    watch: Watch

    def __post_init__(self) -> None:
        self.hidden = Hidden(self.below, None if self.kept is None else self.kept / "hidden")

    def fit(self, shown: Shown, seed: int) -> Tuned:
        """The layers fitted to these rows. Raises StageError without both labels."""
        need_both(shown.evergreen)
        turns = list(in_turn(shown.questions, shown.texts, seed).values())
        networks = tuple(self._network(shown, turns, seed, k) for k in range(self.recipe.networks))
        return Tuned(self.below, networks, self.hidden.folder)

    def see(self, texts: Sequence[str]) -> None:
        """Runs texts through the frozen layers, so that they are kept."""
        if missing := len(self.hidden.missing(texts)):
            with self.watch("texts through the frozen layers", missing) as seen:
                self.hidden.of(texts, seen)

    def _network(self, shown: Shown, turns: Sequence[Sequence[int]], seed: int, nth: int) -> bert.Weights:
        recipe = {k: v for k, v in asdict(self.recipe).items() if k not in ("kind", "path", "networks")}
        name = digest("fit", self.below.identity, recipe, shown.identity, seed, nth)
        path = None if self.kept is None else self.kept / "fits" / f"{name}.safetensors"
        if (found := self._found(path)) is not None:
            return found
        own = int(digest("tuning", seed, nth), 16) % 2**63
        epochs = schedule(self.recipe, turns, nth, own)
        self.see([shown.texts[i] for i in sorted({int(i) for rows in epochs for i in rows})])
        trained = train(self.recipe, self.hidden, shown, epochs, own, self.watch)
        if fault := unfit_network(trained, self.below.encoder.sizes, self.below.cut):
            cure = "lower training.evergreen.encoder.learning_rate"
            raise StageError(f"fine-tuning went astray: {fault}", where="training.evergreen", cure=cure)
        if path is not None:
            library = bert.need("safetensors.torch")
            replace(path, lambda beside: library.save_file(trained, beside))
        return trained

    def _found(self, path: Path | None) -> bert.Weights | None:
        """The fit that is kept here; None where there is none that can be used (a dying disk)."""
        if path is None or not path.is_file():
            return None
        try:
            found: bert.Weights = bert.need("safetensors.torch").load_file(path)
        except Exception:  # the library's own errors have no common class
            return None
        return None if unfit_network(found, self.below.encoder.sizes, self.below.cut) else found


def tuner(recipe: Tuning, root: Path, watch: Watch) -> Tuner | None:
    """What the recipe asks for, None for a frozen encoder."""
    if recipe.kind == FROZEN:
        return None
    encoder = in_folder(_named(root / ENCODERS, recipe.path)) if recipe.path else bert.packaged()
    if recipe.layers > encoder.sizes.layers:
        what = f"the encoder has {encoder.sizes.layers} layers, {recipe.layers} cannot be trained"
        raise ConfigError(what, where="training.evergreen.encoder.layers")
    room = encoder.sizes.positions - encoder.sizes.first_position
    if recipe.tokens > room:
        what = f"the encoder has places for {room} tokens, {recipe.tokens} cannot be shown"
        raise ConfigError(what, where="training.evergreen.encoder.tokens")
    cut = encoder.sizes.layers - recipe.layers
    below = Below(encoder, cut, recipe.prefix, recipe.tokens)
    return Tuner(recipe, below, root / ".headrace" / "encoder", watch)


def _named(encoders: Path, name: str) -> Path:
    """The folder of an encoder: one that is an input of the graph, so that a change in it is seen."""
    folder = encoders / name
    if not folder.resolve().is_relative_to(encoders.resolve()) or not folder.is_dir():
        what = f"no folder {name!r} below {ENCODERS}"
        raise ConfigError(what, where=f"{WHERE}.path", cure="put it there")
    return folder


def train(
    recipe: Tuning, hidden: Hidden, shown: Shown, epochs: Sequence[np.ndarray], seed: int, watch: Watch
) -> dict[str, bert.Tensor]:
    """The weights above the cut and of the head, float16."""
    import numpy as np

    torch, below = bert.need("torch"), hidden.below
    used = sorted({int(i) for rows in epochs for i in rows})
    states = dict(zip(used, hidden.of([shown.texts[i] for i in used]), strict=True))
    batches = []
    for turn, rows in enumerate(epochs):
        lengths = np.array([len(states[int(i)]) for i in rows], np.float64)
        batches += batches_of(rows, lengths, recipe.batch, seed + turn)
    with (
        bert.deterministic(),
        torch.random.fork_rng(devices=[]),
        watch("steps of fine-tuning", len(batches)) as seen,
    ):
        torch.manual_seed(seed)
        net = _start(below)
        move = _optimiser(recipe, net, len(batches))
        for places in batches:
            batch, mask = _padded([states[i] for i in places])
            out = logits(net, below, batch, mask=mask, drop=recipe.dropout)
            labels = torch.from_numpy(shown.evergreen[places].astype("int64"))
            weights = torch.from_numpy(shown.weights[places].astype("float32"))
            (losses(out, labels, recipe.focus) * weights).mean().backward()
            torch.nn.utils.clip_grad_norm_(list(net.values()), NORM)
            move()
            seen(1)
    return {name: t.detach().to(torch.float16).contiguous() for name, t in sorted(net.items())}


def losses(out: bert.Tensor, labels: bert.Tensor, focus: float) -> bert.Tensor:
    """Loss of each row, [B], of logits [B, 2]: (1 - p)^focus x -log p, p the probability of its label.

    p is unweighted (the published code puts the class weight into it); the caller weighs the rows.
    """
    functional = bert.need("torch.nn.functional")
    plain = functional.cross_entropy(out, labels, reduction="none")
    if focus == 0:
        return plain
    return (1.0 - (-plain).exp()) ** focus * plain


def schedule(recipe: Tuning, turns: Sequence[Sequence[int]], nth: int, seed: int) -> list[np.ndarray]:
    """Row places of each epoch: of every question its next wordings in turn, in random order.

    turns: for each question the places of its wordings. The nth network goes on where the last ended.
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    found = []
    for epoch in range(nth * recipe.epochs, (nth + 1) * recipe.epochs):
        start = epoch * recipe.wordings
        rows = [p[(start + k) % len(p)] for p in turns for k in range(min(recipe.wordings, len(p)))]
        found.append(rng.permutation(np.array(rows)))
    return found


def batches_of(epoch: np.ndarray, lengths: np.ndarray, size: int, seed: int) -> list[np.ndarray]:
    """Batches of an epoch in random order, near-equal lengths together; `lengths` are of its rows."""
    import numpy as np

    rng = np.random.default_rng(seed)
    rows = epoch[np.argsort(lengths + rng.uniform(0, JITTER, len(epoch)), kind="stable")]
    batches = [rows[i : i + size] for i in range(0, len(rows), size)]
    return [batches[i] for i in rng.permutation(len(batches))]


def _start(below: Below) -> dict[str, bert.Tensor]:
    """Copies of the layers above the cut that may change, and a small random head."""
    torch = bert.need("torch")
    sizes = below.encoder.sizes
    net = {n: below.encoder.weights[n].clone() for n in bert.names_of(sizes, below.cut, sizes.layers)}
    bound = sizes.hidden**-0.5
    net[HEAD[0]] = torch.empty(2, sizes.hidden).uniform_(-bound, bound)
    net[HEAD[1]] = torch.zeros(2)
    for tensor in net.values():
        tensor.requires_grad_(True)
    return net


def _optimiser(recipe: Tuning, net: dict[str, bert.Tensor], steps: int) -> Callable[[], None]:
    """A step of AdamW: the rate rises over `warm_up` of the steps, then falls to 0."""
    torch = bert.need("torch")
    groups: list[dict[str, Any]] = [
        {"params": [t for n, t in net.items() if n not in HEAD], "lr": recipe.learning_rate},
        {"params": [net[n] for n in HEAD], "lr": HEAD_RATE},
    ]
    adam = torch.optim.AdamW(groups, weight_decay=recipe.weight_decay)
    rising = max(recipe.warm_up * steps, 1.0)

    def share(step: int) -> float:
        return min((step + 1) / rising, max(0.0, (steps - step) / max(steps - rising, 1.0)))

    rates = torch.optim.lr_scheduler.LambdaLR(adam, share)

    def move() -> None:
        adam.step()
        rates.step()
        adam.zero_grad()

    return move


def _padded(states: Sequence[np.ndarray]) -> tuple[bert.Tensor, bert.Tensor]:
    """Float32 [B, S, H], and which of [B, S] are tokens."""
    import numpy as np

    torch = bert.need("torch")
    lengths = np.array([len(s) for s in states])
    batch = np.zeros((len(states), lengths.max(), states[0].shape[1]), np.float32)
    for row, state in enumerate(states):
        batch[row, : len(state)] = state
    mask = np.arange(lengths.max())[None] < lengths[:, None]
    return torch.from_numpy(batch), torch.from_numpy(mask)
