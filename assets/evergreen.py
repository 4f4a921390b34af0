"""EverGreenQA in Dagster: questions, their change rate, and the history of their answers."""

from assets.view import View

VIEW = View(
    previews={
        "ingest": ("question", "language", "split", "label", "answer"),
        "curate": ("question", "language", "split", "label"),
        "classify": ("question", "language", "probability", "label"),
        "filter": ("question", "language", "probability", "part"),
        "refresh": ("question", "answer", "valid_from", "valid_to"),
    },
    gated=frozenset({"refresh"}),
)
