"""EverGreenQA in Dagster: questions, their change rate, and the history of their answers."""

from assets.view import View

VIEW = View(
    previews={
        "ingest": ("question", "language", "label", "change_rate", "answer"),
        "curate": ("question", "language", "label", "change_rate", "split"),
        "classify": ("question", "language", "p_evergreen", "label", "change_rate"),
        "filter": ("question", "language", "part", "p_evergreen", "label"),
        "refresh": ("question", "answer", "valid_from", "valid_to", "refresh_after"),
    },
    gated=frozenset({"refresh"}),
)
