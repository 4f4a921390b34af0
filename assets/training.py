"""Training in Dagster: what a model was trained on, and what was left out."""

from assets.soundness import NO_LEAK_IN_TRAINING
from assets.view import View

VIEW = View(
    previews={
        "self_knowledge": ("dataset", "estimate", "features", "p_correct", "correct"),
    },
    expected={"evergreen": (NO_LEAK_IN_TRAINING,)},
)
