"""EverGreenQA in Dagster: questions, their change rate, and the history of their answers."""

from assets.view import View

VIEW = View(
    previews={
        "ingest": ("question", "language", "label", "change_rate", "answer", "source", "split"),
        "curate": ("question", "language", "label", "change_rate", "split", "leaks_into_test"),
        "classify": ("question", "language", "p_evergreen", "label", "change_rate", "split"),
        "filter": ("question", "language", "part", "p_evergreen", "label", "split"),
        "refresh": ("question", "answer", "version", "valid_from", "valid_to", "refresh_after", "evidence"),
    },
    gated=frozenset({"refresh"}),
)
