"""Evaluation in Dagster: each question with what every model says of it, and how sure it was."""

from assets.soundness import CALIBRATED
from assets.view import View

VIEW = View(
    previews={
        "evergreen": ("question", "language", "label", "prediction", "p_evergreen"),
        "verbal": ("question", "method", "verdict", "label", "reply"),
        "uncertainty": ("question", "answer", "correct", "p_evergreen"),
    },
    expected={"evergreen": (CALIBRATED,)},
    bounds="evergreen",
)
