"""Evaluation in Dagster: each test question with what every model says of it."""

from assets.soundness import CALIBRATED
from assets.view import View

VIEW = View(
    previews={
        "evergreen": ("question", "language", "label", "prediction", "p_evergreen"),
        "uncertainty": ("question", "answer", "correct", "p_evergreen"),
    },
    expected={"evergreen": (CALIBRATED,)},
    bounds="evergreen",
)
