"""EverGreenQA in Dagster: questions, their change rate, and the history of their answers."""

from assets.history_plot import history_plot
from assets.soundness import CLASS_BALANCE, FRESH_ANSWERS, NO_CONFLICT, NO_LEAK
from assets.view import View

VIEW = View(
    previews={
        "ingest": ("question", "language", "label", "change_rate", "answer"),
        "synthesize": ("question", "language", "change_rate", "source", "topic"),
        "verify": ("question", "label", "label_origin", "agreement", "verdicts"),
        "translate": ("question", "language", "translated_from", "similarity"),
        "aliases": ("question", "answer", "aliases", "alias_state"),
        "curate": ("question", "language", "label", "change_rate", "split"),
        "classify": ("question", "language", "p_evergreen", "label", "change_rate"),
        "filter": ("question", "language", "part", "p_evergreen", "label"),
        "refresh": ("question", "answer", "valid_from", "valid_to", "refresh_after"),
    },
    gated=frozenset({"refresh"}),
    expected={
        "curate": (NO_LEAK, NO_CONFLICT, CLASS_BALANCE),
        "refresh": (FRESH_ANSWERS,),
    },
    bounds="evergreen",
    plots={"refresh": history_plot},
)
